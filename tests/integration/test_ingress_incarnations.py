"""Ingress on the real broker: incarnations of a topic, recorded gaps, and a destination created again under it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from formats.control.claim import TopicClaim
from formats.control.gap import RecordedGap
from formats.footer import SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.policies.topic_configs import CREATED_WITH
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.local.aws import create_bucket_with_queue
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.service import Service
from infra.storage.aws import AwsCredentials
from infra.storage.s3 import S3ObjectStore, S3PutOptions, make_s3_client
from ingress.delivery.sizes import DELIVERY_WIDTH
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.services.ingress import build_ingress
from tests.infra.cluster import Cluster
from tests.ingress.world import numbers, records
from tests.integration.running import running_services

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=90)
SECOND = "Zm9v-mFyLXRvcGljLWlkMg"  # a topic id


class Archive:
    """Of region a, filled by hand; ingress of region b reads it."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], client: S3Client) -> None:
        self.stack, self.client, self.bucket, self.queue = stack, client, unique("bucket"), unique("queue")
        create_bucket_with_queue(stack.moto.endpoint_url, self.bucket, self.queue)
        objects = S3ObjectStore(client, self.bucket)
        self.store, self.control = SegmentStore(objects, "data"), ControlStore(objects, "data")
        self.cluster = Cluster(stack.brokers["b"])
        self.topic, self.canary = unique("topic"), unique("canary")
        self.group, self.events, self.checkpoints = unique("ingress"), unique("events"), unique("checkpoints")

    def put(
        self,
        start: int,
        end: int,
        *,
        partition: int = 0,
        partitions: int = 1,
        incarnation: str = "",
        topic: str = "",
        is_frozen: bool = False,
    ) -> None:
        source = SourcePartition("a", topic or self.topic, partition, incarnation)
        segment, sink = Segment(source, 0, OffsetRange(start, end)), BytesIO()
        writer = ParquetFormat().create(sink)
        writer.write([records(range(start, end + 1))])
        origin = SegmentOrigin(created_at=datetime.now(UTC), writer="test", source_partition_count=partitions)
        writer.close(segment, origin)
        options = S3PutOptions(storage_class="GLACIER" if is_frozen else "")
        SegmentStore(S3ObjectStore(self.client, self.bucket, put_options=options), "data").store(
            segment, sink, sink.tell()
        )

    def claim(self, number: int, incarnation: str = "") -> None:
        path = f"{self.topic}@{incarnation}" if incarnation else self.topic
        claim = TopicClaim(
            topic_id=incarnation or "first", cluster_id="source", number=number, claimed_at=datetime.now(UTC)
        )
        self.control.claims.record("a", path, claim)

    def record_gap(self, start: int, end: int) -> None:
        source, offsets = SourcePartition("a", self.topic, 0), OffsetRange(start, end)
        now = datetime.now(UTC)
        gap = RecordedGap(source=source, offsets=offsets, reason="retention", low=end + 1, high=99, recorded_at=now)
        self.control.gaps.record(gap)

    def config(self, **source: object) -> Config:
        aws = {
            "endpoint_url": self.stack.moto.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }
        common = {"region": "a", "first_segment_delay": "0s", "lost_segment_timeout": "1h"}
        return from_mapping(
            {
                "region": "b",
                "kafka": {"bootstrap.servers": self.stack.brokers["b"].bootstrap},
                "s3": {"bucket": self.bucket, **aws},
                "sqs": {"queue": self.queue, "wait": "1s", **aws},
                "ingress": {
                    "group_id": self.group,
                    "segment_events_topic": self.events,
                    "replication_factor": 1,
                    "checkpoint_topic": self.checkpoints,
                    "topic_refresh_interval": "1s",
                    "relist_interval": "5m",
                    "sources": [{"topic": self.topic, **common, **source}, {"topic": self.canary, **common}],
                },
            },
            source="test",
        )

    def arrived(self, destination: str, partition: int = 0) -> list[int]:
        """Source offsets, which are the records' keys."""
        try:
            found = self.cluster.records(TopicPartition(destination, partition))
        except KafkaException:
            return []
        return [int(record.key or b"-1") for record in found]

    def await_arrival(
        self, wanted: Sequence[int], *, incarnation: str = "", partition: int = 0, topic: str = ""
    ) -> None:
        destination = f"{topic or self.topic}.ingress{incarnation and '.'}{incarnation}"
        self.await_topic(destination)
        wait_until(lambda: len(self.arrived(destination, partition)) >= len(wanted), PATIENCE)
        assert self.arrived(destination, partition) == wanted

    def await_topic(self, name: str) -> None:
        admin = self.cluster._admin()
        assert wait_until(lambda: name in admin.list_topics(timeout=10).topics, PATIENCE), f"no topic {name}"


@pytest.fixture
def archive(stack: LocalStack, unique: Callable[[str], str]) -> Iterator[Archive]:
    client = make_s3_client(
        endpoint_url=stack.moto.endpoint_url,
        region_name="us-east-1",
        credentials=AwsCredentials(access_key_id="test", secret_access_key="test"),
    )
    with closing(client):
        yield Archive(stack, unique, client)


@pytest.fixture
def run() -> Iterator[Callable[[Config], Service]]:
    with running_services() as start:
        yield lambda config: start(build_ingress(config))


def logged(caplog: pytest.LogCaptureFixture, event: str, words: str) -> Callable[[], bool]:
    return lambda: any(
        record.getMessage() == event and words in str(record.__dict__.get("reason", "")) for record in caplog.records
    )


def test_recorded_gap_is_passed_over_at_once(archive: Archive, run: Callable[[Config], Service]) -> None:
    archive.put(0, 9)
    run(archive.config())
    archive.await_arrival(numbers((0, 9)))
    archive.record_gap(10, 14)
    archive.record_gap(15, 19)
    archive.put(20, 29)
    archive.await_arrival(numbers((0, 9), (20, 29)))


def test_later_incarnation_is_refused_and_the_first_continues(
    archive: Archive, run: Callable[[Config], Service], caplog: pytest.LogCaptureFixture
) -> None:
    archive.claim(0)
    archive.put(0, 9)
    run(archive.config())
    archive.await_arrival(numbers((0, 9)))
    archive.claim(1, SECOND)
    archive.put(0, 99, incarnation=SECOND)
    assert wait_until(logged(caplog, "source_refused", f"{archive.topic}@{SECOND} is a later incarnation"), PATIENCE)
    archive.put(10, 19)
    archive.await_arrival(numbers((0, 19)))


@pytest.mark.long
@pytest.mark.guard
def test_later_incarnation_follows_and_a_restart_continues_with_it(
    archive: Archive, run: Callable[[Config], Service]
) -> None:
    """The second incarnation has a partition more."""
    archive.claim(0)
    archive.put(0, 9, partitions=2)
    config = archive.config(on_recreate="follow")
    first = run(config)
    archive.await_arrival(numbers((0, 9)))
    archive.claim(1, SECOND)
    archive.put(0, 4, incarnation=SECOND, partitions=2)
    archive.put(0, 2, incarnation=SECOND, partition=1, partitions=2)
    archive.await_arrival(numbers((0, 9), (0, 4)))
    archive.await_arrival([0, 1, 2], partition=1)
    archive.put(5, 6, incarnation=SECOND)
    archive.await_arrival(numbers((0, 9), (0, 6)))
    first.stop()
    first.join(timedelta(seconds=30))
    archive.put(7, 8, incarnation=SECOND)
    run(config)
    archive.await_arrival(numbers((0, 9), (0, 8)))


def test_later_incarnation_goes_to_a_separate_topic(archive: Archive, run: Callable[[Config], Service]) -> None:
    archive.put(0, 9)
    archive.put(0, 4, incarnation=SECOND, partitions=3)
    run(archive.config(on_recreate="new-topic"))
    archive.await_arrival(numbers((0, 9)))
    archive.await_arrival(numbers((0, 4)), incarnation=SECOND[:8])
    archive.put(5, 6, incarnation=SECOND)
    archive.put(10, 11)
    archive.await_arrival(numbers((0, 6)), incarnation=SECOND[:8])
    archive.await_arrival(numbers((0, 11)))


def test_destination_created_again_gets_nothing(
    archive: Archive, run: Callable[[Config], Service], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    archive.put(0, 9)
    archive.put(0, 9, topic=archive.canary)
    run(archive.config())
    archive.await_arrival(numbers((0, 9)))
    archive.await_arrival(numbers((0, 9)), topic=archive.canary)
    name = f"{archive.topic}.ingress"
    archive.cluster.delete(name)
    with suppress(KafkaException):  # ingress may be quicker: it makes what is absent
        archive.cluster.create(name, configs=CREATED_WITH)
    archive.await_topic(name)
    assert wait_until(logged(caplog, "partition_stopped", "created again"), PATIENCE)
    archive.put(10, 19)
    for start in (10, 20):  # what flows elsewhere shows that there was time
        archive.put(start, start + 9, topic=archive.canary)
        archive.await_arrival(numbers((0, start + 9)), topic=archive.canary)
    assert archive.arrived(name) == []


def test_segments_that_the_store_refuses_hold_up_their_partitions_alone(
    archive: Archive, run: Callable[[Config], Service], caplog: pytest.LogCaptureFixture
) -> None:
    """More than are read at a time, of a storage class that cannot be read at once."""
    partitions = DELIVERY_WIDTH + 1
    for partition in range(partitions):
        archive.put(0, 9, partition=partition, partitions=partitions)
    run(archive.config())
    archive.await_arrival(numbers((0, 9)), partition=partitions - 1)
    for partition in range(partitions):
        archive.put(10, 19, partition=partition, partitions=partitions, is_frozen=True)
    archive.put(0, 9, topic=archive.canary)
    archive.await_arrival(numbers((0, 9)), topic=archive.canary)
    assert wait_until(logged(caplog, "delivery_failed", "InvalidObjectState"), PATIENCE)
    archive.put(10, 19, topic=archive.canary)
    archive.await_arrival(numbers((0, 19)), topic=archive.canary)
