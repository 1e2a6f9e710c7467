"""A cluster's admin in memory, on the logs of a FakeBroker.

admin = FakeAdmin(broker)
admin.away = True              everything raises BrokerUnavailable
admin.refuses["t"] = "why"     creating t raises TargetError
admin.refuses_config = "x"     creating a topic with the config x raises TargetError
admin.hides["t"] = "why"       describing t raises TargetError, and no listing shows it
admin.keeps["t"] = "why"       deleting records of t raises TargetError
admin.ids["t"] = "other"       the topic has this id, instead of one that changes when it is created again
admin.cluster = "other"        another cluster answers
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import TopicFacts, TopicPartition, Watermarks
from tests.fakes.kafka_consumer import FakeBroker


@dataclass(slots=True)
class FakeAdmin:
    broker: FakeBroker
    away: bool = False
    cluster: str = "cluster"
    ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    refuses_config: str = ""
    hides: dict[str, str] = field(default_factory=dict)
    keeps: dict[str, str] = field(default_factory=dict)
    hidden: set[TopicPartition] = field(default_factory=set)  # no broker tells their offsets (any more, or yet)
    leaderless: set[TopicPartition] = field(default_factory=set)  # asking for their offsets fails
    asked: Counter[str] = field(default_factory=Counter)
    asked_stable: Counter[TopicPartition] = field(default_factory=Counter)  # requests for their last stable offset

    def cluster_id(self) -> str:
        self._ask("cluster_id")
        return self.cluster

    def topics(self) -> Mapping[str, TopicFacts]:
        self._ask("topics")
        return {n: TopicFacts(n, "", count) for n, count in self._counts().items() if n not in self.hides}

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        self._ask("describe")
        for name in sorted(set(names) & set(self.hides)):
            raise TargetError(self.hides[name])
        counts = self._counts()
        return {n: TopicFacts(n, self._id(n), counts[n]) for n in names if n in counts}

    def configs(self, topic: str) -> Mapping[str, str]:
        found = self.configs_of([topic])[topic]
        if isinstance(found, TargetError):
            raise found
        return found

    def configs_of(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str] | TargetError]:
        self._ask("configs")
        there = self._counts()
        return {t: self.settings.get(t, {}) if t in there else TargetError(f"no topic {t}") for t in topics}

    def check_creation(
        self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        self._ask("check_creation")
        if name in self.refuses:
            raise TargetError(self.refuses[name])
        if self.refuses_config in configs:
            raise TargetError(f"unknown config {self.refuses_config}")

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        self._ask("create_topic")
        if name in self.refuses:
            raise TargetError(self.refuses[name])
        if name in self._counts():
            return False
        if self.refuses_config in configs:
            raise TargetError(f"unknown config {self.refuses_config}")
        self.broker.create(name, partitions=partitions)
        self.settings[name] = dict(configs)
        return True

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("alter_configs")
        self.settings.setdefault(topic, {}).update(configs)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        self._ask("delete_records")
        for partition, offset in before.items():
            if partition.topic in self.keeps:
                raise TargetError(self.keeps[partition.topic])
            log = self.broker.logs.get(partition)
            if log is None or offset > log.high:
                raise TargetError(f"delete the records of {partition} before offset {offset}: refused")
            if self.settings.get(partition.topic, {}).get("cleanup.policy") == "compact":
                raise TargetError(f"delete the records of {partition} before offset {offset}: POLICY_VIOLATION")
            self.broker.trim(partition, max(offset, log.low))

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        self._ask("watermarks")
        self._need_leaders(partitions)
        return {p: self.broker.watermarks(p) for p in partitions if p in self.broker.logs and p not in self.hidden}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._ask("high_watermarks")
        self._need_leaders(partitions)
        logs = self.broker.logs
        return {p: logs[p].high for p in partitions if p in logs and p not in self.hidden}

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._ask("stable_offsets")
        self.asked_stable.update(partitions)
        logs = self.broker.logs
        return {p: logs[p].stable for p in partitions if p in logs and p not in self.hidden}

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        self._ask("offsets_at")
        stamp = at.timestamp() * 1000
        found = {}
        for partition in partitions:
            log = self.broker.logs[partition]
            found[partition] = min((o for o, r in log.records.items() if r.timestamp_ms >= stamp), default=log.high)
        return found

    def _id(self, name: str) -> str:
        life = self.broker.lives[name]
        return self.ids.get(name, f"id-{name}-{life}" if life else f"id-{name}")

    def _counts(self) -> dict[str, int]:
        return dict(Counter(p.topic for p in self.broker.logs))

    def _need_leaders(self, partitions: Collection[TopicPartition]) -> None:
        for partition in sorted(self.leaderless.intersection(partitions)):
            raise BrokerUnavailable(f"list offsets of {partition}: LEADER_NOT_AVAILABLE")

    def _ask(self, what: str) -> None:
        self.asked[what] += 1
        if self.away:
            raise BrokerUnavailable(f"{what}: planned")
