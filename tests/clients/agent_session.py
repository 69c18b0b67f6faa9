"""One session of an agent, by the protocol's own Python library: progress and cancellation included.

agent_session.py PROGRAM [WORD ...] starts the server. Ends with 0 if everything was as it should be.
"""

import asyncio
import os
import sys
import time

from jsonschema import Draft202012Validator
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def called(session, name, arguments, **more):
    """The text of a call that was carried out. What clients show a model in its place is not there."""
    result = await session.call_tool(name, arguments, **more)
    assert not result.isError and result.structuredContent is None, (name, result)
    return result.content[0].text


async def tools(session):
    """A validator takes every schema, and what the server takes."""
    schemas = {it.name: it.inputSchema for it in (await session.list_tools()).tools}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    shell = Draft202012Validator(schemas["shell"])
    assert shell.is_valid({"command": "ls"}) and not shell.is_valid({})


async def one_machine(session):
    """The first call makes the machine; the next one is on the same."""
    await called(session, "write_file", {"path": "note.txt", "content": "of the first call\n"})
    read = await called(session, "containers", {"operation": "exec", "command": ["cat", "note.txt"]})
    assert read == "of the first call\n", read


async def progress(session):
    """What is printed comes while the command runs: its end is up to this side."""
    messages, begun = [], asyncio.Event()

    # The library reads nothing more until this returns.
    async def told(_progress, _total, message):
        messages.append(message)
        begun.set()

    async def goes():
        await begun.wait()
        await called(session, "write_file", {"path": "go", "content": ""})

    command = "echo begun; until test -e go; do sleep 0.05; done; echo done"
    shell = called(session, "shell", {"command": command}, progress_callback=told)
    answer, _ = await asyncio.gather(shell, goes())
    assert "begun" in messages and answer == "begun\ndone\n", (messages, answer)


async def cancellation(session):
    """The process in the container ends with the request."""
    begun = asyncio.Event()

    async def told(_progress, _total, _message):
        begun.set()

    # The library has no call that cancels: the notification names the request, whose number only it knows.
    number = session._request_id
    arguments = {"command": "echo $$ > id; echo begun; exec sleep 600", "timeout": 600}
    call = asyncio.create_task(session.call_tool("shell", arguments, progress_callback=told))
    await begun.wait()
    params = types.CancelledNotificationParams(requestId=number, reason="the user stops it")
    await session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
    give_up = time.monotonic() + 30
    while await called(session, "shell", {"command": "test -d /proc/$(cat id)"}) == "[exit 0]":
        assert time.monotonic() < give_up, "the command runs still"
        await asyncio.sleep(0.05)
    # A cancelled request is not answered.
    assert not call.done(), call
    call.cancel()


async def main(program, *words):
    server = StdioServerParameters(command=program, args=list(words), env=dict(os.environ))
    async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        hello = await session.initialize()
        assert hello.serverInfo.name == "coracle" and hello.instructions, hello
        await tools(session)
        await one_machine(session)
        await progress(session)
        await cancellation(session)


asyncio.run(main(*sys.argv[1:]))
