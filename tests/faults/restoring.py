"""A restore in a process of its own, which is killed and given again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.kafka_target import target_records
from tests.faults.victim import Orders
from tests.replicator.restore.large import rows
from tests.replicator.restore.place import Place

PARTITIONS, SEGMENTS = 2, 3
SLOWLY = "3MiB"  # a second: so that there are many rounds
SLOWEST = "512KiB"  # so that it still runs when a reader has seen its first records
SLOWER = "1MiB"  # a second: a process spends most of its time in rounds


@dataclass
class Restoring:
    """One restore of one archive, given again and again."""

    place: Place
    topic: str
    orders: Orders
    rate: str = SLOWLY
    options: Sequence[str] = ()  # of each of them

    @property
    def command(self) -> list[str]:
        return [
            "restore",
            "orders",
            "--rename",
            f"orders={self.topic}",
            "--max-rate",
            self.rate,
            "--json",
            *self.options,
        ]

    def start(self, *options: str) -> subprocess.Popen[str]:
        module = [sys.executable, "-m", "tests.faults.victim"]
        return subprocess.Popen(
            [*module, *self.command, *options, "--config", str(self.place.file)],
            env={**os.environ, **self.orders.environment, "SECRET": "test"},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, *options: str) -> None:
        with self.start(*options) as process:
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors + output

    def killed_after(self, seconds: float, *options: str) -> bool:
        """Or it ended by itself before."""
        with self.start(*options) as process:
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        return process.returncode == -signal.SIGKILL

    def restored(self) -> int:
        """Records that consumers see by now."""
        if self.topic not in self.place.cluster.topics():
            return 0
        return sum(len(self.place.restored(self.topic, partition)) for partition in range(PARTITIONS))

    def judge(self) -> None:
        for partition in range(PARTITIONS):
            wanted = target_records(rows(0, SEGMENTS))
            found = self.place.restored(self.topic, partition)
            assert len(found) == len(wanted)
            assert found == wanted
