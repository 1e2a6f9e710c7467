"""Consumer groups seen from outside: ConsumerGroups on the Kafka client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import timedelta
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.client_log import client_log
from infra.kafka.errors import error_of, translate
from replicator.errors import BrokerUnavailable
from replicator.lifecycle import Deadline, Stop
from replicator.protocols import Committed, GroupFacts, TopicPartition

T = TypeVar("T")
LOOK_AGAIN = timedelta(milliseconds=100)
ATTEMPT = timedelta(seconds=5)
GRACE = timedelta(seconds=2)  # what a future gets beyond the client's own timeout
NOBODY = GroupFacts(state="dead", members=0, partitions=frozenset())
_ABSENT = KafkaError.GROUP_ID_NOT_FOUND  # brokers told "dead" instead before KIP-1043


class KafkaGroups:
    """A ConsumerGroups. Each call waits at most about `timeout`."""

    def __init__(self, properties: Mapping[str, str], *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._client = AdminClient(dict(properties), logger=client_log)
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

    def committed(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        doing = f"read the committed offsets of group {group_id}"
        asked = [ConsumerGroupTopicPartitions(group_id)]
        answer = self._ask(
            lambda seconds: self._client.list_consumer_group_offsets(asked, request_timeout=seconds)[group_id], doing
        )
        found: dict[TopicPartition, Committed] = {}
        for each in (answer.topic_partitions or ()) if answer is not None else ():
            if each.error is not None:  # an error is not an absence
                raise translate(each.error, f"{doing} for {each.topic}/{each.partition}")
            if each.offset >= 0:
                found[TopicPartition(each.topic, each.partition)] = Committed(
                    each.offset, each.metadata or "", each.leader_epoch
                )
        return found

    def _ask(self, ask: Callable[[float], Future[T]], doing: str) -> T | None:
        """None when there is no such group. Asked more than once: the first question of a cluster's life has the
        broker make its topic of groups. The client never comes back from that, and then asks a broker that does not
        know yet that it coordinates (both seen)."""
        deadline = Deadline(self._timeout)
        while True:
            try:
                return ask(min(ATTEMPT, self._timeout).total_seconds()).result((ATTEMPT + GRACE).total_seconds())
            except FutureTimeout as error:
                raise BrokerUnavailable(f"{doing}: no answer within {self._timeout}") from error
            except KafkaException as error:
                if error_of(error).code() == _ABSENT:
                    return None
                told = translate(error, doing)
                if deadline.expired or not isinstance(told, BrokerUnavailable):
                    raise told from error
            self._never.wait(LOOK_AGAIN)
