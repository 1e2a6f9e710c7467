"""State and offsets of consumer groups, without joining them: ConsumerGroups on the Kafka client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import closing
from datetime import timedelta
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Committed, GroupFacts, TopicPartition
from infra.kafka.client.errors import error_of, translate
from infra.kafka.client.properties import lookup_properties
from infra.kafka.cluster.admin_connection import AdminConnection, ClusterUnreachable
from infra.kafka.cluster.group_offsets import GroupOffsets
from infra.runtime.lifecycle import Deadline, Stop

T = TypeVar("T")
RETRY_AFTER = timedelta(milliseconds=100)
ATTEMPT = timedelta(seconds=5)
UNKNOWN_GROUP = GroupFacts(state="dead", members=0, partitions=frozenset())
_ABSENT = KafkaError.GROUP_ID_NOT_FOUND  # before KIP-1043 brokers answer with the state "dead" instead


class KafkaGroups:
    """A ConsumerGroups. Each call waits at most about `timeout`."""

    def __init__(
        self,
        admin: Mapping[str, str],
        consumer: Mapping[str, str],
        *,
        timeout: timedelta = timedelta(seconds=30),
        first_contact: timedelta = ATTEMPT,
    ) -> None:
        """`admin`, `consumer`: properties of such clients. `first_contact`: see AdminConnection."""
        self._connection = AdminConnection(admin, timeout=min(ATTEMPT, timeout), first_contact=first_contact)
        self._consumer = consumer
        self._timeout = timeout
        self._never = Stop()

    def facts(self, group_id: str) -> GroupFacts:
        client = self._connection.client
        found = self._ask(
            lambda seconds: client.describe_consumer_groups([group_id], request_timeout=seconds)[group_id],
            f"describe group {group_id}",
        )
        if found is None:
            return UNKNOWN_GROUP
        assigned = [p for m in found.members if m.assignment for p in m.assignment.topic_partitions or ()]
        return GroupFacts(
            state=found.state.name.lower(),
            members=len(found.members),
            partitions=frozenset(TopicPartition(p.topic, p.partition) for p in assigned),
        )

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Uses a consumer client: the admin client's request for offsets aborts the process when the broker answers
        that it is not the group's coordinator (seen in librdkafka 2.16: the handler expects a group member). A new
        cluster gives that answer at first; the request is then repeated."""
        properties = {
            **lookup_properties(self._consumer),
            "group.id": group_id,
            "isolation.level": "read_uncommitted",  # pending offsets are not waited for
            "enable.auto.commit": "false",
        }
        deadline = Deadline(self._timeout)
        with closing(GroupOffsets(properties, timeout=self._timeout)) as offsets:
            while True:
                try:
                    return offsets.committed(partitions)
                except BrokerUnavailable:
                    if deadline.expired:
                        raise
                self._never.wait(RETRY_AFTER)

    def _ask(self, ask: Callable[[float], Future[T]], operation: str) -> T | None:
        """None when there is no such group. Repeats the request: the first one on a new cluster makes the broker create
        `__consumer_offsets`, and the client never returns from it; the next one reaches a broker that does not know yet
        that it is the coordinator (both seen)."""
        deadline = Deadline(self._timeout)
        while True:
            try:
                return self._connection.wait(ask(min(ATTEMPT, self._timeout).total_seconds()), operation)
            except ClusterUnreachable:
                raise
            except BrokerUnavailable:
                if deadline.expired:
                    raise
            except KafkaException as error:
                if error_of(error).code() == _ABSENT:
                    return None
                problem = translate(error, operation)
                if deadline.expired or not isinstance(problem, BrokerUnavailable):
                    raise problem from error
            self._never.wait(RETRY_AFTER)
