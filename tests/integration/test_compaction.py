"""Compaction as users run it: the command on Spark, a real cluster of which a worker dies, and the clock."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction.lease import NAME
from compaction.run import Compactor, Selection
from formats.parquet import ParquetFormat
from infra.local.aws import s3_client, wire
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.s3 import S3ObjectStore
from replicator.compaction import Compaction, in_process
from replicator.config import from_mapping
from replicator.control_store import ControlStore
from replicator.coverage import Piece, steps
from replicator.lifecycle import Stop, SystemClock
from replicator.segment import OffsetRange, Segment, SourcePartition, format_key
from replicator.store import SegmentStore
from tests.formats.records import ORIGIN, Row, batch_of, rows_of, sample_rows
from tests.integration.on_spark import PATIENCE, QUICK, assert_only_plans_cross, killing_one, pages_of
from tests.processes.below import marked
from tests.processes.harness import to_toml
from tests.processes.s3_proxy import Slow, proxied

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
EAGER = {"min_segment_age": "0s", "min_segment_count": 2, "min_segment_size": 0, "delete_grace": "0s"}


class Bucket:
    """An archive of region a in a bucket of its own, and the configuration that names it."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path) -> None:
        self.name, self.folder = unique("bucket"), folder
        self.endpoint_url = stack.moto.endpoint_url
        wire(self.endpoint_url, self.name, unique("queue"))
        self.client = s3_client(self.endpoint_url)
        self.objects = S3ObjectStore(self.client, self.name)
        self.store = SegmentStore(self.objects, "data")
        self.format = ParquetFormat()

    def fill(self, topic: str, partitions: int, segments: int, rows: int) -> None:
        for partition in range(partitions):
            for n in range(segments):
                name = Segment(SourcePartition("a", topic, partition), 0, OffsetRange(n * rows, n * rows + rows - 1))
                body = io.BytesIO()
                writer = self.format.create(body)
                writer.write([batch_of(self.rows(name))])
                writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC)))
                self.store.store(name, body, body.tell())

    def rows(self, name: Segment) -> list[Row]:
        count = name.offsets.next_offset - name.offsets.start
        return sample_rows(count, first_offset=name.offsets.start, seed=name.source.partition)

    def tables(self, *jobs: Mapping[str, Any], **compaction: Any) -> dict[str, Any]:
        s3 = {
            "bucket": self.name,
            "endpoint_url": self.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }
        given = [{"name": "all", **EAGER}] if not jobs else [{**EAGER, **one} for one in jobs]
        return {
            "region": "a",
            "s3": s3,
            "compaction": {"master": "local[2,4]", "spark": QUICK} | compaction | {"jobs": given},
        }

    @property
    def scratch(self) -> Path:
        """Where its commands have their temporary files: a mark of their processes, too."""
        folder = self.folder / "scratch"
        folder.mkdir(exist_ok=True)
        return folder

    def command(
        self, *arguments: str, tables: dict[str, Any] | None = None, own_group: bool = False
    ) -> subprocess.Popen[str]:
        tables = tables or self.tables()
        tables["s3"]["secret_access_key"] = "${SECRET}"
        file = self.folder / "replicator.toml"
        file.write_text(to_toml(tables), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "replicator", "compact", "--config", str(file), *arguments],
            cwd=ROOT,
            env={**os.environ, "SECRET": "test", "TMPDIR": str(self.scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=own_group,
        )

    def segments(self, source: SourcePartition) -> list[Segment]:
        return [info.segment for info in self.store.list(source)]

    def read(self, source: SourcePartition) -> list[Row]:
        rows: list[Row] = []
        for step in steps(self.segments(source), 0):
            assert isinstance(step, Piece)
            with closing(self.format.open(self.store.open(step.segment), step.segment)) as reader:
                rows += rows_of(list(reader.batches(step.from_offset)))
        return rows


@pytest.fixture
def bucket(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Bucket]:
    made = Bucket(stack, unique, tmp_path)
    yield made
    made.client.close()


def ended(process: subprocess.Popen[str], code: int) -> str:
    out, err = process.communicate(timeout=PATIENCE.total_seconds())
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    return out


def test_the_command(bucket: Bucket) -> None:
    """Dry run, run, and a segment that is not what it says: 3."""
    bucket.fill("orders", partitions=2, segments=6, rows=50)
    sources = [SourcePartition("a", "orders", partition) for partition in range(2)]
    before = [bucket.read(source) for source in sources]
    planned = ended(bucket.command("--dry-run"), 0)
    assert "12 segments" in planned
    assert "merge 6 segments" in planned
    assert [len(bucket.segments(source)) for source in sources] == [6, 6]

    damaged = Segment(sources[1], 0, OffsetRange(100, 149))
    key = format_key("data", damaged)
    data = bytearray(bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read())
    data[len(data) // 3] ^= 1
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=bytes(data))
    [report] = json.loads(ended(bucket.command("--once", "--json"), 3))
    assert list(report["quarantined"]) == [str(damaged)]
    assert bucket.segments(sources[0]) == [Segment(sources[0], 1, OffsetRange(0, 299))]
    assert bucket.segments(sources[1]) == [
        damaged,
        Segment(sources[1], 1, OffsetRange(0, 99)),
        Segment(sources[1], 1, OffsetRange(150, 299)),
    ]
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert bucket.read(sources[0]) == before[0]
    assert "nothing to do" in ended(bucket.command("--once"), 3)


def test_a_cluster_that_loses_a_worker(bucket: Bucket, tmp_path: Path) -> None:
    """Executors do the work, the driver sees no segment, and a worker killed in mid-merge costs nothing but time."""
    bucket.fill("orders", partitions=12, segments=4, rows=400)
    sources = [SourcePartition("a", "orders", partition) for partition in range(12)]
    before = [bucket.read(source) for source in sources]
    with spark_cluster(tmp_path / "spark", workers=2) as cluster:
        properties = {**DRIVER_PROPERTIES, **QUICK, "spark.ui.enabled": "true"}
        tables = bucket.tables(master=cluster.master, spark=properties, ship_packages=True)
        with Compaction(from_mapping(tables)) as compaction:

            def run() -> None:
                assert not any(report.failed for report in compaction.compact())

            seen = killing_one(run, lambda: pages_of(compaction.spark), cluster)
    assert [len(bucket.segments(source)) for source in sources] == [1] * 12
    assert [bucket.read(source) for source in sources] == before
    assert_only_plans_cross(seen)


def test_two_at_once_are_harmless(bucket: Bucket) -> None:
    """Without the lease's help: both plan, both write, both delete."""
    bucket.fill("orders", partitions=3, segments=5, rows=20)
    sources = [SourcePartition("a", "orders", partition) for partition in range(3)]
    before = [bucket.read(source) for source in sources]
    config = from_mapping(bucket.tables())
    ready = threading.Barrier(2)
    errors: list[BaseException] = []

    def one() -> None:
        assert config.compaction is not None
        with ExitStack() as opened:
            compactor = Compactor(
                region="a",
                store=bucket.store,
                control=ControlStore(bucket.objects, "data"),
                execute=in_process(config, opened),
                clock=SystemClock(),
                stop=Stop(),
            )
            ready.wait(30)
            try:
                compactor.run(config.compaction.jobs[0], Selection())
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert [len(bucket.segments(source)) for source in sources] == [1, 1, 1]
    assert [bucket.read(source) for source in sources] == before


@pytest.mark.long  # the night of the processes (test_compacted_while_read) is this, under traffic
def test_by_the_clock(bucket: Bucket) -> None:
    """Every second, until it is told to end; what was written meanwhile is merged by a later run."""
    bucket.fill("orders", partitions=1, segments=3, rows=10)
    source = SourcePartition("a", "orders", 0)
    process = bucket.command(tables=bucket.tables({"name": "often", "cron": "* * * * * *", "max_level": 5}))
    try:
        assert wait_until(lambda: len(bucket.segments(source)) == 1, PATIENCE)
        for n in range(3, 5):
            name = Segment(source, 0, OffsetRange(n * 10, n * 10 + 9))
            body = io.BytesIO()
            writer = bucket.format.create(body)
            writer.write([batch_of(bucket.rows(name))])
            writer.close(name, ORIGIN)
            bucket.store.store(name, body, body.tell())
        assert wait_until(lambda: [s.offsets for s in bucket.segments(source)] == [OffsetRange(0, 49)], PATIENCE)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert '"compaction_next"' in err
    assert len(bucket.read(source)) == 50
    assert '"segments_merged"' in err


@pytest.mark.long
@pytest.mark.parametrize("at_work", [True, False], ids=["at-work", "as-spark-starts"])
@pytest.mark.parametrize("to_all", [False, True], ids=["to-the-process", "to-its-group"])
@pytest.mark.parametrize(("arguments", "code"), [(("--once",), 1), ((), 0)], ids=["once", "by-the-clock"])
def test_sigterm_in_mid_run(bucket: Bucket, arguments: tuple[str, ...], code: int, to_all: bool, at_work: bool) -> None:
    """It ends soon and in order, with all that it started, whether or not Java was told as well; what is left undone is
    the next run's."""
    bucket.fill("orders", partitions=6, segments=6, rows=20)
    sources = [SourcePartition("a", "orders", partition) for partition in range(6)]
    before = [bucket.read(source) for source in sources]
    with proxied(bucket.endpoint_url) as proxy:
        proxy.break_("GetObject", Slow(0.5))
        tables = bucket.tables({"name": "often", "cron": "* * * * * *", "max_level": 5})
        tables["s3"]["endpoint_url"] = proxy.endpoint_url
        process = bucket.command(*arguments, tables=tables, own_group=True)
        try:
            if at_work:
                assert wait_until(lambda: any("/orders/" in path for path in proxy.asked("GetObject")), PATIENCE)
            else:
                assert wait_until(lambda: any("java" in one.command for one in marked(str(bucket.scratch))), PATIENCE)
            (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
            out, err = process.communicate(timeout=20)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    assert not any(line.startswith("Traceback") for line in err.splitlines())
    assert code == 0 or err.splitlines()[-1].startswith("replicator: stopped before everything was merged")
    assert wait_until(lambda: not marked(str(bucket.scratch)), timedelta(seconds=5)), marked(str(bucket.scratch))
    assert list(bucket.scratch.iterdir()) == []
    lease = ControlStore(bucket.objects, "data").lease("a", NAME)
    assert lease is not None
    assert lease.until <= datetime.now(UTC), "it was given back"
    assert any(len(bucket.segments(source)) > 1 for source in sources), "it was over before"
    assert [bucket.read(source) for source in sources] == before
    ended(bucket.command("--once"), 0)
    assert [len(bucket.segments(source)) for source in sources] == [1] * 6
    assert [bucket.read(source) for source in sources] == before


def test_without_a_cron_it_says_what_to_do(bucket: Bucket) -> None:
    process = bucket.command()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--once" in err
    assert "cron" in err
