"""An agent of the OpenAI Agents SDK with a machine of its own.

    OPENAI_API_KEY=… python openai_agents_agent.py "Write hello.py and run it"

IMAGE, PURPOSE and MODEL are optional; OPENAI_BASE_URL names another server that has this API.
"""

import asyncio
import os
import sys

import agents
import coracle
from coracle.adapters.openai_agents import tools


async def main(task):
    fields = {name: os.environ[name.upper()] for name in ("image", "purpose") if name.upper() in os.environ}
    agents.set_tracing_disabled(True)
    agents.set_default_openai_api("chat_completions")
    async with coracle.Container(mount_cwd=False, **fields) as container:
        agent = agents.Agent(name="coder", model=os.environ.get("MODEL", "gpt-4.1"), tools=tools(container))
        print((await agents.Runner.run(agent, task)).final_output)


asyncio.run(main(sys.argv[1]))
