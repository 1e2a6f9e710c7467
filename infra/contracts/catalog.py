"""What the control plane asks of a cluster and changes in it: topics with their configs, ACLs, ends of logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from formats.errors import ReplicatorError, TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigChange, ConfigValue
from infra.contracts.cluster import LogEnds, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """A topic without its configs."""

    name: str
    topic_id: str  # empty where brokers have none
    partitions: int
    replication_factor: int  # of its first partition


class NoAuthorizer(TargetError):
    """The cluster has no authorizer, so it has no ACLs."""


class OtherAccessControl(NoAuthorizer):
    """Something else than ACLs of Kafka decides who may do what in the cluster."""


class CatalogAdmin(Protocol):
    """Safe to call from several threads. Raises BrokerUnavailable; TargetError when a call is not authorised."""

    def shapes(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        """Topics that do not exist, or may not be described, are left out."""

    def config_values(self, names: Collection[str]) -> Mapping[str, Mapping[str, ConfigValue] | ReplicatorError]:
        """Every config of each topic, defaults included, without read-only and sensitive ones; or the topic's own
        error. Topics that do not exist are left out."""

    def acls(self) -> frozenset[AclBinding]:
        """Every binding of a topic or a group. Raises NoAuthorizer when the cluster has none, if the client can tell:
        else none are listed."""

    def sees_all_acls(self) -> bool:
        """Whether an empty answer of `acls` means that there is none: the cluster has an authorizer, and this principal
        may list ACLs. False when either is not known. Ask seldom: where no broker is alive at that moment, librdkafka
        2.16 ends the process."""

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions until there are so many. No error when there are as many or more already."""

    def change_configs(self, topic: str, change: ConfigChange) -> Mapping[str, str]:
        """Set and unset configs, each on its own if the cluster refuses them together: the refused ones with the
        cluster's reason."""

    def delete_topic(self, name: str) -> None:
        """With its records, for good. No error when it does not exist."""

    def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, str]:
        """Those that the cluster refuses, with its reason. No error for a binding that exists. Raises NoAuthorizer when
        the cluster has none."""

    def delete_acls(self, bindings: Collection[AclBinding]) -> None:
        """Exactly these. No error for a binding that does not exist."""


class LogEndReader(Protocol):
    """Ends of logs, of which some may not be read. Safe to call from several threads. Raises BrokerUnavailable."""

    def log_ends(
        self, partitions: Collection[TopicPartition], lows: Mapping[TopicPartition, int] | None = None
    ) -> Mapping[TopicPartition, LogEnds | ReplicatorError]:
        """Or the partition's own error, such as a missing right or a leader that is away. Partitions that do not exist
        are left out. `lows`: known log starts, which are not asked for again."""
