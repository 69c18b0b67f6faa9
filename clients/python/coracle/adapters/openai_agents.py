"""The tools of a machine for the OpenAI Agents SDK, ``pip install coracle-client[openai-agents]``.

>>> async with coracle.Container(purpose="python") as c:
...     agent = agents.Agent(name="coder", tools=tools(c))
"""

from __future__ import annotations

from agents import FunctionTool, function_tool

from ..client import Container
from . import functions


def tools(container: Container) -> list[FunctionTool]:
    """The tools of a container, for ``Agent(tools=…)``."""
    return [function_tool(it) for it in functions(container)]
