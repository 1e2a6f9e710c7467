"""Offsets of consumer groups, committed by a client that is no member: Kafka takes them only while the group has none.

Each call has a client of its own, since a client belongs to one group. It never joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.groups import GroupIsActive
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import error_of, translate
from infra.kafka.client.properties import outsider_properties
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Deadline, Stop

RETRY_AFTER = timedelta(milliseconds=100)
POLL_TIMEOUT = timedelta(milliseconds=5)  # a poll that has called back waits on to its end
ACTIVE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)
"""Answers to a commit by somebody who is no member of a group that has some."""


class KafkaGroupCommits:
    """A GroupWriter."""

    def __init__(self, consumer: Mapping[str, str], *, timeout: timedelta = timedelta(seconds=30)) -> None:
        """`consumer`: properties of such a client. `timeout`: limit of each call."""
        self._consumer, self._timeout = consumer, timeout
        self._never = Stop()

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        *,
        before_again: Callable[[], None] = lambda: None,
    ) -> None:
        operation = f"commit offsets of group {group_id}"
        deadline = Deadline(self._timeout)
        while True:
            with durable(Step.COMMIT_GROUP):
                error = self._answer(group_id, offsets, operation, deadline)
            if error is None:
                return
            if error.code() in ACTIVE:
                raise GroupIsActive(f"{operation}: it has members ({error.name()})")
            problem = translate(error, operation, needs="READ")
            if not isinstance(problem, BrokerUnavailable) or deadline.expired:
                raise problem
            self._never.wait(RETRY_AFTER)
            before_again()

    def _answer(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed], operation: str, deadline: Deadline
    ) -> KafkaError | None:
        """None when all are stored. The call that waits for the answer itself would wait for ever while no coordinator
        is known, so the answer is polled for."""
        answers: list[KafkaError | None] = []

        def committed(error: KafkaError | None, partitions: list[ClientPartition]) -> None:
            answers.append(error or next((one.error for one in partitions if one.error is not None), None))

        try:
            client = connect(Consumer, {**outsider_properties(self._consumer, group_id), "on_commit": committed})
        except KafkaException as error:
            raise translate(error, operation) from error
        try:
            client.commit(
                offsets=[
                    ClientPartition(p.topic, p.partition, one.next_offset, metadata=one.metadata)
                    for p, one in offsets.items()
                ],
                asynchronous=True,
            )
            while not answers and not deadline.expired:
                client.poll(POLL_TIMEOUT.total_seconds())
        except KafkaException as error:
            return error_of(error)
        finally:
            client.close()
        if not answers:  # the close may bring one, too
            raise BrokerUnavailable(f"{operation}: no answer within {self._timeout}")
        return answers[0]
