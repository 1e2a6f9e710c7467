"""How a cluster and its topics are set up, and what this principal may do there. Changes nothing.

What a principal may do is asked of the broker, which judges by its ACLs: no right is tried out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    ConfigResource,
    ResourceType,
)

from formats.errors import TargetError
from infra.contracts.deployment import BrokerNode, ClusterTopic
from infra.kafka.client.errors import error_of, translate
from infra.kafka.cluster.admin import ABSENT, KafkaAdmin
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.groups import operation_names

T = TypeVar("T")


class KafkaSetup:
    """Each call waits at most about `timeout` for the brokers. Raises BrokerUnavailable, and TargetError where this
    principal may not ask."""

    def __init__(self, admin: Mapping[str, str], *, timeout: timedelta) -> None:
        """`admin`: properties of such a client. Raises ConfigError."""
        self._connection = AdminConnection(admin, timeout=timeout)
        self._timeout, self._seconds = timeout, timeout.total_seconds()

    def brokers(self) -> Sequence[BrokerNode]:
        operation = "list the brokers"
        try:
            found = self._connection.wait_for(
                lambda: self._connection.client.list_topics(timeout=self._seconds), operation
            )
        except KafkaException as error:
            raise translate(error, operation) from error
        return [BrokerNode(one.id, f"{one.host}:{one.port}") for one in found.brokers.values()]

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """Its settings, defaults included; empty for those without a value. Needs DESCRIBE_CONFIGS on the cluster."""
        resource = ConfigResource(ResourceType.BROKER, str(broker_id))
        asked = self._connection.client.describe_configs([resource], request_timeout=self._seconds)
        found = self._answer(asked[resource], f"describe the settings of broker {broker_id}", "DESCRIBE_CONFIGS")
        return {name: entry.value or "" for name, entry in found.items()}

    def topics(self, admin: KafkaAdmin, names: Collection[str]) -> Mapping[str, ClusterTopic | TargetError]:
        """Each topic, or why it cannot be described; topics that do not exist are left out."""
        if not names:
            return {}
        asked = self._connection.client.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=self._seconds
        )
        found: dict[str, ClusterTopic | TargetError] = {}
        for name, future in asked.items():
            try:
                found[name] = _topic(self._connection.wait(future, f"describe topic {name}"))
            except KafkaException as error:
                if error_of(error).code() in ABSENT:
                    continue
                problem = translate(error, f"describe topic {name}")
                if not isinstance(problem, TargetError):
                    raise problem from error
                found[name] = problem
        there = [name for name, one in found.items() if isinstance(one, ClusterTopic)]
        for name, configs in admin.configs_of(there).items():
            one = found[name]
            assert isinstance(one, ClusterTopic)
            refused = isinstance(configs, TargetError)
            found[name] = ClusterTopic(
                name=name,
                replicas=one.replicas,
                in_sync=one.in_sync,
                leaderless=one.leaderless,
                operations=one.operations,
                configs={} if isinstance(configs, TargetError) else configs,
                configs_problem=str(configs) if refused else "",
            )
        return found

    def _answer(self, future: Future[T], operation: str, needs: str) -> T:
        try:
            return self._connection.wait(future, operation)
        except KafkaException as error:
            raise translate(error, operation, needs) from error


def _topic(found: Any) -> ClusterTopic:
    partitions = sorted(found.partitions, key=lambda one: one.id)
    return ClusterTopic(
        name=found.name,
        replicas=[len(one.replicas) for one in partitions],
        in_sync=[len(one.isr) for one in partitions],
        leaderless=[one.id for one in partitions if one.leader is None or one.leader.id < 0],
        operations=operation_names(found.authorized_operations),
    )
