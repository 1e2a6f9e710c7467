"""`replicator backfill` on a real broker: before egress, beside it, given again; against what egress archives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from formats.coverage import SegmentSlice, from_first, joined
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import create_bucket_with_queue
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.spark.driver import SparkSettings
from infra.storage.aws import AwsCredentials
from infra.storage.s3 import S3ObjectStore, make_s3_client
from replicator import main
from replicator.backfill.backfill import Backfill
from replicator.backfill.request import BackfillRequest
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.services.egress import build_egress
from tests.formats.sample_records import Row, rows_of
from tests.integration.on_spark import QUICK, killing_one, pages_of
from tests.integration.running import running
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=60)
FORMAT = ParquetFormat()
PARTITIONS = 2


class Archive:
    """Of one topic, in a bucket of its own, by an egress group of its own."""

    def __init__(self, history: History, name: str) -> None:
        self.history, self.bucket, self.group = history, f"{history.topic}-{name}", f"{history.topic}.{name}"
        endpoint = history.stack.moto.endpoint_url
        create_bucket_with_queue(endpoint, self.bucket, self.bucket)
        self.tables: dict[str, Any] = {
            "region": "a",
            "kafka": history.servers,
            "s3": {
                "bucket": self.bucket,
                "endpoint_url": endpoint,
                "region_name": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "${SECRET}",
            },
            "egress": {"group_id": self.group, "topic_refresh_interval": "1s"},
            "compaction": {"master": "local[2,4]", "spark": QUICK, "jobs": [{"name": "all"}]},
        }
        credentials = AwsCredentials(access_key_id="test", secret_access_key="test", session_token=None)
        client = make_s3_client(
            endpoint_url=endpoint, region_name="us-east-1", credentials=credentials, max_pool_connections=4
        )
        objects = S3ObjectStore(client, self.bucket)
        self.store, self.control = SegmentStore(objects, "data"), ControlStore(objects, "data")

    def settings(self, **topic: object) -> dict[str, Any]:
        rule = {"max_segment_age": "1s", "max_segment_messages": 7, **topic}
        return {**self.tables, "egress": {**self.tables["egress"], "topics": {self.history.topic: rule}}}

    def config(self, **topic: object) -> Config:
        tables = self.settings(**topic)
        tables["s3"] = {**tables["s3"], "secret_access_key": "test"}
        return from_mapping(tables, source="test")

    def egress(self, **topic: object) -> AbstractContextManager[None]:
        return running(build_egress(self.config(**topic)))

    def source(self, partition: int) -> SourcePartition:
        return SourcePartition("a", self.history.topic, partition)

    def runs(self, partition: int) -> tuple[OffsetRange, ...]:
        return joined(info.segment.offsets for info in self.store.list(self.source(partition))).runs

    def names(self) -> dict[str, object]:
        """Every segment, with what tells one object from another."""
        return {
            str(info.segment): (info.size_bytes, info.stored_at)
            for partition in range(PARTITIONS)
            for info in self.store.list(self.source(partition))
        }

    def rows(self, partition: int) -> list[Row]:
        """Of a whole archive, without a gap."""
        rows: list[Row] = []
        for step in from_first(info.segment for info in self.store.list(self.source(partition))):
            assert isinstance(step, SegmentSlice), step
            with closing(FORMAT.open(self.store.open(step.segment), step.segment)) as reader:
                found = rows_of(list(reader.batches(step.offsets.start)))
                rows += [row for row in found if row["offset"] in step.offsets]
        return rows

    def begins(self) -> list[int | None]:
        found = [self.control.begins.of(self.source(partition)) for partition in range(PARTITIONS)]
        return [None if begin is None else begin.offset for begin in found]


class History:
    """A topic with records, headers, nulls, committed and aborted transactions."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        self.stack, self.topic = stack, unique("topic")
        self.servers = {"bootstrap.servers": stack.brokers["a"].bootstrap}
        self.admin, self._numbers = KafkaAdmin(self.servers), count()
        client = AdminClient({**self.servers})
        [created] = client.create_topics([NewTopic(self.topic, PARTITIONS, 1)]).values()
        created.result()
        self.producer = Producer({**self.servers, "transactional.id": self.topic})
        assert wait_until(lambda: self.topic in self.admin.topics(), PATIENCE)
        self.producer.init_transactions(30)

    def write(self, *, is_aborted: bool = False, records: int = 10) -> None:
        """A transaction in each partition, with its markers."""
        self.producer.begin_transaction()
        for number in range(records):
            for partition in range(PARTITIONS):
                text = f"{next(self._numbers)}".encode()
                self.producer.produce(
                    self.topic,
                    None if number % 5 == 3 else text * (1 + number),
                    key=None if number % 3 == 1 else text,
                    headers=[("a", text), ("a", None)] if number % 2 else None,
                    partition=partition,
                )
        self.producer.flush(20)
        if is_aborted:
            self.producer.abort_transaction(30)
        else:
            self.producer.commit_transaction(30)
        partitions = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]

        def is_marked() -> bool:
            marks = self.admin.watermarks(partitions)
            return all(self.ends()[p.partition] == marks[p].high for p in partitions)

        assert wait_until(is_marked, PATIENCE)

    def fill(self) -> None:
        for is_aborted in (False, True, False, False, True):
            self.write(is_aborted=is_aborted)

    def ends(self) -> list[int]:
        found = self.admin.stable_offsets([TopicPartition(self.topic, p) for p in range(PARTITIONS)])
        return [found[TopicPartition(self.topic, p)] for p in range(PARTITIONS)]

    def reaches_end(self, archive: Archive) -> None:
        def does() -> bool:
            runs = [archive.runs(partition) for partition in range(PARTITIONS)]
            return [one[-1].next_offset if one else 0 for one in runs] == self.ends()

        assert wait_until(does, PATIENCE), [archive.runs(p) for p in range(PARTITIONS)]


@pytest.fixture
def history(stack: LocalStack, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    monkeypatch.setenv("SECRET", "test")
    made = History(stack, unique)
    yield made
    del made.producer  # else it tries to reach its broker until the end


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def command(tables: Mapping[str, Any], *arguments: str) -> tuple[int, str]:
        file = tmp_path / "replicator.toml"
        file.write_text(to_toml(tables), encoding="utf-8")
        with pytest.raises(SystemExit) as caught:
            main.main(["backfill", *arguments, "--config", str(file)])
        assert isinstance(caught.value.code, int | None)
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out + printed.err

    return command


def as_egress_does(history: History) -> Archive:
    """The whole topic, archived by egress alone."""
    reference = Archive(history, "reference")
    with reference.egress():
        history.reaches_end(reference)
    return reference


def same(archive: Archive, reference: Archive) -> None:
    for partition in range(PARTITIONS):
        assert archive.rows(partition) == reference.rows(partition)
        [whole] = archive.runs(partition)
        assert (whole,) == reference.runs(partition)


def test_what_is_before_the_begin(history: History, run: Callable[..., tuple[int, str]]) -> None:
    """Egress began at the end of the log, and runs on."""
    history.fill()
    archive = Archive(history, "archive")
    with archive.egress(start="latest"):
        begins = history.ends()
        assert wait_until(lambda: archive.begins() == begins, PATIENCE)
        history.write()
        history.reaches_end(archive)
        code, text = run(archive.settings(), history.topic, "--dry-run", "--json")
        planned = json.loads(text)
        assert (code, archive.begins()) == (0, begins), text
        assert [one["ranges"] for one in planned["partitions"]] == [[[0, begin - 1]] for begin in begins]
        assert planned["size_bytes"] > 0
        code, text = run(archive.settings(), history.topic, "--task-offsets", "20")
        assert code == 0, text
        assert archive.begins() == [0, 0]
        history.write()
        history.reaches_end(archive)
    same(archive, as_egress_does(history))
    before = archive.names()
    code, text = run(archive.settings(), history.topic)
    assert (code, "nothing is left to do" in text) == (0, True), text
    code, text = run(archive.settings(), history.topic, "--partition", "12")
    assert (code, f"--partition 12: {history.topic} has 2 partitions" in text) == (2, True), text
    assert archive.names() == before


def test_before_egress(history: History, run: Callable[..., tuple[int, str]]) -> None:
    """Nothing was ever archived: egress goes on where the backfill ended, whatever its start policy."""
    history.fill()
    archive = Archive(history, "archive")
    code, text = run(archive.settings(start="latest"), history.topic)
    assert code == 0, text
    assert (archive.begins(), [archive.runs(p)[-1].next_offset for p in range(PARTITIONS)]) == ([0, 0], history.ends())
    history.write()
    with archive.egress(start="latest"):
        history.reaches_end(archive)
    same(archive, as_egress_does(history))
    assert archive.begins() == [0, 0]


@pytest.mark.long
def test_beside_egress_and_traffic(history: History, run: Callable[..., tuple[int, str]]) -> None:
    history.fill()
    archive, ended = Archive(history, "archive"), threading.Event()
    with archive.egress(start="latest"):
        assert wait_until(lambda: None not in archive.begins(), PATIENCE)

        def traffic() -> None:
            for is_aborted in (False, False, True) * 20:
                if ended.is_set():
                    return
                history.write(is_aborted=is_aborted, records=3)

        writing = threading.Thread(target=traffic)
        writing.start()
        try:
            code, text = run(archive.settings(), history.topic, "--task-offsets", "5")
        finally:
            ended.set()
            writing.join()
        assert (code, archive.begins()) == (0, [0, 0]), text
        history.reaches_end(archive)
    same(archive, as_egress_does(history))


def test_a_range_that_does_not_reach_the_begin(history: History, run: Callable[..., tuple[int, str]]) -> None:
    history.fill()
    archive = Archive(history, "archive")
    with archive.egress(start="latest"):
        begins = history.ends()
        assert wait_until(lambda: archive.begins() == begins, PATIENCE)
    history.write()
    with archive.egress(start="latest"):
        history.reaches_end(archive)
    code, text = run(archive.settings(), history.topic, "--offsets", "3-10")
    assert (code, "would be missing before it" in text, archive.begins()) == (1, True, begins), text
    code, text = run(archive.settings(), history.topic, "--offsets", "3-10", "--leave-gap")
    assert (code, archive.begins()) == (0, [3, 3]), text
    for partition, begin in enumerate(begins):
        assert archive.control.gaps.ranges(archive.source(partition)) == [OffsetRange(11, begin - 1)]
        assert archive.runs(partition)[0] == OffsetRange(3, 10)
    code, text = run(archive.settings(), history.topic, "--gaps")
    assert (code, archive.begins()) == (0, [0, 0]), text
    same(archive, as_egress_does(history))


@pytest.mark.long
def test_on_spark(history: History, run: Callable[..., tuple[int, str]]) -> None:
    history.fill()
    archive = Archive(history, "archive")
    with archive.egress(start="latest"):
        assert wait_until(lambda: None not in archive.begins(), PATIENCE)
    code, text = run(archive.settings(), history.topic, "--spark", "--task-offsets", "15")
    assert (code, archive.begins()) == (0, [0, 0]), text
    history.write()
    with archive.egress(start="latest"):
        history.reaches_end(archive)
    same(archive, as_egress_does(history))


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_and_speculates(history: History, tmp_path: Path) -> None:
    """Every task may run twice, at the same time."""
    for _ in range(12):
        history.write(records=40)
    archive = Archive(history, "archive")
    with archive.egress(start="latest"):
        begins = history.ends()
        assert wait_until(lambda: archive.begins() == begins, PATIENCE)
        history.write()
        history.reaches_end(archive)
    request = BackfillRequest(topics=[TopicPattern(history.topic)], task_offsets=20)
    eager = {
        "spark.speculation": "true",
        "spark.speculation.interval": "20ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.05",
        "spark.speculation.minTaskRuntime": "1ms",
    }
    with spark_cluster(tmp_path / "spark", workers=2) as cluster:
        properties = {**DRIVER_PROPERTIES, **QUICK, **eager, "spark.ui.enabled": "true"}
        settings = SparkSettings(master=cluster.master, properties=properties, ship_packages=True)
        with Backfill(archive.config(), request, spark=settings) as filling:
            plan, reports = filling.plan(), []
            assert len(plan.tasks) > 40
            killing_one(lambda: reports.append(filling.run(plan)), lambda: pages_of(filling.spark.runner), cluster)
    [report] = reports
    assert (report.failed, archive.begins()) == ({}, [0, 0])
    same(archive, as_egress_does(history))
    for partition in range(PARTITIONS):
        ranges = sorted(info.segment.offsets for info in archive.store.list(archive.source(partition)))
        assert all(b.start == a.next_offset for a, b in pairwise(ranges)), "two attempts put the same keys"
