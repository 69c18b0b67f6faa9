"""The tools of a machine for Pydantic AI, ``pip install coracle-client[pydantic-ai]``.

>>> async with coracle.Container(purpose="python") as c:
...     agent = pydantic_ai.Agent("openai:gpt-4.1", tools=tools(c))
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Tool

from ..client import Container
from . import functions


def tools(container: Container) -> list[Tool[Any]]:
    """The tools of a container, for ``Agent(tools=…)``."""
    return [Tool(it) for it in functions(container)]
