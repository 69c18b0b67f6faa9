"""Forms for refused requests, by the protocol's own Python library.

approval.py CONTAINER COMMAND ALLOWED PROGRAM [WORD ...] starts the server, runs the command, which fetches something, and
answers the form. Ends with 0 if everything was as it should be.
"""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def main(container, command, allowed, program, *words):
    shown, answers = [], [
        types.ElicitResult(action="accept", content={"decision": "once"}),
        types.ElicitResult(action="decline"),
    ]

    async def form(_context, params):
        choices = params.requestedSchema["properties"]["decision"]["enum"]
        assert choices == ["once", "session", "always", "deny"], params
        shown.append(params.message)
        return answers.pop(0)

    server = StdioServerParameters(command=program, args=list(words), env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write, elicitation_callback=form) as session:
        await session.initialize()
        call = {"operation": "exec", "container": container, "command": command}
        outputs = [(await session.call_tool("containers", call)).structuredContent["stdout"] for _ in range(3)]
    # After a refusal, no form is shown again.
    assert [it.endswith(allowed) for it in outputs] == [True, False, False], outputs
    assert len(shown) == 2 and container in shown[0], shown


asyncio.run(main(*sys.argv[1:]))
