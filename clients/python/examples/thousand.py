"""Many containers of one client, all there at once: created, used and removed.

    python thousand.py 1000

IMAGE and ENGINE are optional. `max_containers` and `max_containers_total` of the configuration have to allow as many.
"""

import asyncio
import os
import sys
import time

import coracle

#: Containers that are created at once.
AT_ONCE = 4


async def timed(name, calls):
    begun = time.monotonic()
    results = await asyncio.gather(*calls)
    print(f"{name}: {time.monotonic() - begun:.2f} s")
    return results


async def main(count):
    image = {"image": os.environ["IMAGE"]} if "IMAGE" in os.environ else {}
    turn = asyncio.Semaphore(AT_ONCE)
    async with coracle.Client(engine=os.environ.get("ENGINE")) as client:

        async def create():
            async with turn:
                return await coracle.Container(client, mount_cwd=False, network="none", **image).create()

        containers = await timed("create", [create() for _ in range(count)])
        await timed("write a file", [it.write("answer", it.name) for it in containers])
        results = await timed("read it by a command", [it.exec(["cat", "answer"]) for it in containers])
        right = sum(result.stdout == it.name for it, result in zip(containers, results))
        await timed("destroy", [it.destroy() for it in containers])
    print(f"{right} of {count} answered what was written")
    return 0 if right == count else 1


sys.exit(asyncio.run(main(int(sys.argv[1]))))
