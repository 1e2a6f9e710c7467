"""Consumer groups of a real cluster, without the adapters under test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException, ShareConsumer
from confluent_kafka import TopicPartition as Place

from infra.contracts.cluster import Committed, TopicPartition
from infra.local.waiting import wait_until
from tests.infra.cluster import QUIET

PATIENCE = timedelta(seconds=60)


def commit(properties: Mapping[str, str], group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """Without being a member."""
    consumer = Consumer({**properties, **QUIET, "group.id": group_id, "enable.auto.commit": False})
    with closing(consumer):
        assert wait_until(lambda: _has_committed(consumer, offsets), PATIENCE)


@contextmanager
def member(
    properties: Mapping[str, str], group_id: str, kind: str, offsets: Mapping[TopicPartition, Committed]
) -> Iterator[None]:
    """A member that has joined with the protocol `kind`, and has committed `offsets`, in one topic, while the body
    runs."""
    own = {"group.id": group_id, "group.protocol": kind, "enable.auto.commit": False}
    with closing(Consumer({**properties, **QUIET, **own})) as consumer:
        consumer.subscribe([min(offsets).topic])

        def joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        assert wait_until(joined, PATIENCE)
        assert wait_until(lambda: _has_committed(consumer, offsets), PATIENCE)
        yield


@contextmanager
def share_member(properties: Mapping[str, str], group_id: str, topic: str) -> Iterator[None]:
    """A member of a share group while the body runs; it joins meanwhile."""
    consumer = ShareConsumer({**properties, **QUIET, "group.id": group_id})
    with closing(consumer):
        consumer.subscribe([topic])
        yield


def _has_committed(consumer: Consumer, offsets: Mapping[TopicPartition, Committed]) -> bool:
    """False while a new cluster has no coordinator yet."""
    places = [
        Place(p.topic, p.partition, one.next_offset, one.metadata, -1 if one.leader_epoch is None else one.leader_epoch)
        for p, one in offsets.items()
    ]
    try:
        consumer.commit(offsets=places, asynchronous=False)
    except KafkaException:
        return False
    return True
