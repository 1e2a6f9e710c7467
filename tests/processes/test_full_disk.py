"""A spool on a disk smaller than what waits to be stored: egress reads no faster than it stores, and loses nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import A
from tests.processes.traffic import EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration

MIB = 1 << 20
PARTITIONS = 6
LARGE = {"max_segment_messages": 1_000_000, "max_segment_size": "100MiB", "max_segment_age": "30s"}
STORED_WITHIN = timedelta(seconds=120)


@contextmanager
def disk(at: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of that size, in memory. Skips the test where it cannot be mounted."""
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(at)]
    mounted = os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("a small disk cannot be mounted here: that takes root, and mount(8)")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def produce(flow: Flow, megabytes: int) -> int:
    """Records that do not compress; how many."""
    random = Random(5)
    drafts = [
        Draft(n % PARTITIONS, b"%d" % n, random.randbytes(10_000), [], EPOCH_MS + n) for n in range(100 * megabytes)
    ]
    produce_all(flow.site.bootstrap(A), flow.topic, drafts)
    return len(drafts)


@pytest.mark.long
@pytest.mark.parametrize(
    ("disk_bytes", "megabytes"),
    [
        pytest.param(12 * MIB, 60, id="12 MiB, less than one segment of each partition"),
        pytest.param(64 * MIB, 200, id="64 MiB, what the budget may take"),
    ],
)
def test_a_small_disk_slows_down_and_loses_nothing(site: Site, disk_bytes: int, megabytes: int) -> None:
    with disk(site.folder / "disk", disk_bytes) as spool, Flow(site, partitions=PARTITIONS) as flow:
        count = produce(flow, megabytes)
        egress = site.egress(
            "egress", {flow.topic: LARGE}, memory_budget="16MiB", spool_dir=str(spool), shutdown_timeout="30s"
        ).start()
        flow.wait_for_archive(STORED_WITHIN)
        site.wait("every record counted", lambda: records(egress) >= count)
        assert records(egress) == count, "a record was stored twice"
        assert egress.metrics().value("egress_rewinds") == 0
        assert egress.metrics().value("egress_pauses") > 0, "the disk was never full: this shows nothing"
        assert egress.readiness()["ready"] is True
        egress.stop()
        flow.judge_archive()
        assert flow.overlaps() == {}


def records(worker: Worker) -> float:
    return worker.metrics().value("egress_records")
