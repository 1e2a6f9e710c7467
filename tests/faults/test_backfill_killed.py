"""kill -9 of `backfill` before and after each of its durable steps: what is there is right at once, and the same
command does the rest. The archive's begin never lies before something that is missing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from formats.control.archive_begin import ArchiveBegin
from formats.coverage import SegmentSlice, joined, steps, uncovered
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_partition
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.crash_points import AFTER, BEFORE, Step
from infra.storage.s3 import S3ObjectStore
from tests.faults.crash_points import BACKFILL, BACKFILL_EARLIER, BACKFILL_LARGE
from tests.faults.ordered_command import run_ordered
from tests.faults.victim import CrashPoint, Orders
from tests.formats.sample_records import Row, rows_of
from tests.integration.on_spark import QUICK
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

SECONDS, PATIENCE = 90, timedelta(seconds=60)
KILLED, DONE = -signal.SIGKILL, 0
PARTITIONS, RECORDS, LEFT_OUT = 2, 30, 8
FORMAT = ParquetFormat()
SAMPLE = {"first-after-put-segment-3"}  # what `make test` has time for


def points(scene: str, made: Mapping[Step, tuple[int, ...]]) -> Iterator[object]:
    for step, occurrences in made.items():
        for occurrence in occurrences:
            for when in (BEFORE, AFTER):
                name = f"{scene}-{when}-{step.value}-{occurrence}"
                yield pytest.param(
                    CrashPoint(step=step, when=when, occurrence=occurrence),
                    id=name,
                    marks=() if name in SAMPLE else pytest.mark.long,
                )


class Bench:
    """A topic with committed and aborted records, an empty bucket, and the command under orders."""

    def __init__(self, stack: LocalStack, name: str, folder: Path, *, record_bytes: int = 10) -> None:
        self.topic, self.folder, self.endpoint = name, folder, stack.moto.endpoint_url
        self.orders, self.servers = Orders(folder / "given"), {"bootstrap.servers": stack.brokers["a"].bootstrap}
        self.admin, self.client = KafkaAdmin(self.servers), s3_client(self.endpoint)
        self.client.create_bucket(Bucket=name)
        objects = S3ObjectStore(self.client, name)
        self.store, self.control = SegmentStore(objects, "data"), ControlStore(objects, "data")
        creator = AdminClient({**self.servers})
        [created] = creator.create_topics([NewTopic(name, PARTITIONS, 1)]).values()
        created.result()
        assert wait_until(lambda: name in self.admin.topics(), PATIENCE)
        self._produce(record_bytes)
        # the last markers are written after the producer has its answer
        assert wait_until(lambda: set(self.ends()) == {RECORDS + 3}, PATIENCE), self.ends()

    def _produce(self, record_bytes: int) -> None:
        random = Random(3)
        producer = Producer({**self.servers, "transactional.id": self.topic})
        producer.init_transactions(30)
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                for _ in range(RECORDS // 3):
                    producer.produce(self.topic, random.randbytes(record_bytes), partition=partition)
            producer.flush(20)
            end(30)

    def ends(self) -> Sequence[int]:
        partitions = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        found = self.admin.stable_offsets(partitions)
        return [found[partition] for partition in partitions]

    def source(self, partition: int) -> SourcePartition:
        return SourcePartition("a", self.topic, partition)

    def begun(self) -> None:
        """As by an egress that began at the end and has not stored anything."""
        for partition, end in enumerate(self.ends()):
            begin = ArchiveBegin(offset=end, reason="start policy", recorded_at=datetime.now(UTC))
            self.control.begins.record(self.source(partition), begin)

    def run(self, code: int, *options: str, **rule: object) -> str:
        """With `--spark` its workers are under orders, too."""
        tables: dict[str, Any] = {
            "region": "a",
            "kafka": self.servers,
            "s3": {
                "bucket": self.topic,
                "endpoint_url": self.endpoint,
                "region_name": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "${SECRET}",
                "part_size": "5MiB",
            },
            "compaction": {"master": "local[2,4]", "spark": QUICK, "jobs": [{"name": "all"}]},
            "egress": {"memory_budget": "16MiB", "topics": {self.topic: {"max_segment_messages": 6, **rule}}},
        }
        file = self.folder / "replicator.toml"
        file.write_text(to_toml(tables), encoding="utf-8")
        command = ["backfill", self.topic, "--task-offsets", "16", "--config", str(file), *options]
        on_spark = "--spark" in options
        return run_ordered(self.orders, command, code=code, folder=self.folder, seconds=SECONDS, on_spark=on_spark)

    def killed(self, point: CrashPoint, *options: str, **rule: object) -> None:
        self.orders.give(point)
        self.run(KILLED, *options, **rule)
        assert self.orders.carried_out(CrashPoint) == point

    def judge(self, *, first: int = 0, is_whole: bool = True) -> None:
        """Each segment holds the log's records of its range. From the begin on, nothing is missing: not in the middle
        of an archive that a backfill began, either, once it is over."""
        for partition, end in enumerate(self.ends()):
            source = self.source(partition)
            segments = [info.segment for info in self.store.list(source)]
            truth = self.records(partition)
            for segment in segments:
                assert self.read(segment) == [row for row in truth if row["offset"] in segment.offsets], segment
            begin = self.control.begins.of(source)
            explained = [*joined(s.offsets for s in segments).runs, *self.control.gaps.ranges(source)]
            if is_whole:
                assert (begin.offset if begin else None) == first
            if begin is not None and begin.offset < end and (is_whole or begin.reason == "backfill"):
                assert uncovered(explained, OffsetRange(begin.offset, end - 1)) == []

    def records(self, partition: int) -> list[Row]:
        found = read_partition(self.servers, TopicPartition(self.topic, partition), 0, self.ends()[partition])
        return rows_of(list(found))

    def read(self, segment: Any) -> list[Row]:
        [step] = steps([segment], segment.offsets.start)
        assert isinstance(step, SegmentSlice)
        with closing(FORMAT.open(self.store.open(segment), segment)) as reader:
            return rows_of(list(reader.batches()))

    def keys(self) -> list[str]:
        """All but the leases', which every run takes anew."""
        listed = self.client.list_objects_v2(Bucket=self.topic).get("Contents", [])
        return [one["Key"] for one in listed if "/leases/" not in one["Key"]]


@pytest.fixture
def bench(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Bench]:
    made = Bench(stack, unique("history"), tmp_path)
    with closing(made.client):
        yield made


@pytest.mark.parametrize("point", list(points("first", BACKFILL)))
def test_killed_before_egress(bench: Bench, point: CrashPoint) -> None:
    bench.killed(point)
    bench.judge(is_whole=False)
    bench.run(DONE)
    bench.judge()
    before = bench.keys()
    assert "nothing is left to do" in bench.run(DONE)
    assert bench.keys() == before


@pytest.mark.parametrize("point", list(points("earlier", BACKFILL_EARLIER)))
def test_killed_before_the_begin_is_lowered(bench: Bench, point: CrashPoint) -> None:
    """With a part that is left out, and recorded as a gap."""
    bench.begun()
    wanted = ("--offsets", f"2-{min(bench.ends()) - LEFT_OUT}", "--leave-gap")
    bench.killed(point, *wanted)
    bench.judge(is_whole=False)
    bench.run(DONE, *wanted)
    bench.judge(first=2)
    bench.run(DONE, "--gaps")
    bench.judge()
    before = bench.keys()
    assert "nothing is left to do" in bench.run(DONE, "--gaps")
    assert bench.keys() == before


@pytest.mark.parametrize("point", list(points("large", BACKFILL_LARGE)))
def test_killed_in_a_large_segment(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, point: CrashPoint
) -> None:
    bench, rule = Bench(stack, unique("history"), tmp_path, record_bytes=900_000), {"max_segment_messages": 1000}
    with closing(bench.client):
        bench.killed(point, "--task-offsets", "1000", **rule)
        bench.judge(is_whole=False)
        bench.run(DONE, "--task-offsets", "1000", **rule)
        bench.judge()


@pytest.mark.long
@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("occurrence", [1, 3])
def test_a_worker_of_spark_is_killed(bench: Bench, when: str, occurrence: int) -> None:
    """Another one goes on after what is stored."""
    point = CrashPoint(step=Step.PUT_SEGMENT, when=when, occurrence=occurrence)
    bench.begun()
    bench.orders.give(point)
    bench.run(DONE, "--spark")
    assert bench.orders.carried_out(CrashPoint) == point
    bench.judge()
