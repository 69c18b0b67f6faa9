"""What the Python client measures: many containers at once on one engine, and one command after another on several.

clients_bench.py OUT DIR COUNT CALLS ENGINE[=IMAGE] ... writes OUT as JSON. DIR is the home of a configuration that allows COUNT
containers; the containers are made on the first engine.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import coracle
import coracle.sync

#: Containers that are created at once.
AT_ONCE = 4


def server():
    """The process of `coracle serve` that this one has started."""
    # The thread that started it has it as its child.
    children = [it.read_text().split() for it in Path("/proc/self/task").glob("*/children")]
    return next(it for of_thread in children for it in of_thread if b"serve" in Path(f"/proc/{it}/cmdline").read_bytes())


def memory(process, field):
    """In KiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(it for it in status.splitlines() if it.startswith(field)).split()[1])


def processor(process):
    """Seconds in user mode and in the kernel."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(it) / os.sysconf("SC_CLK_TCK") for it in fields[11:13]]


async def timed(calls):
    """Seconds, and what came of each call."""
    begun = time.monotonic()
    results = await asyncio.gather(*calls, return_exceptions=True)
    return time.monotonic() - begun, results


async def many(engine, count):
    turn, containers = asyncio.Semaphore(AT_ONCE), []
    async with coracle.Client(engine=engine) as client:

        async def create():
            async with turn:
                containers.append(await coracle.Container(client, mount_cwd=False, network="none").create())

        # The image is there before the clock runs.
        await (await coracle.Container(client, mount_cwd=False, network="none").create()).destroy()
        process, steps = server(), []

        async def step(name, calls, is_right=lambda result: True):
            seconds, results = await timed(calls)
            failures = [it for it in results if isinstance(it, Exception) or not is_right(it)]
            steps.append({"name": name, "seconds": seconds, "failures": len(failures)})
            if failures:
                print(f"{name}: {failures[0]!r}", file=sys.stderr)
            return results

        rest = memory(process, "VmRSS")
        await step("create", [create() for _ in range(count)])
        await step("write", [it.write("answer", it.name) for it in containers])
        read = [it.exec(["cat", "answer"]) for it in containers]
        results = await step("read", read)
        wrong = sum(getattr(it, "stdout", None) != c.name for it, c in zip(results, containers))
        steps[-1]["failures"] = wrong
        await step("again", [it.exec(["true"]) for it in containers])
        used = {
            "rest_kib": rest,
            "full_kib": memory(process, "VmRSS"),
            "open_files": len(os.listdir(f"/proc/{process}/fd")),
            "threads": memory(process, "Threads"),
        }
        await step("destroy", [it.destroy() for it in containers])
        used |= {"peak_kib": memory(process, "VmHWM"), "processor": processor(process)}
    return {"engine": engine, "count": count, "steps": steps, "server": used, "client_kib": memory("self", "VmHWM")}


def own_program(engine, container, calls):
    """Times of the engine's own program, in milliseconds; none where it has none."""
    words = ["kubectl", "exec", container, "--", "true"] if engine == "kubernetes" else [engine, "exec", container, "true"]
    if shutil.which(words[0]) is None:
        return []
    return [elapsed(lambda: subprocess.run(words, check=True)) for _ in range(calls)]


def elapsed(act):
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


def one(engine, calls):
    engine, _, image = engine.partition("=")
    options = {"mount_cwd": False} | ({"image": image} if image else {})
    with coracle.sync.Client(engine=engine) as client, coracle.sync.Container(client, **options) as container:
        container.exec(["true"])
        before = processor(server())
        ours = [elapsed(lambda: container.exec(["true"])) for _ in range(calls)]
        spent = [(after - before) * 1000 / calls for before, after in zip(before, processor(server()))]
        theirs = own_program(engine, container.name, max(calls // 20, 20))
    return {"engine": engine, "ms": sorted(ours), "own_ms": sorted(theirs), "processor_ms": spent}


def main(out, home, count, calls, *engines):
    os.environ["HOME"] = home
    os.chdir(home)
    measured = {"many": asyncio.run(many(engines[0], int(count))), "calls": [one(it, int(calls)) for it in engines]}
    Path(out).write_text(json.dumps(measured))


main(*sys.argv[1:])
