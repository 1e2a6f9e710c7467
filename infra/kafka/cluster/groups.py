"""Consumer groups with their state and offsets, without joining them: GroupReader on the Kafka client."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TypeVar

from confluent_kafka import ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, GroupMetadata  # type: ignore[attr-defined]  # its stubs hide it

from formats.control.group_snapshot import CLASSIC, CONSUMER, OTHER_KIND
from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import Committed, GroupFacts, TopicPartition
from infra.contracts.groups import GroupListing
from infra.kafka.client.errors import describe_error, error_of, translate
from infra.kafka.client.properties import outsider_properties
from infra.kafka.cluster.admin_connection import AdminConnection, ClusterUnreachable
from infra.kafka.cluster.group_offsets import GroupOffsets
from infra.runtime.lifecycle import Deadline, Stop

T = TypeVar("T")
RETRY_AFTER = timedelta(milliseconds=100)
ATTEMPT = timedelta(seconds=5)
UNKNOWN_GROUP = GroupFacts(state="dead", members=0, partitions=frozenset())
_ABSENT = KafkaError.GROUP_ID_NOT_FOUND  # before KIP-1043 brokers answer with the state "dead" instead


class KafkaGroups:
    """A GroupReader. Each call waits at most about `timeout`."""

    def __init__(
        self,
        admin: Mapping[str, str],
        consumer: Mapping[str, str],
        *,
        timeout: timedelta = timedelta(seconds=30),
        first_contact: timedelta = ATTEMPT,
        connection: AdminConnection | None = None,
    ) -> None:
        """`admin`, `consumer`: properties of such clients. `first_contact`: see AdminConnection. `connection`: shared
        with the process's other admin requests, in place of one of `admin`."""
        self._connection = connection or AdminConnection(
            admin, timeout=min(ATTEMPT, timeout), first_contact=first_contact
        )
        self._consumer = consumer
        self._timeout = timeout
        self._never = Stop()

    def listing(self) -> GroupListing:
        client = self._connection.client
        operation = "list the consumer groups"
        found = self._ask(lambda seconds: client.list_consumer_groups(request_timeout=seconds), operation)
        errors = [] if found is None else found.errors  # of brokers; None is an answer about one group only
        if found is None or (errors and not found.valid):
            raise translate(errors[0], operation) if errors else BrokerUnavailable(f"{operation}: no answer")
        problem = f"{operation}: groups of a broker may be missing: {describe_error(errors[0])}" if errors else ""
        return GroupListing({one.group_id: _kind(one.type) for one in found.valid}, problem)

    def others(self) -> Mapping[str, str]:
        """By the kind: of those with the classic protocol, as Kafka Connect's "connect"; share and streams groups are
        alike."""
        groups = self._all_kinds("")
        listing = self.listing()  # after it, so that a group that is new has its kind
        if listing.problem:
            raise BrokerUnavailable(listing.problem)
        kinds = {str(one.id): str(one.protocol_type or OTHER_KIND) for one in groups}
        return {group_id: kind for group_id, kind in kinds.items() if group_id not in listing.kinds}

    def member_count(self, group_id: str) -> int:
        """Of a group of any kind; `facts` knows consumer groups only. 0 when there is no such group."""
        return sum(len(one.members) for one in self._all_kinds(group_id) if str(one.id) == group_id)

    def _all_kinds(self, group_id: str) -> Sequence[GroupMetadata]:
        """By a request of librdkafka's that shows groups of all kinds. `group_id`: only this one; empty: all."""
        operation = f"describe group {group_id}" if group_id else "list the groups of all kinds"
        limit = min(ATTEMPT, self._timeout).total_seconds()
        # what the client names instead shows no group of another kind
        warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)
        client = self._connection.client
        ask = partial(client.list_groups, group_id) if group_id else client.list_groups
        try:
            return self._connection.wait_for(lambda: ask(timeout=limit), operation)
        except KafkaException as error:
            raise translate(error, operation) from error

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

    def operations(self, group_id: str) -> Collection[str] | None:
        """What this principal may do with a group, which need not exist, by the names of ACLs; None: the broker does
        not say. Of a group that may not be described, nothing."""
        client = self._connection.client
        try:
            found = self._ask(
                lambda seconds: client.describe_consumer_groups(
                    [group_id], include_authorized_operations=True, request_timeout=seconds
                )[group_id],
                f"describe group {group_id}",
            )
        except TargetError:
            return frozenset()
        return None if found is None else operation_names(found.authorized_operations)

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Uses a consumer client, which lives as long as the call: the admin client's request for offsets aborts the
        process when the broker answers that it is not the group's coordinator (seen in librdkafka 2.16: the handler
        expects a group member). A new cluster gives that answer at first; the request is then repeated."""
        properties = outsider_properties(self._consumer, group_id)
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


def operation_names(operations: Sequence[AclOperation] | None) -> Collection[str] | None:
    return None if operations is None else frozenset(one.name for one in operations)


def _kind(kind: ConsumerGroupType) -> str:
    """Brokers before Kafka 3.8 name none, and have the classic one only."""
    return CONSUMER if kind is ConsumerGroupType.CONSUMER else CLASSIC
