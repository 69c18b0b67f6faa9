"""One session of an agent, by the protocol's own Python library, with a server at standard input and output.

session.py PART PROGRAM [WORD ...] starts the server with the rest of its words. PART is `tools`, which needs no container,
or `all`. Ends with 0 if everything was as it should be.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

LOOKING = {"ls", "read_file", "glob", "grep", "shell_output", "workflow_status", "workflow_events", "workflow_result",
           "workflow_diff"}
CHANGING = {"containers", "write_file", "edit_file", "rm", "shell_execute", "evaluate_python", "run_code"}
CHANGING |= {"workflow_start", "workflow_cancel", "workflow_apply", "workflow_exec"}


async def called(session, name, arguments, fails=False):
    """The structured answer, which the library has held against the tool's output schema."""
    result = await session.call_tool(name, arguments)
    answer = result.structuredContent
    assert result.isError == fails, (name, answer)
    assert result.content[0].text, name
    return answer


async def tools(session):
    listed = {it.name: it for it in (await session.list_tools()).tools}
    assert set(listed) == LOOKING | CHANGING, sorted(listed)
    for name, tool in listed.items():
        assert tool.description, name
        assert tool.inputSchema["type"] == "object", name
        assert tool.outputSchema["type"] == "object", name
        hints = tool.annotations
        looks = name in LOOKING
        assert (hints.readOnlyHint, hints.destructiveHint) == (looks, not looks), (name, hints)


async def refusals(session):
    """Wrong arguments are refused by each tool's schema, and create no container."""
    answer = await called(session, "read_file", {"pat": "a"}, fails=True)
    assert answer["code"] == "unknown_field" and "path" in answer["hint"], answer
    answer = await called(session, "write_file", {"path": "../a", "content": ""}, fails=True)
    assert answer["code"] != "internal", answer
    answer = await called(session, "run_code", {"code": "1", "language": "cobol"}, fails=True)
    assert answer["code"] != "internal", answer
    answer = await called(session, "containers", {"operation": "status", "container": "none"}, fails=True)
    assert answer["code"] == "not_found", answer


async def work(session):
    text = "one\ntwo\nthree\n"
    await called(session, "write_file", {"path": "notes/list.txt", "content": text})
    read = await called(session, "read_file", {"file_path": "notes/list.txt"})
    assert read["value"]["total_lines"] == 3, read
    edit = {"path": "notes/list.txt", "old_string": "two", "new_string": "zwei"}
    edited = await called(session, "edit_file", edit)
    assert edited["value"]["changed"], edited
    found = await called(session, "grep", {"pattern": "^z"})
    assert "zwei" in str(found["value"]), found
    shell = await called(session, "shell_execute", {"command": ["cat", "notes/list.txt"]})
    value = shell["value"]
    assert (value["exit_code"], value["stdout"]) == (0, "one\nzwei\nthree\n"), shell
    ran = await called(session, "run_code", {"code": "print(6 * 7)", "language": "python"})
    assert ran["output"].strip() == "42", ran


async def diff(program):
    """What the session changed, as the user sees it in between."""
    pipe = asyncio.subprocess.PIPE
    asked = await asyncio.create_subprocess_exec(program, "workspace", "diff", "--json", stdout=pipe)
    answer = json.loads((await asked.communicate())[0])
    assert answer["success"], answer
    assert "+zwei" in json.dumps(answer), answer


async def main(part, program, *words):
    server = StdioServerParameters(command=program, args=list(words), env=dict(os.environ))
    async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        hello = await session.initialize()
        assert hello.serverInfo.name == "coracle", hello
        assert hello.instructions, hello
        await tools(session)
        await refusals(session)
        if part == "all":
            await work(session)
            await diff(program)


asyncio.run(main(*sys.argv[1:]))
