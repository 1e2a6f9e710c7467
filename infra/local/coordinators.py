"""The coordinators of groups and transactions, which a new cluster does not have yet."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from infra.local.waiting import wait_until

TIMEOUT = timedelta(seconds=60)
_NOT_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def wait_for_coordinators(bootstrap: str, name: str) -> None:
    """Until there are some. The first group and the first transaction of a cluster wait up to seconds for them, and a
    measured start is of a cluster as users find it. `name`: of a group and a transactional id that nothing else uses.
    Raises KafkaException and TimeoutError."""
    seconds = TIMEOUT.total_seconds()

    def is_answered() -> bool:
        try:
            member.committed([TopicPartition(name, 0)], timeout=seconds)
        except KafkaException as error:  # also while the one that was found is not it yet, or no more
            if error.args[0].code() not in _NOT_YET:
                raise
            return False
        return True

    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": name})) as member:
        if not wait_until(is_answered, TIMEOUT):
            raise TimeoutError(f"group {name} has no coordinator within {TIMEOUT}")
    Producer({"bootstrap.servers": bootstrap, "transactional.id": name}).init_transactions(seconds)
