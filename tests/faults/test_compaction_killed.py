"""kill -9 of a compaction and of a gc, at each of their durable steps, in the command or in a worker of Spark: what is
there is right at once, and what was left undone is done by the next one."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from formats.control.gap import RETENTION, RecordedGap, encode_gap
from formats.control.keys import gap_key, watermarks_prefix
from formats.control.watermarks import encode_watermarks
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.crash_points import AFTER, BEFORE, Step
from tests.faults.crash_points import COMPACT, GC
from tests.faults.stored import Bucket, Stretch, Where
from tests.faults.victim import ROOT, CrashPoint, Orders
from tests.formats.sample_records import ORIGIN, Row, batch_of, sample_rows
from tests.integration.on_spark import QUICK
from tests.processes.below import marked
from tests.processes.harness import to_toml
from tests.replicator.restore.published import watermarks

pytestmark = pytest.mark.integration

PATIENCE = timedelta(minutes=5)  # a command that hangs, on a machine that does other things too
ROWS = 20  # of a small segment
KEPT, HELD = 2, 25  # by gc: the newest segments, and an offset
KILLED = -signal.SIGKILL
DONE, NAMED = 0, 3
GC_ON_SPARK = "gc on spark"
COMMANDS = {
    "compact": ["compact", "--once"],
    "gc": ["gc", "--covered"],
    GC_ON_SPARK: ["gc", "--covered", "--spark"],
}
IN_A_WORKER: Mapping[str, Collection[Step]] = {
    "compact": frozenset(COMPACT) - {Step.TAKE_LEASE, Step.QUARANTINE, Step.THIN_GENERATIONS},
    "gc": (),
    GC_ON_SPARK: {Step.DELETE_SEGMENTS},
}

BIG, GAPPED, OVERLAPPED, PLAIN, EXPIRED = (Where("orders", n) for n in range(5))
MERGED = Where("payments", 0)  # to be kept for ever
DAMAGED = {"compact": Stretch(PLAIN, 40, 59), "gc": Stretch(MERGED, 20, 39), GC_ON_SPARK: Stretch(MERGED, 20, 39)}
HISTORY: Mapping[Where, Collection[tuple[int, int, int]]] = {  # level, first offset, last one
    BIG: [(0, n, n + 1) for n in range(0, 8, 2)],  # together above the size of a part
    GAPPED: [(0, n, n + ROWS - 1) for n in (0, 20, 40, 80, 100)],
    OVERLAPPED: [(0, 10, 29), *((0, n, n + ROWS - 1) for n in range(0, 100, ROWS))],
    PLAIN: [(0, n, n + ROWS - 1) for n in range(0, 120, ROWS)],
    EXPIRED: [(0, n, n + ROWS - 1) for n in range(40, 120, ROWS)],
    MERGED: [(1, 0, 99), (0, 0, 19), (0, 20, 39)],
}
RECORDED = Stretch(EXPIRED, 0, 39)  # by an earlier gc
STORED = [Stretch(where, start, end) for where, segments in HISTORY.items() for _, start, end in segments]


def points() -> Iterator[object]:
    for command, steps in (("compact", COMPACT), ("gc", GC), (GC_ON_SPARK, GC)):
        for step, occurrences in steps.items():
            for occurrence in occurrences:
                for when in (BEFORE, AFTER):
                    yield pytest.param(
                        command,
                        CrashPoint(step=step, when=when, occurrence=occurrence),
                        id=f"{command.replace(' ', '-')}-{when}-{step.value}-{occurrence}",
                    )


@pytest.mark.long
@pytest.mark.parametrize(("command", "point"), list(points()))
def test_killed_at(archive: Archive, command: str, point: CrashPoint) -> None:
    code = DONE
    if point.step is Step.QUARANTINE:
        archive.damage(DAMAGED[command])
        code = NAMED
    if command != "compact":
        archive.begin_upload()
    archive.orders.give(point)
    if point.step in IN_A_WORKER[command]:
        archive.run(command, code)  # Spark has another worker do it
        assert archive.left_on_disk() == []
    else:
        archive.run(command, KILLED)
        archive.judge()
        archive.run(command, code)
        # a killed driver's folder waits for the next run that has work for Spark
        assert all(name.startswith("replicator-spark-") for name in archive.left_on_disk())
    assert archive.orders.carried_out(CrashPoint) == point
    archive.judge_end(command)
    before = archive.keys()
    output = archive.run(command, code)
    assert "nothing to do" in output
    assert archive.keys() == before
    if archive.bucket.uploads():  # a killed worker's
        archive.run("gc", code, rule={})  # removes no record
        archive.judge_end(command)
    assert archive.bucket.uploads() == []
    assert wait_until(lambda: not marked(str(archive.orders.path)), PATIENCE), marked(str(archive.orders.path))


class Archive:
    """A bucket with all that compaction and retention meet, and the commands that work on it, under orders."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path) -> None:
        self.folder, self.endpoint_url = folder, stack.moto.endpoint_url
        (folder / "tmp").mkdir()
        self.orders = Orders(folder / "given")
        self.client = s3_client(self.endpoint_url)
        self.bucket = Bucket(self.client, unique("bucket"))
        self.client.create_bucket(Bucket=self.bucket.name)
        self.truth = {where: rows_of_partition(where) for where in HISTORY}
        self.damaged: dict[str, Stretch] = {}
        for where, segments in HISTORY.items():
            for level, start, end in segments:
                self._store(level, Stretch(where, start, end))
        source = name(0, RECORDED).source
        gap = RecordedGap(
            source=source,
            offsets=OffsetRange(RECORDED.start, RECORDED.end),
            reason=RETENTION,
            low=0,
            high=40,
            recorded_at=datetime.now(UTC),
        )
        self._put(gap_key("data", source, gap.offsets), encode_gap(gap))
        reported = encode_watermarks(watermarks(datetime.now(UTC), {"orders": (120,)}))
        for number in (1, 2, 3):  # put within a minute: at least one of them is thinned
            self._put(f"{watermarks_prefix('data', source.region)}{number:020d}", reported)

    def _store(self, level: int, stretch: Stretch) -> None:
        body = io.BytesIO()
        writer = ParquetFormat().create(body)
        rows = self.truth[stretch.where]
        writer.write([batch_of([rows[n] for n in stretch.offsets])])
        writer.close(name(level, stretch), replace(ORIGIN, created_at=datetime.now(UTC)))
        self._put(format_key("data", name(level, stretch)), body.getvalue())

    def _put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.bucket.name, Key=key, Body=body)

    def damage(self, stretch: Stretch) -> None:
        """Its end is lost."""
        key = format_key("data", name(0, stretch))
        whole = self.client.get_object(Bucket=self.bucket.name, Key=key)["Body"].read()
        self._put(key, whole[: len(whole) // 2])
        self.damaged[key] = stretch

    def begin_upload(self) -> None:
        """As an egress that died. The server says of every upload that it was begun in 2010."""
        key = format_key("data", name(0, Stretch(PLAIN, 120, 139)))
        self.client.create_multipart_upload(Bucket=self.bucket.name, Key=key)

    def run(self, command: str, code: int, rule: Mapping[str, Any] | None = None) -> str:
        file = self.folder / "replicator.toml"
        file.write_text(to_toml(self._tables(rule)), encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, "-m", "replicator", *COMMANDS[command], "--config", str(file)],
            env={**os.environ, **self.orders.everywhere, "SECRET": "test", "TMPDIR": str(self.folder / "tmp")},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE.total_seconds())
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == code, err + out
        return out

    def _tables(self, rule: Mapping[str, Any] | None) -> Mapping[str, Any]:
        newest = {"max_bytes": 1, "keep_segments": KEPT, "hold": [f"*:{HELD}-{HELD}"]}
        job = {"name": "all", "max_level": 50, "min_segment_age": "0s", "min_segment_count": 2, "min_segment_size": 0}
        return {
            "region": "a",
            "s3": {
                "bucket": self.bucket.name,
                "endpoint_url": self.endpoint_url,
                "region_name": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "${SECRET}",
                "part_size": "5MiB",
            },
            "compaction": {
                "master": "local[2,4]",
                "spark": QUICK,
                "spool_dir": str(self.folder / "tmp"),
                "jobs": [{**job, "delete_grace": "0s"}],
            },
            "retention": {
                "delete_grace": "0s",
                "max_delete_percent": 100,
                "topics": {"orders": newest if rule is None else rule},
            },
        }

    def judge(self) -> list[Stretch]:
        return self.bucket.judge(self.truth, damaged=self.damaged)

    def judge_end(self, command: str) -> None:
        """Every record is there, or known to be gone, once; and nothing else is there."""
        left_alone = set(self.damaged.values())
        fit = {one for one in STORED if one.where != MERGED or one == Stretch(MERGED, 0, 99)} - left_alone
        stay = joined(fit) if command == "compact" else set(filter(is_kept, fit))
        assert self.judge() == sorted(stay | left_alone)
        lost = (offsets(fit) - offsets(stay)) | offsets([RECORDED])
        assert offsets(self.bucket.gaps()) == lost
        assert sum(len(gap.offsets) for gap in self.bucket.gaps()) == len(lost)
        assert len(self.bucket.gaps()) == len(joined(self.bucket.gaps())), "two records of one range"
        control = [key.split("/")[4] for key in self.bucket.objects() if key.startswith("data/a/_control/v1/")]
        assert control.count("leases") == 1
        assert control.count("quarantine") == len(self.damaged)

    def keys(self) -> list[str]:
        """All but what every run writes: that it has the lease, and that it was whole."""
        return [key for key in self.bucket.objects() if "/leases/" not in key and "/compaction-runs/" not in key]

    def left_on_disk(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "tmp").iterdir())


@pytest.fixture
def archive(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Archive]:
    made = Archive(stack, unique, tmp_path)
    with closing(made.client):
        yield made


# --- what is stored, and what is to become of it


def name(level: int, stretch: Stretch) -> Segment:
    source = SourcePartition("a", stretch.where.topic, stretch.where.partition)
    return Segment(source, level, OffsetRange(stretch.start, stretch.end))


def rows_of_partition(where: Where) -> Mapping[int, Row]:
    random = Random(where.partition)
    rows = {row["offset"]: row for row in sample_rows(120, seed=where.partition)}
    if where == BIG:
        rows = {offset: {**row, "value": random.randbytes(900_000)} for offset, row in rows.items() if offset < 8}
    return {offset: rows[offset] for place, offset in sorted(offsets(STORED)) if place == where}


def offsets(stretches: Iterable[Stretch]) -> set[tuple[Where, int]]:
    return {(stretch.where, offset) for stretch in stretches for offset in stretch.offsets}


def joined(stretches: Iterable[Stretch]) -> set[Stretch]:
    """What adjoins or overlaps is one."""
    found: list[Stretch] = []
    for one in sorted(stretches):
        if found and found[-1].where == one.where and one.start <= found[-1].end + 1:
            found[-1] = found[-1]._replace(end=max(found[-1].end, one.end))
        else:
            found.append(one)
    return set(found)


def is_kept(stretch: Stretch) -> bool:
    """By the rule that gc is given."""
    newest = sorted(one.end for one in STORED if one.where == stretch.where)[-KEPT:]
    return stretch.where == MERGED or HELD in stretch.offsets or stretch.end in newest
