"""The coordinators of groups and transactions, which a new cluster does not have yet."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition

TIMEOUT_SECONDS = 60.0


def wait_for_coordinators(bootstrap: str, name: str) -> None:
    """Until there are some. The first group and the first transaction of a cluster wait up to seconds for them, and a
    measured start is of a cluster as users find it. `name`: of a group and a transactional id that nothing else uses.
    Raises KafkaException."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": name})) as member:
        member.committed([TopicPartition(name, 0)], timeout=TIMEOUT_SECONDS)
    Producer({"bootstrap.servers": bootstrap, "transactional.id": name}).init_transactions(TIMEOUT_SECONDS)
