"""What the Python package does where a request, an event or the program is not as it should be.

connection.py PROGRAM: PROGRAM is `scripted_serve.py`, the program in CORACLE_BIN is the real one. Ends with 0 if
everything was as it should be.
"""

import asyncio
import contextlib
import faulthandler
import os
import pickle
import sys
import tempfile
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
        client.call("steps", lambda _: answers.append(client.call("state")))
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
        while not client.call("state").cancelled:
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
        while not (await client.call("state")).cancelled:
            await asyncio.sleep(0.01)


def a_stream_holds_no_more_than_its_window():
    with coracle.sync.Client(program=SCRIPTED) as client:
        c = coracle.sync.Container.attach("c", client)
        stream = c.stream("flood")
        for _ in range(3):
            assert client.call("state").printed == 64
        assert sum(1 for _ in stream) == 1000
        # A program that sends more than it may ends the connection. Nothing is taken until all of it has arrived.
        stream = c.stream("overflow")
        with contextlib.suppress(coracle.ConnectionClosed):
            client.call("state")
        assert "more than 64 events wait" in fails(coracle.ConnectionClosed, lambda: list(stream)).message


async def a_stream_of_coroutines_holds_no_more_than_its_window():
    async with coracle.Client(program=SCRIPTED) as client:
        stream = coracle.Container.attach("c", client).stream("flood")
        for _ in range(3):
            assert (await client.call("state")).printed == 64
        assert len([chunk async for chunk in stream]) == 1000
        assert "ended" in repr(stream)


def ends_of_blocks():
    for fields, is_removed in [({}, True), ({"if_exists": "reuse"}, False), ({"persistent": True}, False)]:
        with coracle.sync.Client(program=SCRIPTED) as client:
            with coracle.sync.Container(client, **fields):
                pass
            assert ("destroy" in client.call("state").calls) == is_removed, fields


def errors_by_their_class():
    """They pass through pools of processes, too."""
    with coracle.sync.Client() as client:
        missing = fails(coracle.NotFound, lambda: coracle.sync.Container.attach("nobody", client).exec("true"))
        assert missing.code == "not_found", missing
        assert fails(coracle.InvalidInput, lambda: client.call("list", field=1)).code == "unknown_field"
        assert "Client" in repr(client) and "nobody" in repr(coracle.sync.Container.attach("nobody", client))
    closed = fails(coracle.ConnectionClosed, lambda: client.call("list"))
    failed = coracle.CommandFailed(coracle.Result(exit_code=3, stdout="x"))
    for error in [missing, closed, failed]:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and again.hint == error.hint, again
    assert pickle.loads(pickle.dumps(failed)).result.exit_code == 3
    assert coracle.__version__ == coracle.sync.__version__ != ""
    classes = {
        "image_not_found": coracle.NotFound,
        "unknown_field": coracle.InvalidInput,
        "policy_denied": coracle.PolicyDenied,
        "name_taken": coracle.Conflict,
        "busy": coracle.Busy,
        "limit_reached": coracle.LimitReached,
        "timed_out": coracle.TimedOut,
        "engine_failed": coracle.EngineFailed,
        "of_a_later_version": coracle.Error,
    }
    with coracle.sync.Client(program=SCRIPTED) as client:
        for code, kind in classes.items():
            error = fails(coracle.Error, lambda: client.call("fails", code=code))
            assert type(error) is kind and error.code == code, error


def errors_of_a_block_and_of_its_end():
    with coracle.sync.Client(program=SCRIPTED, env={**os.environ, "STUCK": "1"}) as client:

        def block(error):
            with coracle.sync.Container(client):
                if error:
                    raise error

        assert fails(coracle.Error, lambda: block(None)).code == "save_failed"
        kept = fails(ZeroDivisionError, lambda: block(ZeroDivisionError("of the block")))
        assert "could not be removed: save_failed" in kept.__notes__[0], kept.__notes__


def settings_and_standard_error():
    """The program's own standard error has no lines of ours, and keys of the configuration come from the client."""
    with tempfile.TemporaryFile() as told:
        saved = os.dup(2)
        os.dup2(told.fileno(), 2)
        try:
            with coracle.sync.Client(settings={"log": {"level": "info"}}) as client:
                assert client.list().success
            with coracle.sync.Client(settings={"max_container": 1}) as client:
                wrong = fails(coracle.Error, lambda: client.list())
        finally:
            os.dup2(saved, 2)
        told.seek(0)
        assert told.read() == b"", told.read()
        assert wrong.code == "config_invalid" and "max_container" in wrong.message, wrong


async def a_slow_program_holds_up_no_event_loop():
    """Neither its start nor a line that it does not read."""
    slow = f"{os.path.dirname(os.path.abspath(SCRIPTED))}/slow-serve"
    with open(slow, "w") as file:
        file.write(f"#!/bin/sh\nread go <slow-go\nexec '{SCRIPTED}'\n")
    os.chmod(slow, 0o755)
    os.mkfifo("slow-go")
    async with coracle.Client(program=slow) as client:
        call = asyncio.create_task(client.call("list", field="x" * (4 << 20)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not call.done()
        with open("slow-go", "w") as go:
            go.write("go\n")
        assert (await call).success


def ends_of_the_program():
    for operation, why in [("end", "exit code 7"), ("nonsense", "cannot be read")]:
        with coracle.sync.Client(program=SCRIPTED) as client:
            for it in [operation, "state"]:
                error = fails(coracle.ConnectionClosed, lambda: client.call(it))
                assert why in error.message and error.hint, error
    os.environ["CORACLE_BIN"] = SCRIPTED
    client = coracle.sync.default_client()
    fails(coracle.ConnectionClosed, lambda: client.call("end"))
    assert coracle.sync.default_client().call("state").calls == ["state"]


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
a_stream_holds_no_more_than_its_window()
asyncio.run(a_stream_of_coroutines_holds_no_more_than_its_window())
ends_of_blocks()
errors_by_their_class()
errors_of_a_block_and_of_its_end()
settings_and_standard_error()
asyncio.run(a_slow_program_holds_up_no_event_loop())
ends_of_the_program()
asyncio.run(adapters())
