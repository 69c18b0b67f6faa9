"""The time of a command over an open connection.

    python latency.py 1000

IMAGE and ENGINE are optional.
"""

import os
import statistics
import sys
import time

import coracle.sync


def main(count):
    image = {"image": os.environ["IMAGE"]} if "IMAGE" in os.environ else {}
    client = coracle.sync.Client(engine=os.environ.get("ENGINE"))
    with client, coracle.sync.Container(client, mount_cwd=False, **image) as container:
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            container.exec(["true"])
            times.append((time.perf_counter() - begun) * 1000)
    times.sort()
    print(f"exec: median {statistics.median(times):.2f} ms, 99th percentile {times[int(count * 0.99)]:.2f} ms")


main(int(sys.argv[1]))
