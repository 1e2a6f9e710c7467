"""Consumer groups seen from outside: ConsumerGroups on the Kafka client."""

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
LOOK_AGAIN = timedelta(milliseconds=100)
ATTEMPT = timedelta(seconds=5)
NOBODY = GroupFacts(state="dead", members=0, partitions=frozenset())
_ABSENT = KafkaError.GROUP_ID_NOT_FOUND  # brokers told "dead" instead before KIP-1043


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
        """Properties of an admin client and of a consumer. `first_contact`: see AdminConnection."""
        self._connection = AdminConnection(admin, timeout=min(ATTEMPT, timeout), first_contact=first_contact)
        self._client = self._connection.client
        self._consumer = consumer
        self._timeout = timeout
        self._never = Stop()

    def facts(self, group_id: str) -> GroupFacts:
        found = self._ask(
            lambda seconds: self._client.describe_consumer_groups([group_id], request_timeout=seconds)[group_id],
            f"describe group {group_id}",
        )
        if found is None:
            return NOBODY
        held = [p for m in found.members if m.assignment for p in m.assignment.topic_partitions or ()]
        return GroupFacts(
            state=found.state.name.lower(),
            members=len(found.members),
            partitions=frozenset(TopicPartition(p.topic, p.partition) for p in held),
        )

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """By a consumer's client: the admin client's own question for it ends the process when the broker answers that
        it does not coordinate the group (seen in librdkafka 2.16: it looks for the member that it is not). That answer,
        which a cluster gives in the first moments of its life, is asked for again."""
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
                self._never.wait(LOOK_AGAIN)

    def _ask(self, ask: Callable[[float], Future[T]], doing: str) -> T | None:
        """None when there is no such group. Asked more than once: the first question of a cluster's life has the
        broker make its topic of groups. The client never comes back from that, and then asks a broker that does not
        know yet that it coordinates (both seen)."""
        deadline = Deadline(self._timeout)
        while True:
            try:
                return self._connection.wait(ask(min(ATTEMPT, self._timeout).total_seconds()), doing)
            except ClusterUnreachable:
                raise
            except BrokerUnavailable:
                if deadline.expired:
                    raise
            except KafkaException as error:
                if error_of(error).code() == _ABSENT:
                    return None
                told = translate(error, doing)
                if deadline.expired or not isinstance(told, BrokerUnavailable):
                    raise told from error
            self._never.wait(LOOK_AGAIN)
