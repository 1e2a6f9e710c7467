"""A restore while egress writes, and compaction and gc merge and delete what it is going to read: it delivers exactly
what it planned.

plan    0 ……………………………… end        the offsets that its first lines print, of each partition
read    small segments ──> merged ones: the small ones are deleted before it comes to them
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.processes import judge
from tests.processes.flow import RUN, Flow
from tests.processes.harness import PREFIX, ROOT, A, B, to_toml
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(seconds=120)
PARTITIONS = 3
SEED = 23
VALUE = b"v" * 200
RATE = "10KiB"  # a second: the 380 kB that are planned take several runs of compaction


def test_what_is_planned_is_restored_whatever_is_merged_and_deleted_meanwhile(site: Site) -> None:
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 50, "max_segment_age": "4s"}}).start()
        drafts = [Draft(n % PARTITIONS, b"k", VALUE + b"%d" % n, (), EPOCH_MS + n) for n in range(1800)]
        flow.produce(drafts)
        flow.wait_for_archive(PATIENCE)
        before = segments(site, flow)
        copy = f"{flow.topic}.restored"
        runs: list[int] = []
        with flow.traffic(seed=SEED, most=20) as traffic:
            restore = Restoring(site, flow, copy)
            try:
                planned = restore.plan()
                while restore.is_running:
                    runs.append(compact_and_collect(site, len(runs)))
                code = restore.code
            finally:
                restore.end()
            traffic.finish()
        assert code == 0, restore.text()
        assert "vanished" not in restore.text().lower()
        egress.stop()
        gone = before - segments(site, flow)
        print(f"{len(runs)} runs of compaction and gc, {len(gone)} of {len(before)} planned segments deleted meanwhile")
        assert len(runs) > 1, "it ended too soon"
        assert len(gone) > len(before) // 2, "it read what it had planned to read, and nothing else"
        restored = judge.read_topic(site.bootstrap(B), copy, PARTITIONS)
        for partition, log in flow.source().items():
            wanted = [r for o, r in zip(log.offsets, log.records, strict=True) if o <= planned[partition]]
            assert 600 <= len(wanted) < len(log.records), "new records came while it went on"
            judge.judge_target(wanted, restored[partition].records, rewinds=0, run=RUN)
        flow.judge_archive()


class Restoring:
    """The command, of region a's archive into region b."""

    def __init__(self, site: Site, flow: Flow, copy: str) -> None:
        self._site, self._flow = site, flow
        config = site.folder / "restore.toml"
        kafka = {"bootstrap.servers": site.bootstrap(B)}
        config.write_text(to_toml({"region": A, "kafka": kafka, "s3": site.s3()}), encoding="utf-8")
        arguments = ["restore", flow.topic, "--rename", f"{flow.topic}={copy}", "--max-rate", RATE]
        self._out = site.folder / "restore.out"
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "replicator", *arguments, "--config", str(config)],
                cwd=ROOT,
                env=site.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def plan(self) -> Mapping[int, int]:
        """The last offset that it is going to restore, by partition; once it has printed it."""
        row = re.compile(rf"{A}/{re.escape(self._flow.topic)}/(\d+) .*? 0-(\d+) ")

        def found() -> dict[int, int]:
            return {int(p): int(end) for p, end in row.findall(self.text())}

        self._site.wait("a plan", lambda: len(found()) == PARTITIONS and " objects, " in self.text(), PATIENCE)
        return found()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def text(self) -> str:
        return self._out.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        if self.is_running:
            self._process.kill()
        self._process.wait(PATIENCE.total_seconds())


def compact_and_collect(site: Site, number: int) -> int:
    """`compact --once`, then gc: each ends well, or had nothing to do."""
    # it goes on as long as it finds something to merge: egress must not be faster than that
    compact = site.compaction(f"compact-{number}", min_segment_count=8)
    compact = site.command(f"compact-once-{number}", compact, "compact", "--once")
    gc = site.gc(f"gc-{number}")
    for worker in (compact, gc):
        ended(worker.start(environment={}))
    return number


def ended(worker: Worker) -> None:
    code = worker.wait(PATIENCE)
    assert code == 0, worker.explain(f"ended with {code}")


def segments(site: Site, flow: Flow) -> set[str]:
    stored = site.keys()
    return {key for key in stored if key.startswith(f"{PREFIX}/{A}/{flow.topic}/")}
