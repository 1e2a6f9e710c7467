"""What a cluster has, and what is changed in it, for the control plane: CatalogAdmin on the Kafka client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclBinding as ClientAcl  # type: ignore[attr-defined]
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import ConfigSource as ClientSource  # type: ignore[attr-defined]

from formats.errors import ReplicatorError, TargetError
from formats.policies.acls import GROUP, TOPIC, AclBinding
from formats.policies.topic_configs import ConfigChange, ConfigSource, ConfigValue
from infra.contracts.catalog import NoAuthorizer, OtherAccessControl, TopicShape
from infra.kafka.client.errors import describe_error, error_of, translate
from infra.kafka.cluster.admin import ABSENT, KNOWN_WITHIN, POLL_INTERVAL, topic_id_of
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.scram_users import may_describe_cluster
from infra.runtime.lifecycle import Deadline, Stop
from infra.settings.kafka import AUTH, MSK_IAM

T = TypeVar("T")
NO_ACLS = f'access to this cluster is controlled by AWS IAM ({AUTH} = "{MSK_IAM}"), and not by ACLs of Kafka'
BATCH = 500  # topics of one request: a broker answers with every config of each
AUTHORIZER = "authorizer.class.name"  # a broker's config
_SOURCES = {
    ClientSource.DYNAMIC_TOPIC_CONFIG: ConfigSource.TOPIC,
    ClientSource.DYNAMIC_BROKER_CONFIG: ConfigSource.DYNAMIC_BROKER,
    ClientSource.DYNAMIC_DEFAULT_BROKER_CONFIG: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ClientSource.STATIC_BROKER_CONFIG: ConfigSource.STATIC_BROKER,
    ClientSource.DEFAULT_CONFIG: ConfigSource.DEFAULT,
}


class KafkaCatalogAdmin:
    """A CatalogAdmin. `connection`: shared with the process's other admin requests."""

    def __init__(self, connection: AdminConnection, stop: Stop | None = None) -> None:
        """`stop` ends waits."""
        self._connection = connection
        self._stop = stop or Stop()
        self._seconds = connection.timeout.total_seconds()

    def shapes(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        found = {}
        for some in _batches(names):
            futures = self._connection.client.describe_topics(TopicCollection(some), request_timeout=self._seconds)
            for name, future in futures.items():
                try:
                    topic = self._connection.wait(future, f"describe topic {name}")
                except KafkaException as error:
                    if error_of(error).code() in {*ABSENT, KafkaError.TOPIC_AUTHORIZATION_FAILED}:
                        continue
                    raise translate(error, f"describe topic {name}") from error
                found[name] = TopicShape(
                    name=name,
                    topic_id=topic_id_of(str(topic.topic_id or "")),
                    partitions=len(topic.partitions),
                    replication_factor=len(topic.partitions[0].replicas),
                )
        return found

    def config_values(self, names: Collection[str]) -> Mapping[str, Mapping[str, ConfigValue] | ReplicatorError]:
        found: dict[str, Mapping[str, ConfigValue] | ReplicatorError] = {}
        for some in _batches(names):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in some]
            futures = self._connection.client.describe_configs(resources, request_timeout=self._seconds)
            for resource, future in futures.items():
                operation = f"describe the configs of topic {resource.name}"
                try:
                    entries = self._connection.wait(future, operation)
                except KafkaException as error:
                    if error_of(error).code() not in ABSENT:
                        found[resource.name] = translate(error, operation, needs="DESCRIBE_CONFIGS")
                else:
                    found[resource.name] = {
                        name: ConfigValue(entry.value, _source(entry.source))
                        for name, entry in sorted(entries.items())
                        if entry.value is not None and not entry.is_read_only and not entry.is_sensitive
                    }
        return found

    def acls(self) -> frozenset[AclBinding]:
        self._require_acls("describe the ACLs")
        # librdkafka drops the error of this answer (seen with 2.16): without an authorizer, and without the right,
        # it lists nothing; only a creation fails by then
        found: set[AclBinding] = set()
        for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, GROUP)):
            anything: Any = None  # which the client takes for the name, the principal and the host
            every = AclBindingFilter(
                kind, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
            )
            future = self._connection.client.describe_acls(every, request_timeout=self._seconds)
            for acl in self._answer(future, "describe the ACLs", needs="DESCRIBE on the cluster"):
                found.add(
                    AclBinding(
                        resource_type=name,
                        resource_name=acl.name,
                        pattern_type=acl.resource_pattern_type.name,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation.name,
                        permission=acl.permission_type.name,
                    )
                )
        return frozenset(found)

    def sees_all_acls(self) -> bool:
        # the brokers first: librdkafka 2.16 aborts the process when the answer to describe_cluster names no live broker
        # (see `KafkaAdmin.cluster_id`), and where there is no authorizer the question is not asked at all
        return self._connection.has_acls and self._has_authorizer() and may_describe_cluster(self._connection)

    def _has_authorizer(self) -> bool:
        operation = "ask a broker for its authorizer"
        try:
            brokers = self._connection.wait_for(
                lambda: self._connection.client.list_topics(timeout=self._seconds), operation
            ).brokers
            if not brokers:
                return False
            broker = ConfigResource(ResourceType.BROKER, str(min(brokers)))
            futures = self._connection.client.describe_configs([broker], request_timeout=self._seconds)
            entry = self._connection.wait(futures[broker], operation).get(AUTHORIZER)
        except KafkaException:
            return False  # refused: it is not known
        return entry is not None and bool(entry.value)

    def grow(self, topic: str, partitions: int) -> None:
        operation = f"grow topic {topic} to {partitions} partitions"
        futures = self._connection.client.create_partitions(
            [NewPartitions(topic, partitions)], operation_timeout=self._seconds, request_timeout=self._seconds
        )
        try:
            self._connection.wait(futures[topic], operation)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.INVALID_PARTITIONS and self._has(topic, partitions):
                return  # it is large enough already: another process was faster
            raise translate(error, operation, needs="ALTER") from error

    def change_configs(self, topic: str, change: ConfigChange) -> Mapping[str, str]:
        entries = [_entry(name, value, AlterConfigOpType.SET) for name, value in sorted(change.set.items())]
        entries += [_entry(name, None, AlterConfigOpType.DELETE) for name in sorted(change.unset)]
        if not entries:
            return {}
        if not self._change(topic, entries):
            return {}
        # one config that the cluster refuses fails the request: each alone, so that the others are applied
        refused = ((entry.name, self._change(topic, [entry])) for entry in entries)
        return {name: reason for name, reason in refused if reason}

    def delete_topic(self, name: str) -> None:
        operation = f"delete topic {name}"
        futures = self._connection.client.delete_topics(
            [name], operation_timeout=self._seconds, request_timeout=self._seconds
        )
        try:
            self._connection.wait(futures[name], operation)
        except KafkaException as error:
            if error_of(error).code() not in ABSENT:
                raise translate(error, operation, needs="DELETE") from error

    def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, str]:
        ours = {_client_binding(ClientAcl, one): one for one in bindings}
        refused: dict[AclBinding, str] = {}
        if not ours:
            return refused
        self._require_acls("create ACLs")
        for binding, future in self._connection.client.create_acls(list(ours), request_timeout=self._seconds).items():
            operation = f"create the ACL {ours[binding]}"
            try:
                self._answer(future, operation, needs="ALTER on the cluster")
            except NoAuthorizer:
                raise
            except TargetError as error:
                refused[ours[binding]] = str(error)
        return refused

    def delete_acls(self, bindings: Collection[AclBinding]) -> None:
        filters = [_client_binding(AclBindingFilter, one) for one in bindings]
        if not filters:
            return
        self._require_acls("delete ACLs")
        for future in self._connection.client.delete_acls(filters, request_timeout=self._seconds).values():
            self._answer(future, "delete ACLs", needs="ALTER on the cluster")

    def _change(self, topic: str, entries: Sequence[Any]) -> str:
        """The reason if the cluster refuses them; empty once they are applied."""
        operation = f"change the configs of topic {topic}"
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(entries))
        futures = self._connection.client.incremental_alter_configs([resource], request_timeout=self._seconds)
        try:
            self._connection.wait(futures[resource], operation)
        except KafkaException as error:
            translated = translate(error, operation, needs="ALTER_CONFIGS")
            if isinstance(translated, TargetError) and error_of(error).code() not in ABSENT:
                return describe_error(error)
            raise translated from error
        return ""

    def _has(self, topic: str, partitions: int) -> bool:
        """Whether it has so many. The controller refuses at once what other brokers do not know of yet."""
        deadline = Deadline(KNOWN_WITHIN)
        while (shape := self.shapes([topic]).get(topic)) is not None and shape.partitions < partitions:
            if deadline.expired or self._stop.wait(POLL_INTERVAL):
                return False
        return shape is not None

    def _require_acls(self, operation: str) -> None:
        if not self._connection.has_acls:
            raise OtherAccessControl(f"{operation}: {NO_ACLS}")

    def _answer(self, future: Future[T], operation: str, *, needs: str) -> T:
        try:
            return self._connection.wait(future, operation)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.SECURITY_DISABLED:
                raise NoAuthorizer(f"{operation}: the cluster has no authorizer") from error
            raise translate(error, operation, needs=needs) from error


def _client_binding(kind: Any, binding: AclBinding) -> Any:
    return kind(
        ResourceType[binding.resource_type],
        binding.resource_name,
        ResourcePatternType[binding.pattern_type],
        binding.principal,
        binding.host,
        AclOperation[binding.operation],
        AclPermissionType[binding.permission],
    )


def _entry(name: str, value: str | None, operation: Any) -> Any:
    return ConfigEntry(name, value, incremental_operation=operation)


def _source(number: int) -> ConfigSource:
    try:
        return _SOURCES.get(ClientSource(number), ConfigSource.UNKNOWN)
    except ValueError:
        return ConfigSource.UNKNOWN


def _batches(names: Collection[str]) -> Iterator[list[str]]:
    rest = iter(sorted(names))
    while some := list(islice(rest, BATCH)):
        yield some
