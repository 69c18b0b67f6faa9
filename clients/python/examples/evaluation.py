"""An evaluation: the same task in many containers at once.

    python evaluation.py 100

Each attempt gets a fork of one prepared container. IMAGE and ENGINE are optional.
"""

import asyncio
import os
import sys
import time

import coracle


async def attempt(prepared, forking, number):
    """One attempt: a candidate's answer, and whether it passes the check."""
    # A container is forked by one call at a time; another would be `busy`.
    async with forking:
        fork = await prepared.fork_container()
    async with fork as container:
        await container.write("answer", str(number * number))
        result = await container.exec(["sh", "check.sh", str(number)])
        return result.exit_code == 0


async def main(count):
    image = {"image": os.environ["IMAGE"]} if "IMAGE" in os.environ else {}
    async with coracle.Client(engine=os.environ.get("ENGINE")) as client:
        async with coracle.Container(client, mount_cwd=False, **image) as prepared:
            await prepared.write("check.sh", 'test "$(cat answer)" = $(($1 * $1))\n')
            begun = time.monotonic()
            forking = asyncio.Lock()
            passed = await asyncio.gather(*(attempt(prepared, forking, number) for number in range(count)))
    print(f"{sum(passed)} of {count} passed in {time.monotonic() - begun:.1f} s")
    return 0 if all(passed) else 1


sys.exit(asyncio.run(main(int(sys.argv[1]))))
