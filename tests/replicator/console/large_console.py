"""A console over 5,000 partitions in memory, as a process of its own: python -m tests.replicator.console.large_console

Prints one line of JSON: its address, and its resident bytes before the console was made. Everything is real but the
cluster and the bucket. Ends when its standard input does.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from infra.runtime.lifecycle import SystemClock
from replicator.console.access import rules
from replicator.console.server import ConsoleService
from tests.replicator.console.console_world import ConsoleWorld

TOPICS, PARTITIONS = 125, 20  # of each flow
REFRESHES = 3  # before it is served: the next one waits three times as long as one takes


def resident_bytes(pid: int | str = "self", name: str = "VmRSS") -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"/proc/{pid}/status has no {name}")


def main() -> None:
    world = ConsoleWorld()
    world.clock.at = SystemClock().now()
    for n in range(TOPICS):
        world.archived(f"mine-{n:04d}", partitions=PARTITIONS, stored=90, end=100)
        world.delivered(f"theirs-{n:04d}", partitions=PARTITIONS, stored=90, at=60)
    gc.collect()
    before = resident_bytes()
    service = ConsoleService(
        replace(world.reader(), clock=SystemClock()),
        listen=("127.0.0.1", 0),
        rules=rules("127.0.0.1", token=None),
        interval=timedelta(seconds=1),
        clock=SystemClock(),
    )
    for _ in range(REFRESHES):
        service.live.refresh()
    service.start()
    print(json.dumps({"address": service.address.rstrip("/"), "before": before}), flush=True)
    sys.stdin.read()
    service.stop()
    service.join()


if __name__ == "__main__":
    main()
