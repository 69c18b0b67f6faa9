"""What the Python package does where a request, an event or the program is not as it should be.

connection.py PROGRAM: PROGRAM is `scripted_serve.py`, the program in CORACLE_BIN is the real one. Ends with 0 if
everything was as it should be.
"""

import asyncio
import faulthandler
import os
import sys
import time

import coracle
import coracle.adapters
import coracle.sync

# In place of a call that waits for ever.
faulthandler.dump_traceback_later(60, exit=True)
SCRIPTED = sys.argv[1]


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def requests_that_cannot_be_sent():
    deep = []
    for _ in range(200):
        deep = [deep]
    with coracle.sync.Client() as client:
        for value in ["x" * (9 << 20), "\udcff", float("nan"), object(), {1: {2, 3}}]:
            error = fails(coracle.Error, lambda: client.call("list", field=value))
            assert error.code == "invalid_input" and error.hint, error
        # The program refuses this one, under its id.
        assert fails(coracle.Error, lambda: client.call("list", field=deep)).code == "invalid_json"
        assert client.list().success


def listeners():
    def first(event):
        raise KeyError(event["event"])

    with coracle.sync.Client(program=SCRIPTED) as client:
        fails(KeyError, lambda: client.call("steps", first))
        answers = []
        # A listener may make calls.
        client.call("steps", lambda _: answers.append(client.call("told")))
        assert len(answers) == 2 and answers[1].success, answers


async def listeners_of_coroutines():
    def first(_):
        raise KeyError("step")

    async with coracle.Client(program=SCRIPTED) as client:
        try:
            await client.call("steps", first)
            raise AssertionError("no KeyError")
        except KeyError:
            pass
        tasks = []
        await client.call("steps", lambda _: tasks.append(asyncio.current_task()))
        assert tasks == [asyncio.current_task()] * 2


def streams():
    with coracle.sync.Client(program=SCRIPTED) as client:
        c = coracle.sync.Container.attach("c", client)
        for chunk in c.stream("run"):
            assert chunk.text == "begun\n"
            break
        give_up = time.monotonic() + 30
        while not client.call("told").cancelled:
            assert time.monotonic() < give_up, "the command runs still"
            time.sleep(0.01)
        failed = c.stream("fail")
        for _ in range(2):
            fails(coracle.Error, lambda: list(failed))
        assert fails(coracle.Error, lambda: failed.result).code == "container_stopped"


async def streams_of_coroutines():
    async with coracle.Client(program=SCRIPTED) as client:
        async for _ in coracle.Container.attach("c", client).stream("run"):
            break
        while not (await client.call("told")).cancelled:
            await asyncio.sleep(0.01)


def ends_of_blocks():
    for fields, is_removed in [({}, True), ({"if_exists": "reuse"}, False), ({"persistent": True}, False)]:
        with coracle.sync.Client(program=SCRIPTED) as client:
            with coracle.sync.Container(client, **fields):
                pass
            assert ("destroy" in client.call("told").calls) == is_removed, fields


def ends_of_the_program():
    for operation, why in [("end", "exit code 7"), ("nonsense", "cannot be read")]:
        with coracle.sync.Client(program=SCRIPTED) as client:
            for it in [operation, "told"]:
                error = fails(coracle.ConnectionClosed, lambda: client.call(it))
                assert why in error.message and error.hint, error
    os.environ["CORACLE_BIN"] = SCRIPTED
    client = coracle.sync.default_client()
    fails(coracle.ConnectionClosed, lambda: client.call("end"))
    assert coracle.sync.default_client().call("told").calls == ["told"]


async def adapters():
    async with coracle.Client(program=SCRIPTED) as client:
        shell = coracle.adapters.functions(coracle.Container.attach("c", client))[0]
        assert (await shell("fail")).startswith("container_stopped")
        await client.close()
        try:
            await shell("fail")
            raise AssertionError("no ConnectionClosed")
        except coracle.ConnectionClosed as error:
            assert "the client is closed" in error.message, error


requests_that_cannot_be_sent()
listeners()
asyncio.run(listeners_of_coroutines())
streams()
asyncio.run(streams_of_coroutines())
ends_of_blocks()
ends_of_the_program()
asyncio.run(adapters())
