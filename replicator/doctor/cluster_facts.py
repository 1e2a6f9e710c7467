"""Reads how a cluster is set up, and asks what this principal may do there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial

from formats.errors import TargetError
from formats.topic_selection import is_internal
from infra.contracts.cluster import TopicPartition
from infra.contracts.deployment import ClusterTopic
from infra.kafka.cluster.admin import BATCH, KafkaAdmin
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.kafka.cluster.setup import KafkaSetup
from infra.kafka.producer.transaction_check import refusal_of_transactions
from replicator.config import Config
from replicator.doctor.archived_topics import kept_for
from replicator.doctor.facts import NOT_ASKED, ClusterFacts, RetentionFacts, Unread
from replicator.doctor.reading import Questions
from replicator.rights.kafka import EVERYTHING, acls
from replicator.rights.table import CommandRole

NO_BROKER = Unread("no broker answers: see cluster-unreachable")
MOST_READ = 20  # partitions whose oldest record is read, the ones with the most of them first


def unreachable(config: Config, roles: Sequence[CommandRole], why: Unread) -> ClusterFacts:
    """What is known of a cluster of which no broker answers, or for which no client can be made."""
    return ClusterFacts(
        servers=config.cluster.servers,
        brokers=why,
        broker_configs=NO_BROKER,
        names=NO_BROKER,
        topics=NO_BROKER,
        creations=dict.fromkeys(config.own_topics, NO_BROKER),
        transactions=NO_BROKER if _needs_transactions(config, roles) else None,
    )


def _needs_transactions(config: Config, roles: Sequence[CommandRole]) -> bool:
    delivers = any(role.name == "ingress" for role in roles)
    return delivers and config.ingress is not None and config.ingress.delivery == "exactly-once"


class ClusterReader:
    """Asks one cluster. Each answer takes `timeout` at most."""

    def __init__(self, config: Config, roles: Sequence[CommandRole], timeout: timedelta) -> None:
        """Raises ConfigError, and BrokerUnavailable when no token can be made."""
        self._config, self._roles, self._timeout = config, roles, timeout
        properties = config.cluster.properties
        self._setup = KafkaSetup(properties("admin"), timeout=timeout)
        self._admin = KafkaAdmin(properties("admin"), timeout=timeout)
        self._groups = KafkaGroups(properties("admin"), properties("consumer"), timeout=timeout)

    def facts(self, questions: Questions, *, writes: bool) -> ClusterFacts:
        brokers = questions.ask(self._setup.brokers).answer()
        if isinstance(brokers, Unread):
            return unreachable(self._config, self._roles, brokers)
        needs_transactions = _needs_transactions(self._config, self._roles)
        configs = questions.ask(partial(self._setup.broker_configs, brokers[0].broker_id))
        refused = questions.ask(self._transactions) if needs_transactions and writes else None
        groups = {name: questions.ask(partial(self._groups.operations, name)) for name in self._group_names()}
        names = questions.ask(lambda: frozenset(self._admin.topics())).answer()
        topics: Mapping[str, ClusterTopic | Unread] | Unread = (
            names if isinstance(names, Unread) else questions.ask(partial(self._topics, names)).answer()
        )
        own = self._config.own_topics
        absent = [] if isinstance(topics, Unread) else [name for name in sorted(own) if name not in topics]
        creations = {name: questions.ask(partial(self._creation, name)) for name in absent}
        return ClusterFacts(
            servers=self._config.cluster.servers,
            brokers=brokers,
            broker_configs=configs.answer(),
            names=names,
            topics=topics,
            creations={name: asked.answer() for name, asked in creations.items()},
            groups={name: asked.answer() for name, asked in groups.items()},
            transactions=refused.answer() if refused is not None else NOT_ASKED if needs_transactions else None,
        )

    def members(self, group_id: str) -> int:
        """Of a group that need not exist."""
        return self._groups.facts(group_id).members

    def retention(self, topics: Mapping[str, ClusterTopic | Unread] | Unread) -> Sequence[RetentionFacts] | Unread:
        """Of the archived partitions with the most records that are not archived yet."""
        if isinstance(topics, Unread):
            return topics
        egress = self._config.egress
        assert egress is not None
        kept = kept_for(self._config, topics)
        partitions = [
            TopicPartition(name, partition)
            for name in kept
            for one in [topics[name]]
            if isinstance(one, ClusterTopic)
            for partition in range(len(one.replicas))
        ]
        committed = self._groups.committed(egress.group_id, partitions) if partitions else {}
        ends = self._admin.ends(list(committed))
        begin = {p: max(committed[p].next_offset, one.low) for p, one in ends.items()}
        most = sorted((p for p in begin if begin[p] < ends[p].high), key=lambda p: begin[p] - ends[p].high)[:MOST_READ]
        properties = self._config.cluster.properties
        probe = KafkaLogProbe(properties("consumer"), admin=properties("admin"), timeout=self._timeout)
        found = probe.timestamps({p: begin[p] for p in most}) if most else {}
        return [
            RetentionFacts(partition=str(partition), oldest=at, retention=kept[partition.topic])
            for partition, at in found.items()
        ]

    def _transactions(self) -> str:
        ingress = self._config.ingress
        assert ingress is not None
        properties = self._config.cluster.properties("producer")
        return refusal_of_transactions(
            properties, f"{ingress.group_id}.doctor", ingress.transaction_timeout, self._timeout
        )

    def _group_names(self) -> Collection[str]:
        named = [acl for role in self._roles for acl in acls(role, self._config) if acl.kind == "group"]
        return {acl.name.text for acl in named if acl.name.text != EVERYTHING}

    def _topics(self, names: Collection[str]) -> Mapping[str, ClusterTopic | Unread]:
        named = [acl.name for role in self._roles for acl in acls(role, self._config) if acl.kind == "topic"]
        literal = {name.text for name in named if not name.is_prefix and name.text != EVERYTHING}
        own = self._config.own_topics
        wanted = sorted(
            {one for one in names if not is_internal(one, own) and any(name.covers(one) for name in named)}
            | literal
            | own
        )
        found: dict[str, ClusterTopic | Unread] = {}
        for begin in range(0, len(wanted), BATCH):
            for name, one in self._setup.topics(self._admin, wanted[begin : begin + BATCH]).items():
                found[name] = Unread(str(one)) if isinstance(one, TargetError) else one
        return found

    def _creation(self, name: str) -> str:
        ingress = self._config.ingress
        assert ingress is not None
        try:
            self._admin.check_creation(
                name, partitions=1, replication_factor=ingress.internal_replication_factor, configs={}
            )
        except TargetError as error:
            return str(error)
        return ""
