"""The operations on containers through the Python package, with coroutines and without.

contract.py IMAGE LABEL uses the program in CORACLE_BIN. LABEL is `NAME=VALUE`. Ends with 0 if everything was as it should be.
"""

import asyncio
import os
import pathlib
import sys
import time

import coracle
import coracle.sync

IMAGE = sys.argv[1]
LABELS = dict([sys.argv[2].split("=", 1)])
FIELDS = {"image": IMAGE, "mount_cwd": False, "labels": LABELS}


async def failure(code, awaitable):
    try:
        await awaitable
    except coracle.Error as error:
        assert error.code == code and error.hint, error
        return error
    raise AssertionError(f"no failure, but {code} was expected")


async def commands(c):
    r = await c.exec("echo out; echo err >&2; exit 3")
    assert (r.exit_code, r.stdout, r.stderr, r["exit_code"]) == (3, "out\n", "err\n", 3), r
    assert (await c.exec(["cat"], stdin="typed")).stdout == "typed"
    assert (await c.run("echo $A", env={"A": "b"})).stdout == "b\n"
    try:
        await c.run("exit 4")
        raise AssertionError("`run` let a failed command pass")
    except coracle.CommandFailed as error:
        assert error.result.exit_code == 4
    assert (await c.exec("sleep 60", timeout=0.3)).timed_out
    await failure("unknown_field", c.client.call("exec", container=c.name, comand="ls"))
    await failure("not_found", c.client.exec("no-such-container", "ls"))


async def streams(c):
    stream = c.stream("echo one; echo two >&2; printf '\\377\\303'; sleep 0.2; printf '\\251'")
    chunks = [chunk async for chunk in stream]
    of = lambda name: b"".join(it.data for it in chunks if it.stream == name)
    assert (of("stdout"), of("stderr")) == (b"one\n\xff\xc3\xa9", b"two\n"), chunks
    assert stream.result.exit_code == 0
    # The first piece comes while the command runs: the end is up to this side.
    async with c.stream("echo begun; exec sleep 600") as stream:
        async for chunk in stream:
            assert chunk.text == "begun\n"
            break
    await nothing_runs(c)


async def a_slow_reader_slows_its_command_and_nothing_else(c):
    script = "i=0; while :; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > /tmp/n.new; mv /tmp/n.new /tmp/n; done"

    async def printed():
        return int((await c.exec("cat /tmp/n || echo 0")).stdout)

    async with c.stream(script) as stream:
        seen, give_up = [-1], time.monotonic() + 30
        while len(seen) < 8 or seen[-1] == 0 or len(set(seen[-8:])) > 1:
            assert time.monotonic() < give_up, f"the command goes on: {seen[-3:]} times 64 KiB"
            seen.append(await printed())
        assert seen[-1] < 512, seen
        taken = 0
        async for chunk in stream:
            taken += len(chunk.data)
            if taken > (seen[-1] + 64) * 65536:
                break
        assert await printed() > seen[-1]
    await nothing_runs(c)


async def nothing_runs(c):
    give_up = time.monotonic() + 30
    while any(it.running for it in (await c.jobs()).jobs):
        assert time.monotonic() < give_up, "the command runs still"
        await asyncio.sleep(0.05)


async def jobs(c):
    job = await c.start("echo begun; sleep 600")
    assert (await job.wait(until="regex", pattern="begun")).reason == "regex"
    assert (await job.poll()).running
    await job.cancel()
    assert not (await job.poll()).running
    job = await c.start("echo done")
    assert (await job.wait(timeout=30)).exit_code == 0
    assert (await job.read()).data == "done\n"
    assert (await c.job(job.id).poll()).state == "exited"


async def files(c):
    await c.write("a/one.txt", "hello\n")
    assert (await c.exec("cat a/one.txt")).stdout == "hello\n"
    data = bytes(range(256)) * 100_000
    await c.write("a/one.txt", data)
    assert await c.read("a/one.txt") == data
    await c.write("two.txt", "red green\n")
    await c.edit("two.txt", "green", "blue")
    assert await c.read_text("two.txt") == "red blue\n"
    await c.write("empty", b"")
    assert await c.read("empty") == b""
    assert [it.path for it in (await c.glob("**/*.txt")).value] == ["a/one.txt", "two.txt"]
    assert [it.line for it in (await c.grep("blue")).value] == ["red blue"]
    assert {it.path for it in (await c.ls()).value} == {"a", "two.txt", "empty"}
    await failure("file_not_found", c.read("nowhere"))
    for path in ["/tmp/out side/one", "~/of-the-home"]:
        for content in [data, b"", b"short"]:
            await c.write(path, content, executable=True)
            assert await c.read(path) == content, path
    assert (await c.run("test -x ~/of-the-home; stat -c %s ~/of-the-home")).stdout == "5\n"
    try:
        await c.read("/tmp/nowhere")
        raise AssertionError("it was read")
    except coracle.NotFound as error:
        assert error.code == "file_not_found", error
    pathlib.Path("of-the-host.txt").write_text("host\n")
    await c.copy_in(host_path="of-the-host.txt", container_path="three.txt")
    await c.run("test \"$(cat three.txt)\" = host && echo back > three.txt")
    await c.copy_out(host_path="back.txt", container_path="three.txt")
    assert pathlib.Path("back.txt").read_text() == "back\n"


async def copies(c):
    assert c.client is not None
    fork = await c.fork_container()
    async with fork:
        assert await fork.read_text("two.txt") == "red blue\n"
        await fork.write("two.txt", "of the fork\n")
        names = {it.name for it in (await c.client.list()).containers}
        assert {c.name, fork.name} <= names, names
    assert await c.read_text("two.txt") == "red blue\n"
    assert fork.name not in {it.name for it in (await c.client.list()).containers}
    snapshot = f"kept-{c.name}"
    assert (await c.snapshot(name=snapshot)).snapshot == snapshot
    assert snapshot in {it.name for it in (await c.client.snapshots()).snapshots}
    restored = await c.client.restore(name=f"{c.name}-again", snapshot=snapshot, labels=LABELS, mount_cwd=False)
    assert await coracle.Container.attach(restored.container, c.client).read_text("two.txt") == "red blue\n"
    await c.client.destroy(restored.container)
    await c.client.snapshot_delete(name=snapshot)


async def cancelled(c):
    task = asyncio.create_task(c.exec("echo begun > begun; exec sleep 600"))
    while (await c.exec("test -e begun")).exit_code != 0:
        await asyncio.sleep(0.02)
    task.cancel()
    try:
        await task
        raise AssertionError("the task was not cancelled")
    except asyncio.CancelledError:
        pass
    await nothing_runs(c)


async def together(client):
    """Calls do not wait for each other."""
    async with coracle.Container(client, **FIELDS) as c:
        slow = asyncio.create_task(c.exec("until test -e go; do sleep 0.05; done"))
        await c.run("touch go")
        assert (await slow).exit_code == 0
        results = await asyncio.gather(*(c.exec(f"echo {n}") for n in range(50)))
        assert [it.stdout for it in results] == [f"{n}\n" for n in range(50)]


async def sessions():
    """A client of the same session has its containers."""
    one = coracle.Client(session="shared")
    try:
        c = await coracle.Container(one, **FIELDS, persistent=True).create()
        async with coracle.Client(session="shared") as two:
            assert c.name in {it.name for it in (await two.list()).containers}
            assert (await coracle.Container.attach(c.name, two).run("echo here")).stdout == "here\n"
        # Another one's end leaves it: it is to outlive its session.
        assert (await c.run("echo here")).stdout == "here\n"
        assert (await c.destroy()).detail
        assert (await c.destroy()).already_gone
    finally:
        await one.close()
    await failure_of_closed(one)


async def failure_of_closed(client):
    try:
        await client.list()
        raise AssertionError("a closed client took a call")
    except coracle.ConnectionClosed:
        pass


async def with_coroutines():
    steps = []
    async with coracle.Client() as client:
        container = coracle.Container(client, on_event=lambda it: steps.append(it["event"]), **FIELDS)
        async with container as c:
            assert c.created.container == c.name
            assert "step" in steps or "progress" in steps, steps
            await commands(c)
            await streams(c)
            await a_slow_reader_slows_its_command_and_nothing_else(c)
            await jobs(c)
            await files(c)
            await copies(c)
            await cancelled(c)
        assert (await client.list()).count == 0
        await together(client)
        left = await coracle.Container(client, **FIELDS).create()
    # The end of a session removes what it made.
    async with coracle.Client() as client:
        assert left.name not in {it.name for it in (await client.list()).containers}
    await sessions()


def without_coroutines():
    with coracle.sync.Client() as client, coracle.sync.Container(client, **FIELDS) as c:
        assert c.exec("echo hi").stdout == "hi\n"
        stream = c.stream("echo 1; echo 2")
        assert b"".join(it.data for it in stream) == b"1\n2\n"
        assert stream.result.exit_code == 0
        job = c.start("echo job")
        assert job.wait().reason == "exit"
        c.write("f", "text")
        assert c.read("f") == b"text"
        try:
            client.exec("no-such-container", "ls")
            raise AssertionError("no failure")
        except coracle.Error as error:
            assert error.code == "not_found" and error.hint
        with c.fork_container() as fork:
            assert fork.read_text("f") == "text"


os.environ["CORACLE_BIN"]
asyncio.run(with_coroutines())
without_coroutines()
