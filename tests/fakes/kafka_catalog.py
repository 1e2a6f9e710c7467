"""What the control plane asks of a cluster, in memory, on the logs of a FakeBroker. Passes the contracts of
tests/contracts/catalog_admin.py.

catalog = FakeCatalogAdmin(FakeAdmin(broker))
catalog.configs["t"] = {"retention.ms": "1"}      configs of the topic itself; the others have their defaults
catalog.refuses_configs["t"] = "why"          t's configs may not be described
catalog.bindings.add(AclBinding(...))
catalog.no_acls = "why"                       there is no authorizer
catalog.other_access = "why"                  something else than ACLs decides who may do what
catalog.sees_all = True                       it may list ACLs, and there is an authorizer
catalog.keeps["t"] = "why"                    t may not be deleted
catalog.refuses_acls = "why"                  ACLs may not be created

ends = FakeLogEnds(broker)
ends.refuses[P] = "why"                       P's offsets may not be read
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from formats.errors import BrokerUnavailable, ReplicatorError, TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigChange, ConfigSource, ConfigValue
from infra.contracts.catalog import NoAuthorizer, OtherAccessControl, TopicShape
from infra.contracts.cluster import LogEnds, TopicPartition
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker

DEFAULTS = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "1073741824"}
NUMBERS = frozenset({"retention.ms", "segment.bytes"})


@dataclass(slots=True)
class FakeCatalogAdmin:
    admin: FakeAdmin  # its topics and their ids; away when it is
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    refuses_configs: dict[str, str] = field(default_factory=dict)
    bindings: set[AclBinding] = field(default_factory=set)
    no_acls: str = ""
    other_access: str = ""
    refuses_acls: str = ""
    sees_all: bool = False
    keeps: dict[str, str] = field(default_factory=dict)

    def shapes(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        visible = [name for name in names if name not in self.admin.hides]
        return {
            name: TopicShape(name=name, topic_id=facts.topic_id, partitions=facts.partition_count, replication_factor=1)
            for name, facts in self.admin.describe(visible).items()
        }

    def config_values(self, names: Collection[str]) -> Mapping[str, Mapping[str, ConfigValue] | ReplicatorError]:
        found: dict[str, Mapping[str, ConfigValue] | ReplicatorError] = {}
        for name in self.shapes(names):
            if (why := self.refuses_configs.get(name)) is not None:
                found[name] = TargetError(why)
            else:
                own = {key: ConfigValue(value, ConfigSource.TOPIC) for key, value in self.configs.get(name, {}).items()}
                found[name] = {key: ConfigValue(value, ConfigSource.DEFAULT) for key, value in DEFAULTS.items()} | own
        return found

    def acls(self) -> frozenset[AclBinding]:
        if self.admin.away:
            raise BrokerUnavailable("acls: planned")
        if self.other_access:
            raise OtherAccessControl(self.other_access)
        if self.no_acls:
            raise NoAuthorizer(self.no_acls)
        return frozenset(self.bindings)

    def sees_all_acls(self) -> bool:
        if self.admin.away:
            raise BrokerUnavailable("sees_all_acls: planned")
        return self.sees_all and not self.no_acls

    def grow(self, topic: str, partitions: int) -> None:
        if topic not in self.shapes([topic]):
            raise TargetError(f"no topic {topic}")
        self.admin.broker.create(topic, partitions=partitions)

    def change_configs(self, topic: str, change: ConfigChange) -> Mapping[str, str]:
        if topic not in self.shapes([topic]):
            raise TargetError(f"no topic {topic}")
        refused = {
            name: f"{name}: {value} is not a number"
            for name, value in change.set.items()
            if name in NUMBERS and not value.isdecimal()
        }
        own = self.configs.setdefault(topic, {})
        own.update({name: value for name, value in change.set.items() if name not in refused})
        for name in change.unset:
            own.pop(name, None)
        return refused

    def delete_topic(self, name: str) -> None:
        if self.admin.away:
            raise BrokerUnavailable("delete_topic: planned")
        if name in self.keeps:
            raise TargetError(self.keeps[name])
        self.admin.broker.delete(name)
        self.configs.pop(name, None)

    def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, str]:
        self.acls()
        refused = {one: self.refuses_acls for one in bindings if self.refuses_acls}
        self.bindings |= set(bindings) - refused.keys()
        return refused

    def delete_acls(self, bindings: Collection[AclBinding]) -> None:
        self.acls()
        self.bindings -= set(bindings)


@dataclass(slots=True)
class FakeLogEnds:
    broker: FakeBroker
    refuses: dict[TopicPartition, str] = field(default_factory=dict)
    away: bool = False
    then: Callable[[], None] = lambda: None  # what happens once, after the next answer

    def log_ends(
        self, partitions: Collection[TopicPartition], lows: Mapping[TopicPartition, int] | None = None
    ) -> Mapping[TopicPartition, LogEnds | ReplicatorError]:
        if self.away:
            raise BrokerUnavailable("log_ends: planned")
        logs = {p: self.broker.logs[p] for p in partitions if p in self.broker.logs}
        ends = {
            p: LogEnds(low=(lows or {}).get(p, log.low), stable=log.stable, high=log.high) for p, log in logs.items()
        }
        found = ends | {p: TargetError(why) for p, why in self.refuses.items() if p in logs}
        then, self.then = self.then, lambda: None
        then()
        return found
