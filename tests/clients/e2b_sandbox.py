"""Programs that use E2B's SDK as it is, with the address and the key in its own variables. Ends with 0 if everything was as it
should be.
"""

import asyncio
import contextlib
import os
import urllib.error
import urllib.request

from e2b import (
    AsyncSandbox, AuthenticationException, CommandExitException, FileType, InvalidArgumentException, NotFoundException,
    PtySize, Sandbox, SandboxException, SandboxQuery, TimeoutException,
)


@contextlib.contextmanager
def raises(kind):
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def commands(box):
    done = box.commands.run("echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0), done
    try:
        box.commands.run("echo before; exit 7")
    except CommandExitException as err:
        assert (err.exit_code, err.stdout) == (7, "before\n"), err
    else:
        raise AssertionError("an exit code of 7 is an error")
    pieces = []
    box.commands.run("for it in 1 2 3; do echo $it; done", on_stdout=pieces.append)
    assert "".join(pieces) == "1\n2\n3\n", pieces
    assert box.commands.run('echo "$GIVEN $BOX"', envs={"GIVEN": "yes"}).stdout == "yes of the sandbox\n"
    assert box.commands.run("pwd; id -u; echo $HOME").stdout == "/home/user\n1000\n/home/user\n"
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert len(box.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000
    with raises(TimeoutException):
        box.commands.run("sleep 600", timeout=1)
    with raises(InvalidArgumentException):
        box.commands.run("true", cwd="/none")
    with raises(AuthenticationException):
        box.commands.run("true", user="stranger")


def processes(box):
    cat = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(cat.pid, "typed\n")
    box.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "typed\n"
    rests = box.commands.run("sleep 600", background=True)
    assert rests.pid in [it.pid for it in box.commands.list()]
    assert box.commands.connect(rests.pid).pid == rests.pid
    rests.disconnect()
    assert rests.pid in [it.pid for it in box.commands.list()], "it goes on when its reader leaves"
    assert box.commands.kill(rests.pid)
    while rests.pid in [it.pid for it in box.commands.list()]:
        pass
    assert not box.commands.kill(rests.pid), "it is gone"
    with raises(NotFoundException):
        box.commands.send_stdin(999_999, "lost")
    terminal = box.pty.create(PtySize(rows=24, cols=80))
    box.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    box.pty.send_stdin(terminal.pid, b"stty size; exit 0\n")
    seen = []
    terminal.wait(on_pty=lambda it: seen.append(it))
    assert b"30 100" in b"".join(seen), seen


def files(box):
    written = box.files.write("notes/a.txt", "one\n")
    assert written.name == "a.txt" and written.path.endswith("/notes/a.txt"), written
    assert box.files.read("notes/a.txt") == "one\n"
    content = bytes(range(256)) * 5000
    box.files.write("b.bin", content)
    assert box.files.read("b.bin", format="bytes") == content
    assert b"".join(box.files.read("b.bin", format="stream")) == content
    many = [{"path": f"many/{it}.txt", "data": str(it)} for it in range(20)]
    assert len(box.files.write_files(many)) == 20
    box.files.write("many/dir/inside", "")
    order = [it.path.removeprefix("/home/user/many/") for it in box.files.list("many", depth=2)]
    assert order.index("dir") + 1 == order.index("dir/inside"), order
    box.files.remove("many/dir")
    listed = box.files.list("many")
    assert sorted(it.name for it in listed) == sorted(f"{it}.txt" for it in range(20)), listed
    deep = {it.name for it in box.files.list(".", depth=2)}
    assert {"notes", "a.txt", "many"} <= deep, deep
    found = box.files.get_info("notes/a.txt")
    assert (found.size, found.type) == (4, FileType.FILE), found
    assert box.files.make_dir("empty") and not box.files.make_dir("empty")
    assert box.files.get_info("empty").type == FileType.DIR
    box.files.rename("notes/a.txt", "moved/b.txt")
    assert not box.files.exists("notes/a.txt") and box.files.read("moved/b.txt") == "one\n"
    box.files.remove("moved")
    assert not box.files.exists("moved")
    for call in [lambda: box.files.read("none"), lambda: box.files.list("none"), lambda: box.files.get_info("none")]:
        with raises(NotFoundException):
            call()
    with raises(InvalidArgumentException):
        box.files.read("many")
    with raises(InvalidArgumentException):
        box.files.list("b.bin")
    assert box.files.write("~/../user/c.txt", "x").path == "/home/user/c.txt"
    assert (found.owner, found.group, found.permissions) == ("user", "user", "-rw-r--r--"), found
    box.commands.run("ln -s notes link; ln -s none nowhere")
    link = box.files.get_info("link")
    assert (link.type, link.symlink_target) == (FileType.DIR, "/home/user/notes"), link
    box.files.remove("link")
    assert box.files.exists("notes")
    # What is outside is that of the container, and not of this machine.
    assert not box.files.exists("../" * 30 + os.environ["ONLY_HERE"])


def signed(box):
    box.files.write("open.txt", "signed")
    address = box.download_url("open.txt")
    with urllib.request.urlopen(address) as response:
        assert response.read() == b"signed"
    with raises(urllib.error.HTTPError):
        urllib.request.urlopen(address.replace("open.txt", "b.bin"))
    with raises(urllib.error.HTTPError):
        urllib.request.urlopen(box.download_url("open.txt", use_signature_expiration=-10))


def snapshots(box):
    snapshot = box.create_snapshot()
    assert snapshot.snapshot_id in [it.snapshot_id for it in Sandbox.list_snapshots(sandbox_id=box.sandbox_id).next_items()]
    copy = Sandbox.create(snapshot.snapshot_id, timeout=120)
    assert copy.files.read("open.txt") == "signed"
    copy.files.write("open.txt", "changed")
    assert box.files.read("open.txt") == "signed"
    assert copy.kill() and Sandbox.delete_snapshot(snapshot.snapshot_id)
    assert not Sandbox.delete_snapshot(snapshot.snapshot_id)


def control(box):
    info = box.get_info()
    assert (info.sandbox_id, info.metadata) == (box.sandbox_id, {"part": "control"}), info
    assert box.is_running()
    query = SandboxQuery(metadata={"part": "control"})
    listed = Sandbox.list(query=query).next_items()
    assert [it.sandbox_id for it in listed] == [box.sandbox_id], listed
    assert Sandbox.list(query=SandboxQuery(metadata={"part": "none"})).next_items() == []
    before = info.end_at
    box.set_timeout(1000)
    assert box.get_info().end_at > before
    again = Sandbox.connect(box.sandbox_id)
    assert again.commands.run("cat b.bin | wc -c").stdout.strip() == str(256 * 5000)
    with raises(NotFoundException):
        Sandbox.connect("inone")
    with raises(SandboxException):
        Sandbox.create(mcp={"none": {}})
    with raises(AuthenticationException):
        Sandbox.list(api_key="e2b_" + "0" * 40).next_items()
    assert box.kill() and not box.kill()
    assert not box.is_running()
    with raises(SandboxException):
        box.commands.run("true")


async def together():
    boxes = await asyncio.gather(*(AsyncSandbox.create(timeout=120) for _ in range(4)))
    done = await asyncio.gather(*(it.commands.run(f"echo {at}") for at, it in enumerate(boxes)))
    assert [it.stdout for it in done] == [f"{at}\n" for at in range(4)], done
    await boxes[0].files.write("a", "x")
    assert await boxes[0].files.read("a") == "x" and not await boxes[1].files.exists("a")
    handle = await boxes[2].commands.run("sleep 600", background=True)
    assert await handle.kill()
    await asyncio.gather(*(it.kill() for it in boxes))


def over():
    box = Sandbox.create(timeout=1)
    while box.is_running():
        pass
    with raises(NotFoundException):
        Sandbox.get_info(box.sandbox_id)


box = Sandbox.create(timeout=300, metadata={"part": "control"}, envs={"BOX": "of the sandbox"})
for part in [commands, processes, files, signed, snapshots, control]:
    print(part.__name__, flush=True)
    part(box)
asyncio.run(together())
over()
print("all of it works")
