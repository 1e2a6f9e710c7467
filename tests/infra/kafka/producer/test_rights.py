"""Missing permissions on a real cluster, with both writers: what is rejected, and what happens to the other partitions.

The same causes with ingress as a whole: tests/processes/test_refused_by_target.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable, TargetError, WriterRefused
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetWriter
from infra.kafka.client.idempotent_producer import transactional_properties
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_partition
from infra.kafka.consumer.placement import KafkaPlacement
from infra.kafka.producer.at_least_once import AtLeastOnceWriter
from infra.kafka.producer.hole_filler import HoleFiller
from infra.kafka.producer.preserve_failures import RunEnded
from infra.kafka.producer.transactional import TransactionalWriter
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.contracts.target import never, row, run_of
from tests.infra.cluster import Cluster
from tests.infra.principal import DESCRIBE, GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Principal

pytestmark = pytest.mark.integration

ATTEMPTS = 10
MIB = 1 << 20
PATIENCE = timedelta(seconds=40)
GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])


class Target:
    """A cluster with two topics and a checkpoint topic, and a principal with WRITE on one topic and DESCRIBE on
    all."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        self.broker = stack.brokers["b"]
        self.cluster, self.principal = Cluster(self.broker), Principal(self.broker, unique("worker"))
        # records with old timestamps must not expire in the middle of a test
        self.good = self.cluster.create(unique("good"), 2, {"retention.ms": "-1"})
        self.bad = self.cluster.create(unique("bad"), 2, {"retention.ms": "-1"})
        self.checkpoints, self.offsets, self.id = unique("checkpoints"), unique("offsets"), unique("id")
        self.cluster.create(self.checkpoints, configs={"cleanup.policy": "compact"})
        self.cluster.create(self.offsets, configs={"cleanup.policy": "compact"})
        for topic in (self.good[0].topic, self.checkpoints, self.offsets):
            self.principal.allow(TOPIC, topic, WRITE, DESCRIBE)
        self.principal.allow(TOPIC, self.bad[0].topic, DESCRIBE)
        self.principal.allow(TRANSACTIONAL_ID, self.id, WRITE, DESCRIBE, prefixed=True)

    @contextmanager
    def writer(self, guarantee: str, *, timeout: timedelta = timedelta(seconds=10)) -> Iterator[TargetWriter]:
        properties: Mapping[str, object] = {**self.principal.properties, "log_level": 0}
        common = {"checkpoint_topic": self.checkpoints, "offset_map_topic": self.offsets, "memory_bytes": MIB}
        made: TargetWriter
        if guarantee == "exactly-once":
            made = TransactionalWriter(properties, transactional_id=self.id, transaction_timeout=timeout, **common)  # type: ignore[arg-type]
        else:
            made = AtLeastOnceWriter({**properties, "topic.metadata.propagation.max.ms": 100}, **common)  # type: ignore[arg-type]
        try:
            yield made
        finally:
            made.close(timedelta(seconds=2))

    def records(self, partition: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.cluster.records(partition)]


@pytest.fixture
def target(stack: LocalStack, unique: Callable[[str], str]) -> Target:
    return Target(stack, unique)


def kinds(writer: TargetWriter, *partitions: TopicPartition, fence: object = None) -> dict[TopicPartition, FailureKind]:
    """The failures of a call with one run for each partition."""
    runs = [run_of(partition, [row(0)]) for partition in partitions]
    return {f.partition: f.kind for f in writer.deliver(runs, should_stop=never, fence=fence)}


def delivered_again(writer: TargetWriter, *partitions: TopicPartition) -> Sequence[RunFailed]:
    """The failures of a call with one run for each partition, as a caller sees them that tries again what may be tried
    at once: on a busy machine a client may end by a fatal error before it has read why the broker refused."""
    for _ in range(ATTEMPTS):
        failures = writer.deliver([run_of(p, [row(0)]) for p in partitions], should_stop=never)
        if FailureKind.RETRY_NOW not in {one.kind for one in failures}:
            break
    return failures


@GUARANTEES
def test_a_topic_without_write_permission(target: Target, guarantee: str) -> None:
    good, bad = target.good[0], target.bad[0]
    with target.writer(guarantee) as writer:
        found = kinds(writer, good, bad)
        if guarantee == "exactly-once":  # the client names no topic as the cause
            assert found == {good: FailureKind.DELIVER_SEPARATELY, bad: FailureKind.DELIVER_SEPARATELY}
        else:
            assert found.pop(bad) is FailureKind.DENIED
            assert set(found.values()) <= {FailureKind.RETRY_NOW}
        assert kinds(writer, good) == {}
        [denied, other] = delivered_again(writer, *target.bad)
        assert [denied.kind, other.kind] == [FailureKind.DENIED] * 2
        assert "TOPIC_AUTHORIZATION_FAILED" in denied.code
        assert "allow WRITE" in denied.reason
        assert target.records(bad) == []
        assert target.records(good)[:1] == [b"v"]
        target.principal.allow(TOPIC, bad.topic, WRITE)
        assert wait_until(lambda: kinds(writer, bad) == {}, PATIENCE)


@GUARANTEES
@pytest.mark.parametrize("own", ["checkpoints", "offsets"])
def test_a_topic_of_ours_without_write_permission(target: Target, guarantee: str, own: str) -> None:
    topic = getattr(target, own)
    target.principal.forbid(TOPIC, topic, WRITE)
    with target.writer(guarantee) as writer:
        for _ in range(2):
            with pytest.raises(WriterRefused, match=f"{topic}.*TOPIC_AUTHORIZATION_FAILED.*allow WRITE"):
                kinds(writer, *target.good)
        target.principal.allow(TOPIC, topic, WRITE)
        assert kinds(writer, *target.good) == {}
    if guarantee == "exactly-once":
        assert target.records(target.good[0]) == [b"v"]


@pytest.mark.long
@GUARANTEES
@pytest.mark.parametrize("own", ["checkpoints", "offsets"])
def test_a_topic_of_ours_that_is_deleted(target: Target, guarantee: str, own: str) -> None:
    topic = getattr(target, own)
    with target.writer(guarantee) as writer:
        assert kinds(writer, *target.good) == {}
        target.cluster.delete(topic)
        for _ in range(2):
            with pytest.raises(WriterRefused, match=f"{topic} does not exist"):
                kinds(writer, *target.good)
        target.cluster.create(topic, configs={"cleanup.policy": "compact"})
        assert wait_until(lambda: delivered(writer, target.good), PATIENCE)
    if guarantee == "exactly-once":
        assert target.records(target.good[0]) == [b"v"] * 2


def delivered(writer: TargetWriter, partitions: Sequence[TopicPartition]) -> bool:
    """A topic that was just created may be known to one broker but not to the client."""
    try:
        return kinds(writer, *partitions) == {}
    except WriterRefused:
        return False


def test_a_transactional_id_without_write_permission(target: Target) -> None:
    with target.writer("exactly-once") as writer:
        target.principal.forbid(TRANSACTIONAL_ID, target.id, WRITE, prefixed=True)
        for _ in range(2):
            with pytest.raises(WriterRefused, match=r"TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*allow WRITE and DESCRIBE"):
                kinds(writer, target.good[0])
        target.principal.allow(TRANSACTIONAL_ID, target.id, WRITE, prefixed=True)
        assert kinds(writer, target.good[0]) == {}
        target.principal.forbid(TRANSACTIONAL_ID, target.id, WRITE, prefixed=True)  # after its producer has started
        with pytest.raises(WriterRefused, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            kinds(writer, target.good[0])
        target.principal.allow(TRANSACTIONAL_ID, target.id, WRITE, prefixed=True)
        assert kinds(writer, target.good[0]) == {}
    assert target.records(target.good[0]) == [b"v"] * 2


def test_a_transaction_timeout_above_the_broker_s_limit(target: Target) -> None:
    limit = r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"
    with (
        target.writer("exactly-once", timeout=timedelta(minutes=16)) as writer,
        pytest.raises(WriterRefused, match=limit),
    ):
        kinds(writer, target.good[0])
    assert target.records(target.good[0]) == []


def test_a_group_without_read_permission(target: Target, unique: Callable[[str], str]) -> None:
    group, topic = unique("group"), target.good[0].topic
    with ExitStack() as around:
        placement = KafkaPlacement(target.cluster.properties, group_id=group)
        around.callback(placement.close, timedelta(seconds=5))
        placement.subscribe([topic], IgnoringListener())
        assert wait_until(lambda: placement.poll(timedelta()) == [] and placement.fence() is not None, PATIENCE)
        writer = around.enter_context(target.writer("exactly-once"))
        with pytest.raises(WriterRefused, match=r"GROUP_AUTHORIZATION_FAILED.*allow READ"):
            kinds(writer, target.good[0], fence=placement.fence())
        target.principal.allow(GROUP, group, READ)
        # the group's offsets are offsets of the destination
        assert kinds(writer, target.good[0], fence=placement.fence()) == {target.good[0]: FailureKind.DENIED}
        target.principal.allow(TOPIC, topic, READ)
        assert kinds(writer, target.good[0], fence=placement.fence()) == {}
    assert target.records(target.good[0]) == [b"v"]


def test_a_partition_is_read_without_permission_on_any_group(target: Target) -> None:
    """The client looks up the coordinator of a group that it never joins; its errors are no progress either."""
    partition = target.good[0]
    target.cluster.put(partition.topic, b"k", b"v")
    target.principal.allow(TOPIC, partition.topic, READ)
    properties = {**target.principal.properties, "log_level": 0}
    assert sum(batch.num_rows for batch in read_partition(properties, partition, 0, 1)) == 1
    with pytest.raises(BrokerUnavailable, match="nothing came for"):
        list(read_partition(properties, partition, 0, 2, patience=timedelta(seconds=3)))
    target.principal.forbid(TOPIC, partition.topic, READ)
    with pytest.raises(TargetError, match=f"read {partition}.*allow READ on the topic"):
        list(read_partition(properties, partition, 0, 1))


class IgnoringListener:
    def assigned(self, partitions: object) -> None: ...

    def revoked(self, partitions: object) -> None: ...

    def lost(self, partitions: object) -> None: ...


@pytest.mark.parametrize("hole", [1, 4])
def test_a_hole_in_a_topic_without_write_permission(target: Target, hole: int) -> None:
    """The client does not report why: it registers no partition, and no marker ever comes."""
    bad = target.bad[0]
    admin = KafkaAdmin(target.principal.properties)
    timeout = timedelta(seconds=10)
    properties = {**target.principal.properties, "log_level": 0}
    with closing(
        HoleFiller(
            transactional_properties(properties, memory_bytes=MIB, transaction_timeout=timeout),
            transactional_id=f"{target.id}.holes",
            sample=run_of(bad, [row(hole)]),
            stable_end=lambda: admin.stable_offsets([bad])[bad],
            memory_bytes=MIB,
        )
    ) as filler:
        with pytest.raises(RunEnded) as ended:
            filler.fill(0, hole, never, most=1)
        assert ended.value.failure.kind is FailureKind.DENIED
        assert ended.value.failure.code == "TOPIC_AUTHORIZATION_FAILED"
        assert "allow WRITE" in ended.value.failure.reason
        target.principal.allow(TOPIC, bad.topic, WRITE)

        def is_filled() -> bool:
            try:
                return filler.fill(0, hole, never, most=1) == hole
            except RunEnded:  # the right has not arrived at the broker
                return False

        assert wait_until(is_filled, PATIENCE)
