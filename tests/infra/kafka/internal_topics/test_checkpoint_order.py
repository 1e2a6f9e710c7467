"""Order per key in the checkpoint topic when its partition count changes, with every writer, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from formats.errors import OwnershipLost
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Parked
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun, TargetWriter
from infra.kafka.internal_topics.checkpoint_editor import KafkaCheckpointEditor
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.producer.at_least_once import AtLeastOnceWriter
from infra.kafka.producer.ownership import Owner
from infra.kafka.producer.transactional import TransactionalWriter
from infra.local.stack import LocalStack
from tests.contracts.target import never
from tests.infra.cluster import Cluster

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 4, tzinfo=UTC)
MIB = 1 << 20
FOREIGN = 60_000  # foreign records
KEYS = 20
GROWN = 3  # partitions


class Topic:
    """A checkpoint topic and its writers."""

    def __init__(self, cluster: Cluster, name: str, target: Sequence[TopicPartition]) -> None:
        self.cluster, self.name, self.target = cluster, name, target
        self._properties = cluster.properties | {"log_level": 0}

    @contextmanager
    def at_least_once(self) -> Iterator[TargetWriter]:
        writer = AtLeastOnceWriter(
            self._properties, checkpoint_topic=self.name, offset_map_topic=self.name, memory_bytes=MIB
        )
        yield writer
        writer.close(timedelta(seconds=5))

    @contextmanager
    def transactional(self) -> Iterator[TransactionalWriter]:
        writer = TransactionalWriter(
            self._properties,
            transactional_id=self.name,
            exclusive=False,
            transaction_timeout=timedelta(seconds=20),
            checkpoint_topic=self.name,
            offset_map_topic=self.name,
            memory_bytes=MIB,
        )
        yield writer
        writer.close(timedelta(seconds=5))

    def deliver(self, writer: TargetWriter, next_offset: int) -> None:
        runs = [
            TargetRun(where, (), 0, 0, key(where.partition), Checkpoint(next_offset, "id", AT, writer.author), 0, 0)
            for where in self.target
        ]
        assert list(writer.deliver(runs, should_stop=never)) == []

    def editor(self) -> closing[KafkaCheckpointEditor]:
        return closing(KafkaCheckpointEditor(self._properties, self.name))

    def store(self) -> closing[KafkaCheckpointStore]:
        return closing(KafkaCheckpointStore(self._properties | {"fetch.wait.max.ms": 50}, self.name))

    def positions(self) -> dict[int, int | str]:
        """Read by a new reader that fetches the records of all partitions interleaved."""
        with self.store() as store:
            found = store.read()
        return {k.source.partition: w.next_offset if isinstance(w, Checkpoint) else str(w) for k, w in found.items()}

    def grow(self) -> None:
        self.cluster.add_partition(self.name, GROWN)


def key(number: int) -> CheckpointKey:
    return CheckpointKey(SourcePartition("a", "orders", number), "copy")


@pytest.fixture
def topic(stack: LocalStack, unique: Callable[[str], str]) -> Topic:
    cluster = Cluster(stack.brokers["b"])
    name = unique("checkpoint")
    cluster.create(name, configs={"cleanup.policy": "compact"})
    return Topic(cluster, name, cluster.create(unique("target"), KEYS))


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at_least_once", "transactional"])
def test_positions_stay_correct_in_a_topic_that_grew(topic: Topic, guarantee: str) -> None:
    """An operator's seed, deliveries after it, and a topic that grew in between; foreign records come first."""
    with topic.cluster.producer(**{"linger.ms": 50, "queue.buffering.max.messages": FOREIGN + 1}) as others:
        for n in range(FOREIGN):
            others.produce(topic.name, b"%d" % n, b"foreign-%d" % n, 0)
    with topic.editor() as editor:
        for number in range(KEYS):
            editor.seed(key(number), Checkpoint(100, "id", AT, Author.SEED))
            editor.park(key(number), Parked(100, "before it grew", AT))
    with topic.store() as running, getattr(topic, guarantee)() as writer:
        topic.deliver(writer, 200)
        assert set(running.read().values()) == {Checkpoint(200, "id", AT, writer.author)}
        topic.grow()
        writer.close(timedelta(seconds=5))  # a client that learns of new partitions at once
        topic.deliver(writer, 500)
        with topic.editor() as editor:
            for number in range(KEYS):
                editor.park(key(number), None)
        assert set(running.read().values()) == {Checkpoint(500, "id", AT, writer.author)}
        assert running.parked() == {}
    for _ in range(3):
        assert topic.positions() == dict.fromkeys(range(KEYS), 500)


def test_an_owner_record_is_found_in_a_topic_that_grew(topic: Topic) -> None:
    with (
        topic.store() as first_reads,
        topic.store() as second_reads,
        topic.transactional() as first,
        topic.transactional() as second,
    ):
        first_word = Owner(topic.name, first_reads)
        first.take_over(timedelta(seconds=30), first_word)
        topic.grow()
        second_word = Owner(topic.name, second_reads)
        second.take_over(timedelta(seconds=30), second_word)
        second_word.confirm()
        with pytest.raises(OwnershipLost):
            first_word.confirm()


def test_our_records_are_in_the_first_partition_only(topic: Topic) -> None:
    topic.grow()
    with topic.at_least_once() as writer:
        topic.deliver(writer, 1)
    with topic.transactional() as writer:
        topic.deliver(writer, 2)
    with topic.editor() as editor:
        for number in range(KEYS):
            editor.park(key(number), Parked(1, "why", AT))
            editor.seed(key(number), Checkpoint(3, "id", AT, Author.SEED))
    counts = [len(topic.cluster.messages(TopicPartition(topic.name, n))) for n in range(GROWN)]
    assert counts == [4 * KEYS, 0, 0]
