"""What happens to a topic at the source, on a real broker: created again, trimmed, held back by a transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import create_bucket_with_queue
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.storage.aws import AwsCredentials
from infra.storage.s3 import S3ObjectStore, make_s3_client
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.services.egress import build_egress
from tests.integration.running import running

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=60)
ASK_AGAIN = timedelta(milliseconds=100)  # an answer is the whole archive, read where the egress runs
FORMAT = ParquetFormat()


class Source:
    """One topic of one partition in region a, and its archive."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        self.stack, self.topic, self.bucket, self.group = stack, unique("topic"), unique("bucket"), unique("egress")
        self.servers = {"bootstrap.servers": stack.brokers["a"].bootstrap}
        self.endpoint = stack.moto.endpoint_url
        create_bucket_with_queue(self.endpoint, self.bucket, unique("queue"))
        self.client_admin, self.admin = AdminClient({**self.servers}), KafkaAdmin(self.servers)
        s3 = make_s3_client(
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            credentials=AwsCredentials(access_key_id="test", secret_access_key="test", session_token=None),
            max_pool_connections=4,
        )
        objects = S3ObjectStore(s3, self.bucket)
        self.known = {""}  # topic ids of incarnations before
        self.store, self.control = SegmentStore(objects, "data"), ControlStore(objects, "data")
        self.create()

    def create(self) -> str:
        [created] = self.client_admin.create_topics([NewTopic(self.topic, 1, 1)]).values()
        created.result()
        assert wait_until(lambda: self.topic_id() not in self.known, PATIENCE)
        self.known.add(self.topic_id())
        return self.topic_id()

    def recreate(self) -> str:
        """In one go: a consumer that asks for nothing in between goes on silently."""
        [deleted] = self.client_admin.delete_topics([self.topic]).values()
        deleted.result()
        return self.create()

    def topic_id(self) -> str:
        facts = self.admin.describe([self.topic]).get(self.topic)
        return facts.topic_id if facts else ""

    def produce(self, *values: bytes) -> None:
        producer = Producer({**self.servers, "enable.idempotence": True})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(20) == 0

    def config(self, refresh: str = "1s", **topic: object) -> Config:
        return from_mapping(
            {
                "region": "a",
                "kafka": self.servers,
                "s3": {
                    "bucket": self.bucket,
                    "endpoint_url": self.endpoint,
                    "region_name": "us-east-1",
                    "access_key_id": "test",
                    "secret_access_key": "test",
                },
                "egress": {
                    "group_id": self.group,
                    "topic_refresh_interval": refresh,
                    "topics": {self.topic: {"max_segment_age": "1s", **topic}},
                },
            },
            source="test",
        )

    def egress(self, refresh: str = "1s", **topic: object) -> AbstractContextManager[None]:
        return running(build_egress(self.config(refresh, **topic)))

    def committed(self) -> int | None:
        partition = ClientPartition(self.topic, 0)
        consumer = Consumer({**self.servers, "group.id": self.group})
        try:
            [found] = consumer.committed([partition], timeout=10)
        except KafkaException:
            return None  # the group's coordinator is not there yet
        finally:
            consumer.close()
        return found.offset if found.offset >= 0 else None

    def source_partition(self, incarnation: str = "") -> SourcePartition:
        return SourcePartition("a", self.topic, 0, incarnation)

    def ranges(self, incarnation: str = "") -> list[tuple[int, int]]:
        return sorted(
            (i.segment.offsets.start, i.segment.offsets.end)
            for i in self.store.list(self.source_partition(incarnation))
        )

    def values(self, incarnation: str = "") -> list[bytes]:
        found: dict[int, bytes] = {}
        for info in self.store.list(self.source_partition(incarnation)):
            with closing(FORMAT.open(self.store.open(info.segment), info.segment)) as reader:
                for batch in reader.batches():
                    found |= zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
        return [found[offset] for offset in sorted(found)]

    def holds(self, values: list[bytes], incarnation: str = "") -> None:
        there = wait_until(lambda: self.values(incarnation) == values, PATIENCE, interval=ASK_AGAIN)
        assert there, (self.values(incarnation), self.ranges(incarnation))


@pytest.fixture
def source(stack: LocalStack, unique: Callable[[str], str]) -> Source:
    return Source(stack, unique)


def many(word: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (word.encode(), number) for number in range(count)]


@pytest.mark.parametrize(
    ("refresh", "count"),
    [
        ("1h", 30),
        *(
            pytest.param(*case, marks=(pytest.mark.long, pytest.mark.guard))
            for case in (("1s", 4), ("1s", 30), ("1h", 4))
        ),
    ],
)
def test_created_again_while_egress_runs(source: Source, refresh: str, count: int) -> None:
    """Shorter than what was read, and longer: the consumer continues silently, and our refresh may come too late."""
    old, new = many("old", 10), many("new", count)
    with source.egress(refresh):
        source.produce(*old)
        source.holds(old)
        incarnation = source.recreate()
        source.produce(*new)
        source.holds(new, incarnation)
        source.produce(b"last")
        source.holds([*new, b"last"], incarnation)
    assert source.values() == old
    assert source.ranges(incarnation)[0][0] == 0
    assert source.control.claims.paths("a") == [source.topic, f"{source.topic}@{incarnation}"]


def test_an_incarnation_that_the_consumer_entered_silently_is_found_out_before_it_is_stored(source: Source) -> None:
    """It waits at the first offset, which the new log has as well: no error tells it of the change."""
    new = many("new", 30)
    with source.egress("1h"):
        assert wait_until(lambda: source.committed() == 0, PATIENCE)
        incarnation = source.recreate()
        source.produce(*new)
        source.holds(new, incarnation)
    assert source.ranges() == []


def test_created_again_in_the_middle_of_a_segment(source: Source) -> None:
    """What was read of the first incarnation and not stored cannot be separated from that of the second."""
    old, new = many("old", 10), many("new", 30)
    with source.egress("1h", max_segment_age="20s", max_segment_messages=10):
        source.produce(*old)
        source.holds(old)
        source.produce(*many("unsealed", 3))
        incarnation = source.recreate()
        source.produce(*new)
        source.holds(new, incarnation)
    assert source.values() == old


@pytest.mark.long
@pytest.mark.guard
def test_created_again_while_egress_is_down(source: Source) -> None:
    old, new = many("old", 10), many("new", 15)
    source.produce(*old)
    with source.egress():
        source.holds(old)
    incarnation = source.recreate()
    source.produce(*new)
    with source.egress():
        source.holds(new, incarnation)
    third = source.recreate()
    with source.egress():
        source.produce(b"third")
        source.holds([b"third"], third)
    assert (source.values(), source.values(incarnation)) == (old, new)
    paths = [source.topic, *sorted(f"{source.topic}@{each}" for each in (incarnation, third))]
    assert list(source.control.claims.paths("a")) == paths


def delete_records(source: Source, before: int) -> None:
    [done] = source.client_admin.delete_records([ClientPartition(source.topic, 0, before)]).values()
    done.result()


def test_deleted_records_are_written_down_and_passed(source: Source) -> None:
    records = many("record", 20)
    source.produce(*records[:5])
    with source.egress(on_gap="record"):
        source.holds(records[:5])
    source.produce(*records[5:])
    delete_records(source, 12)
    with source.egress(on_gap="record"):
        source.holds(records[:5] + records[12:])
    assert source.control.gaps.ranges(source.source_partition()) == [OffsetRange(5, 11)]
    assert source.ranges()[1][0] == 12


@pytest.mark.guard
@pytest.mark.long
def test_an_open_transaction_holds_the_archive_at_the_last_stable_offset(source: Source) -> None:
    """What comes behind it waits, whichever producer wrote it; then it is there, or a hole, and the archive goes on."""
    p = TopicPartition(source.topic, 0)
    producer = Producer({**source.servers, "transactional.id": source.topic})
    producer.init_transactions(30)
    source.produce(b"before")
    with source.egress():
        wanted = [b"before"]
        for number, end in enumerate(("commit", "abort", "commit")):
            producer.begin_transaction()
            producer.produce(source.topic, b"open-%d" % number, partition=0)
            producer.flush(20)
            source.produce(b"behind-%d" % number)
            source.holds(wanted)
            # the record behind it is in the log, and older than a segment may become
            assert not wait_until(lambda: source.values() != wanted, timedelta(seconds=3))
            archived_until = source.ranges()[-1][1] + 1
            assert source.admin.stable_offsets([p]) == {p: archived_until}
            assert source.admin.watermarks([p])[p].high == archived_until + 2
            if end == "commit":
                producer.commit_transaction(30)
                wanted.append(b"open-%d" % number)
            else:
                producer.abort_transaction(30)
            wanted.append(b"behind-%d" % number)
            source.holds(wanted)
            assert source.admin.stable_offsets([p])[p] == source.admin.watermarks([p])[p].high
        # the last is a marker: a restore to a moment counts on it that segments cover those, too
        producer.begin_transaction()
        producer.produce(source.topic, b"dropped", partition=0)
        producer.flush(20)
        producer.abort_transaction(30)
        assert wait_until(lambda: source.ranges()[-1][1] + 1 == source.admin.watermarks([p])[p].high, PATIENCE)
        assert source.values() == wanted
    at = 0
    for start, last in source.ranges():
        assert start == at
        at = last + 1
