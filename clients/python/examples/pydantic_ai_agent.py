"""An agent of Pydantic AI with a machine of its own.

    OPENAI_API_KEY=… MODEL=openai:gpt-4.1 python pydantic_ai_agent.py "Write hello.py and run it"

Without MODEL a function plays the model, so that the example runs without a key. IMAGE and PURPOSE are optional.
"""

import asyncio
import os
import sys

import coracle
from coracle.adapters.pydantic_ai import tools
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

SCRIPT = [
    ("write", {"path": "n.txt", "content": "6 by 7\n"}),
    ("edit", {"path": "n.txt", "old": "by", "new": "times"}),
    ("read", {"path": "n.txt"}),
    ("read", {"path": "nowhere"}),
    ("shell", {"command": "cat n.txt; exit 3"}),
]


def scripted(messages, info):
    """Calls the tools of the script one after another, then tells what they answered."""
    answers = [part for it in messages for part in it.parts if part.part_kind == "tool-return"]
    if len(answers) < len(SCRIPT):
        return ModelResponse(parts=[ToolCallPart(*SCRIPT[len(answers)])])
    return ModelResponse(parts=[TextPart("\n".join(f"{it.tool_name}: {it.content}" for it in answers))])


async def main(task):
    fields = {name: os.environ[name.upper()] for name in ("image", "purpose") if name.upper() in os.environ}
    async with coracle.Container(mount_cwd=False, **fields) as container:
        agent = Agent(os.environ.get("MODEL") or FunctionModel(scripted), tools=tools(container))
        print((await agent.run(task)).output)


asyncio.run(main(sys.argv[1]))
