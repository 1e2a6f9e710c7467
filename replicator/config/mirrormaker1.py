"""A command line of MirrorMaker 1 as a flow: its options, and the files of its consumer and its producer. Pure.

What it did is one flow under the names of the source, with nothing but records. What every option and property means is
data: `OPTIONS` and `OLD_KEYS` here, and the clients' properties of `replicator.config.mirrormaker_keys`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.incarnation import LEGAL_NAME
from infra.settings.field import region_name
from infra.settings.secrets import MASK, is_secret, without_credentials
from replicator.config.mirrormaker_clients import ClientProperties
from replicator.config.mirrormaker_file import Finding, ImportedFlow, SideSetting
from replicator.config.mirrormaker_keys import CLIENT_KEYS, KeyRule, Treatment
from replicator.config.mirrormaker_mistyped import OFF
from replicator.config.mirrormaker_patterns import patterns
from replicator.config.show import Table

POLICY = "LegacyReplicationPolicy"
CONSUMER, PRODUCER = "consumer", "producer"
FILES: Mapping[str, str] = {CONSUMER: "--consumer", PRODUCER: "--producer"}

_M, _I, _R = Treatment.MAPPED, Treatment.IGNORED, Treatment.REFUSED
_JAVA = "a Java class cannot be loaded"
_LISTENER = f"{_JAVA}; topics and partitions are created by ingress, and positions are kept with the records"
_HANDLER = (
    f"{_JAVA}, and what it left out would cross: the flow is off until you enable it; `transform` of a source leaves "
    "out and changes records, replication_policy and destination_topic give names"
)
_LIMITED = "is limited in bytes: egress.memory_budget"
_OFFSETS = "positions are kept with the archived and with the delivered records"
_OURS = "is set by this program"
_ZOOKEEPER = "brokers are not looked up in ZooKeeper: write bootstrap.servers"
_BYTES = "records are copied byte for byte"
_PARTITION = "partition i of the source goes to partition i of the target"

OPTIONS: Mapping[str, KeyRule] = {
    "--whitelist": KeyRule(_M, "flows.topics"),
    "--blacklist": KeyRule(_M, "flows.exclude"),
    "--num.streams": KeyRule(_I, "partitions are divided among as many processes as run"),
    "--num.producers": KeyRule(_I, "partitions are divided among as many processes as run"),
    "--queue.size": KeyRule(_I, f"what waits {_LIMITED}"),
    "--abort.on.send.failure": KeyRule(_I, "no record is skipped in silence: a refused one parks its partition"),
    "--offset.commit.interval.ms": KeyRule(_I, _OFFSETS),
    "--consumer.rebalance.listener": KeyRule(_R, _LISTENER),
    "--rebalance.listener.args": KeyRule(_R, _LISTENER),
    "--message.handler": KeyRule(_R, _HANDLER),
    "--message.handler.args": KeyRule(_R, _HANDLER),
    "--new.consumer": KeyRule(_I, "there is one consumer"),
}

OLD_KEYS: Mapping[str, KeyRule] = {
    # of the consumer and the producer before Kafka 0.9, which MirrorMaker 1 took, too
    "metadata.broker.list": KeyRule(_M, "bootstrap.servers"),
    "fetch.message.max.bytes": KeyRule(_M, "max.partition.fetch.bytes"),
    "fetch.wait.max.ms": KeyRule(_M, "fetch.wait.max.ms"),
    "socket.receive.buffer.bytes": KeyRule(_M, "socket.receive.buffer.bytes"),
    "socket.timeout.ms": KeyRule(_M, "socket.timeout.ms"),
    "topic.metadata.refresh.interval.ms": KeyRule(_M, "topic.metadata.refresh.interval.ms"),
    "compression.codec": KeyRule(_M, "compression.type"),
    "queue.buffering.max.ms": KeyRule(_M, "linger.ms"),
    "zookeeper.connect": KeyRule(_R, _ZOOKEEPER),
    **dict.fromkeys(
        ("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms", "zookeeper.sync.time.ms"),
        KeyRule(_I, "nothing asks ZooKeeper"),
    ),
    **dict.fromkeys(("offsets.storage", "dual.commit.enabled", "auto.commit.enable"), KeyRule(_I, _OFFSETS)),
    **dict.fromkeys(
        ("offsets.channel.backoff.ms", "offsets.channel.socket.timeout.ms", "offsets.commit.max.retries"),
        KeyRule(_I, _OFFSETS),
    ),
    **dict.fromkeys(
        ("rebalance.max.retries", "rebalance.backoff.ms", "refresh.leader.backoff.ms", "num.consumer.fetchers"),
        KeyRule(_I, _OURS),
    ),
    **dict.fromkeys(
        ("consumer.id", "consumer.timeout.ms", "producer.type", "message.send.max.retries", "queue.enqueue.timeout.ms"),
        KeyRule(_I, _OURS),
    ),
    **dict.fromkeys(
        ("request.required.acks", "timeout.ms", "metadata.fetch.timeout.ms", "block.on.buffer.full"), KeyRule(_I, _OURS)
    ),
    **dict.fromkeys(
        ("queued.max.message.chunks", "queue.buffering.max.messages", "batch.num.messages"),
        KeyRule(_I, f"what waits {_LIMITED}"),
    ),
    **dict.fromkeys(("serializer.class", "key.serializer.class", "shallow.iterator.enable"), KeyRule(_I, _BYTES)),
    "compressed.topics": KeyRule(_R, "a producer compresses all topics, or none"),
    "allow.auto.create.topics": KeyRule(_I, "topics are created by ingress, as their sources are"),
    "exclude.internal.topics": KeyRule(_R, "internal topics are never replicated"),
    "partitioner.class": KeyRule(_R, _PARTITION),
}
_HARMLESS: Mapping[str, str] = {"exclude.internal.topics": "true", "partitioner.class": "DefaultPartitioner"}
"""Values of refused properties that are what is done here."""
_OF_ROLE: Mapping[str, str] = {
    **dict.fromkeys(
        ("isolation.level", "group.instance.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
        CONSUMER,
    ),
    **dict.fromkeys(
        ("fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "check.crcs", "fetch.wait.max.ms"), CONSUMER
    ),
    **dict.fromkeys(
        ("linger.ms", "batch.size", "compression.type", "request.timeout.ms", "delivery.timeout.ms"), PRODUCER
    ),
    "message.max.bytes": PRODUCER,
}
"""Properties that only one kind of client has, by their names in librdkafka; the others are of the connection."""
_STARTS = {"earliest": "earliest", "smallest": "earliest", "latest": "latest", "largest": "latest"}
_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"}


def imported_flow(
    options: Mapping[str, str],
    consumer: Mapping[str, str],
    producer: Mapping[str, str],
    *,
    source: str,
    target: str,
) -> ImportedFlow:
    """`options`: some of `OPTIONS`; `consumer`, `producer`: properties. Raises ValueError for names that are no two
    regions."""
    for name in (source, target):
        if what := region_name(name):
            raise ValueError(f"{name!r} {what}")
    if source == target:
        raise ValueError(f"source and target are both named {source!r}: name one of them otherwise")
    return _Import(source, target).imported(options, consumer, producer)


def rule_of(name: str) -> KeyRule | None:
    """Of a property of the consumer or the producer; None for what is none of them."""
    return OLD_KEYS.get(name) or CLIENT_KEYS.get(name)


@dataclass(slots=True)
class _Import:
    source: str
    target: str
    settings: Table = field(default_factory=lambda: {"topics": ["^.*"], "replication_policy": POLICY})
    egress: dict[str, SideSetting] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def imported(
        self, options: Mapping[str, str], consumer: Mapping[str, str], producer: Mapping[str, str]
    ) -> ImportedFlow:
        for name, value in options.items():
            self._take_option(name, value.strip())
        if not {"--whitelist", "--blacklist"} & options.keys():
            self.settings["enabled"] = False
            self._found("--whitelist", "not given", _R, f"kafka-mirror-maker.sh needs it or --blacklist; {OFF}")
        clients = {self.source: ClientProperties(self.source), self.target: ClientProperties(self.target)}
        for role, alias, properties in ((CONSUMER, self.source, consumer), (PRODUCER, self.target, producer)):
            for name, value in properties.items():
                clients[alias].learn(_role(CLIENT_KEYS[name], role) if name in CLIENT_KEYS else "", name, value)
            for name, value in properties.items():
                self._take_property(clients[alias], role, name, value.strip())
        if "auto.offset.reset" not in consumer:
            reason = "an archive begins with the earliest record, so that none is left out; else set start"
            self._found("--consumer: auto.offset.reset", "latest, the default", _I, reason)
        return ImportedFlow(
            source=self.source,
            target=self.target,
            settings=self.settings,
            egress=self.egress,
            ingress={},
            groups={},
            clients=clients,
            findings=self.findings,
        )

    def _found(self, key: str, value: str, treatment: Treatment, reason: str) -> None:
        self.findings.append(Finding(key, value, treatment, reason))

    def _take_option(self, name: str, value: str) -> None:
        rule = OPTIONS[name]
        treatment, reason = rule.treatment, rule.reason
        if treatment is _M:
            try:
                self.settings[reason.removeprefix("flows.")] = topics_of(value)
            except ValueError as error:
                treatment, reason = _R, f"{error}; {OFF}"
                self.settings["enabled"] = False
        elif reason == _HANDLER:  # it may leave out records, and hide what must not be seen there
            self.settings["enabled"] = False
        self._found(name, value, treatment, reason)

    def _take_property(self, clients: ClientProperties, role: str, name: str, value: str) -> None:
        key = f"{FILES[role]}: {name}"
        shown = MASK if is_secret(name) or "jaas" in name else without_credentials(value)
        rule = rule_of(name)
        if rule is None:
            self._found(key, shown, _R, "is no property of a Kafka client")
        elif name == "group.id" and role == CONSUMER:
            self._found(key, shown, _I, self._group_reason(value))
        elif name == "auto.offset.reset":
            self._found(key, shown, *self._start(value, role, key))
        elif name in _HARMLESS and value.rpartition(".")[2] == _HARMLESS[name]:
            self._found(key, shown, _I, "is what is done here")
        elif name in CLIENT_KEYS and name not in OLD_KEYS:
            self._found(key, shown, *clients.take(_role(rule, role), name, value, key))
        elif rule.treatment is _M:
            text = _CODECS.get(value, value) if name == "compression.codec" else value
            clients.put(_role(rule, role), rule.reason, text, key)
            self._found(key, shown, _M, f"kafka.{rule.reason}")
        else:
            self._found(key, shown, rule.treatment, rule.reason)

    def _group_reason(self, group: str) -> str:
        seed = f"replicator checkpoints seed {self.source}/TOPIC --group {group} --source-config FILE#{self.source}"
        return f"the groups of ours are egress.group_id and ingress.group_id; its positions are taken over by: {seed}"

    def _start(self, value: str, role: str, key: str) -> tuple[Treatment, str]:
        if role != CONSUMER:
            return _I, "it is about the consumer"
        start = _STARTS.get(value)
        if start is None:
            return _R, 'egress.defaults.start is "earliest", "latest" or a time'
        if start == "latest":
            self.egress["start"] = SideSetting(start, key)
        return _M, "egress.defaults.start"


def _role(rule: KeyRule, role: str) -> str:
    """The table below [kafka] for a property of the file of `role`; empty for the connection."""
    of = _OF_ROLE.get(rule.reason, "")
    return of if of in ("", role) else role


def topics_of(value: str) -> list[str]:
    """A whitelist as names and expressions: a comma is an alternative, blanks and outer quotes count for nothing.
    Raises ValueError for what only Java understands."""
    text = re.sub(r"""^["']+|["']+$""", "", value.strip().replace(",", "|").replace(" ", ""))
    alternatives = [one for one in text.split("|") if one]
    if not alternatives:
        raise ValueError("is empty: nothing would be replicated")
    if all(LEGAL_NAME.fullmatch(one) for one in alternatives):
        return alternatives  # as they are meant: to MirrorMaker 1 their dots match any character
    return patterns(text)
