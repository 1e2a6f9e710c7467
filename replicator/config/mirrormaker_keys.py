"""Every property of MirrorMaker 2, and what becomes of it here: mapped, ignored or refused, each with the reason. Data.

The properties are those of MirrorMaker 2 4.3.1, of KIP-382 and its first drafts, of KIP-545 and of the proposal for
exactly-once delivery by a sink connector, with the spellings of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Treatment(StrEnum):
    MAPPED = "mapped"  # to a setting of ours
    IGNORED = "ignored"  # nothing of ours depends on it
    REFUSED = "refused"  # it would change what is replicated, and has no counterpart


@dataclass(frozen=True, slots=True)
class KeyRule:
    treatment: Treatment
    reason: str  # of a mapped one: the setting


def _mapped(setting: str) -> KeyRule:
    return KeyRule(Treatment.MAPPED, setting)


def _ignored(reason: str) -> KeyRule:
    return KeyRule(Treatment.IGNORED, reason)


def _refused(reason: str) -> KeyRule:
    return KeyRule(Treatment.REFUSED, reason)


_WORKER = "there is no Kafka Connect worker here"
_BYTES = "records are copied byte for byte, without converters"
_OFFSETS = "positions are kept with the delivered records, in ingress.checkpoint_topic"
_SYNCS = "offset syncs are written with the checkpoints, at the target"
_INTERNAL = "all internal topics have ingress.internal_replication_factor, and no retention"
_FOUND = "groups are found with their offsets, every egress.group_interval; new ones, too"
_CHAINS = "heartbeats of clusters further away are records of a topic, and cross where flows.topics selects it"
_REFRESH = "changes are applied within topic_refresh_interval"
_JAVA = "a Java class cannot be loaded"

KEYS: Mapping[str, KeyRule] = {
    # clusters and flows
    "clusters": _mapped("clusters"),
    "enabled": _mapped("flows"),
    "source.cluster.alias": _mapped("clusters, flows"),
    "target.cluster.alias": _mapped("clusters, flows"),
    # what is replicated
    "topics": _mapped("flows.topics"),
    "topics.exclude": _mapped("flows.exclude"),
    "groups": _mapped("flows.groups"),
    "groups.exclude": _mapped("flows.groups_exclude"),
    "config.properties.exclude": _mapped("ingress.config_properties_exclude"),
    "topic.filter.class": _refused(f"{_JAVA}: write its should_replicate_topic in Python, flows.topic_filter"),
    "group.filter.class": _refused(f"{_JAVA}: write its should_replicate_group in Python, egress.group_filter"),
    "config.property.filter.class": _refused(
        f"{_JAVA}: write its should_replicate_config_property in Python, ingress.config_property_filter"
    ),
    "use.defaults.from": _mapped("ingress.use_defaults_from"),
    "sync.topic.configs.enabled": _mapped("ingress.configs"),
    "sync.topic.configs.interval.seconds": _ignored(_REFRESH),
    "sync.topic.acls.enabled": _mapped("ingress.acls"),
    "sync.topic.acls.interval.seconds": _ignored(_REFRESH),
    "refresh.topics.enabled": _mapped("topic_refresh_interval"),
    "refresh.topics.interval.seconds": _mapped("topic_refresh_interval"),
    "refresh.groups.enabled": _ignored(_FOUND),
    "refresh.groups.interval.seconds": _ignored(_FOUND),
    # heartbeats, checkpoints, offsets
    "emit.heartbeats.enabled": _mapped("flows.heartbeats"),
    "emit.heartbeats.interval.seconds": _mapped("ingress.heartbeat_interval"),
    "heartbeats.replication.enabled": _ignored(_CHAINS),
    "emit.checkpoints.enabled": _mapped("flows.groups"),
    "emit.checkpoints.interval.seconds": _mapped("egress.group_interval, groups.interval"),
    "replicate.checkpoints": _ignored("offsets of groups cross through the bucket, not as a topic"),
    "sync.group.offsets.enabled": _mapped("groups.sync"),
    "sync.group.offsets.interval.seconds": _mapped("groups.interval"),
    "emit.offset-syncs.enabled": _ignored(_SYNCS),
    "offset-syncs.topic.location": _ignored(_SYNCS),
    "offset.lag.max": _ignored("offsets are translated by a map of all records, and not by samples"),
    "checkpoints.topic.replication.factor": _ignored(_INTERNAL),
    "heartbeats.topic.replication.factor": _ignored(_INTERNAL),
    "offset-syncs.topic.replication.factor": _ignored(_INTERNAL),
    "checkpoints.topic.retention.ms": _ignored(_INTERNAL),
    "heartbeats.topic.retention.ms": _ignored(_INTERNAL),
    "offset-syncs.topic.retention.ms": _ignored(_INTERNAL),
    # names
    "replication.policy.class": _mapped("flows.replication_policy"),
    "replication.policy.separator": _mapped("flows.replication_policy_separator"),
    "replication.policy.internal.topic.separator.enabled": _ignored(
        "internal topics are named with the separator of the others here, as by default"
    ),
    "remote.topic.format": _mapped("flows.replication_policy"),
    # how
    "replication.factor": _mapped("ingress.replication_factor"),
    "exactly.once.source.support": _mapped("ingress.delivery"),
    "exactly.once.support": _mapped("ingress.delivery"),
    "transaction.producer": _mapped("ingress.delivery"),
    "connector.type": _ignored("source and sink connectors are one flow here: egress and ingress"),
    "forwarding.admin.class": _refused(f"{_JAVA}: set ingress.create_topics = false, and create the topics elsewhere"),
    "admin.timeout.ms": _ignored("requests of admin clients have their own limits, and are made again"),
    "consumer.poll.timeout.ms": _ignored("the consumer waits for records as long as a segment is open"),
    "readahead.queue.capacity": _ignored("what is read ahead is limited in bytes: egress.memory_budget"),
    "transforms": _refused(f"{_JAVA}: write it in Python, transform of [[ingress.sources]]"),
    "predicates": _refused(f"{_JAVA}: records are delivered as they are"),
    "config.providers": _refused("write secrets as ${NAME}, a variable of the environment"),
    "errors.tolerance": _ignored("no record is skipped in silence: a refused one parks its partition"),
    # Kafka Connect
    "name": _ignored(_WORKER),
    "connector.class": _ignored(_WORKER),
    "tasks.max": _ignored("partitions are divided among as many processes as run"),
    "dedicated.mode.enable.internal.rest": _ignored(_WORKER),
    "group.id": _ignored(f"{_WORKER}; the groups of ours are egress.group_id and ingress.group_id"),
    "listeners": _ignored(_WORKER),
    "plugin.path": _ignored(_WORKER),
    "key.converter": _ignored(_BYTES),
    "value.converter": _ignored(_BYTES),
    "header.converter": _ignored(_BYTES),
    "offset.flush.interval.ms": _ignored(_OFFSETS),
    "offset.flush.timeout.ms": _ignored(_OFFSETS),
    "scheduled.rebalance.max.delay.ms": _ignored(_WORKER),
    **dict.fromkeys(
        (
            *("access.control.allow.methods", "access.control.allow.origin", "config.action.reload"),
            *("connect.protocol", "connector.client.config.override.policy", "connector.plugin.version"),
            *("plugin.discovery", "rebalance.timeout.ms", "response.http.headers.config", "tasks.max.enforce"),
            *("task.shutdown.graceful.timeout.ms", "worker.sync.timeout.ms", "worker.unsync.backoff.ms"),
        ),
        _ignored(_WORKER),
    ),
    "offsets.storage.topic": _ignored(_OFFSETS),
    "transaction.boundary": _ignored("what is delivered together is one transaction"),
    "transaction.boundary.interval.ms": _ignored("what is delivered together is one transaction"),
    "add.source.alias.to.metrics": _ignored("metrics have the source's region as a label"),
}
PREFIXES: Mapping[str, KeyRule] = {
    "offset.storage.": _ignored(_OFFSETS),
    "config.storage.": _ignored(_WORKER),
    "status.storage.": _ignored(_WORKER),
    "rest.": _ignored(_WORKER),
    "admin.listeners": _ignored(_WORKER),
    "inter.worker.": _ignored(_WORKER),
    "internal.key.converter": _ignored(_WORKER),
    "internal.value.converter": _ignored(_WORKER),
    "topic.tracking.": _ignored(_WORKER),
    "errors.": _ignored("no record is skipped in silence: a refused one parks its partition"),
    "topic.creation.": _ignored("destinations have the partitions and configs of their source"),
    "transforms.": _refused(f"{_JAVA}: write it in Python, transform of [[ingress.sources]]"),
    "predicates.": _refused(f"{_JAVA}: records are delivered as they are"),
    "config.providers.": _refused("write secrets as ${NAME}, a variable of the environment"),
    "key.converter.": _ignored(_BYTES),
    "value.converter.": _ignored(_BYTES),
    "header.converter.": _ignored(_BYTES),
}
SPELLINGS: Mapping[str, str] = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
    "topics.whitelist": "topics",
    "groups.whitelist": "groups",
    "enable": "enabled",
    "sync.topic.configs": "sync.topic.configs.enabled",
    "sync.topic.acls": "sync.topic.acls.enabled",
    "emit.heartbeats": "emit.heartbeats.enabled",
    "emit.checkpoints": "emit.checkpoints.enabled",
    "emit.checkpoints.enables": "emit.checkpoints.enabled",
    "replicate.heartbeats": "heartbeats.replication.enabled",
    "offset.syncs.topic.retention.ms": "offset-syncs.topic.retention.ms",
    "offset.syncs.topic.replication.factor": "offset-syncs.topic.replication.factor",
    "offset.syncs.topic.location": "offset-syncs.topic.location",
}
"""What is written → the property. The seeds of the property tables spell some of them in other ways."""

DEFAULT_CLASSES: Sequence[str] = (
    "DefaultTopicFilter",
    "DefaultGroupFilter",
    "DefaultConfigPropertyFilter",
    "ForwardingAdmin",
)
"""Classes that do what is done here without one."""


def rule_of(key: str) -> KeyRule | None:
    """None for what is no property of MirrorMaker 2 or Kafka Connect: it may be one of a Kafka client."""
    found = KEYS.get(SPELLINGS.get(key, key))
    return found or next((rule for prefix, rule in PREFIXES.items() if key.startswith(prefix)), None)


# --- properties of Kafka's Java clients ------------------------------------------------------------------------------

ROLES = ("consumer", "producer", "admin")
_OURS = "is set by this program"
_OPENSSL = "OpenSSL does this, and has no such choice"
_RENEWED = "librdkafka renews logins by its own sasl.* properties"
_OIDC = 'librdkafka has "sasl.oauthbearer.method" = "oidc", with properties of its own: write them into [kafka]'
_NO_PEM = "librdkafka reads PEM or PKCS#12: convert the store, and set ssl.ca.location, ssl.keystore.location"

CLIENT_KEYS: Mapping[str, KeyRule] = {
    **{
        same: _mapped(same)
        for same in (
            *("bootstrap.servers", "security.protocol", "client.id", "client.rack", "client.dns.lookup"),
            *("metadata.max.age.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms"),
            *("connections.max.idle.ms", "isolation.level", "group.instance.id", "session.timeout.ms"),
            *("heartbeat.interval.ms", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.bytes"),
            *("max.partition.fetch.bytes", "check.crcs", "linger.ms", "batch.size", "compression.type"),
            *("retry.backoff.max.ms", "socket.connection.setup.timeout.ms", "metadata.recovery.strategy"),
            *("enable.metrics.push", "sasl.kerberos.min.time.before.relogin"),
            *("request.timeout.ms", "delivery.timeout.ms", "message.max.bytes", "sasl.kerberos.service.name"),
            *("sasl.username", "sasl.password", "ssl.key.password", "ssl.endpoint.identification.algorithm"),
        )
    },
    "sasl.mechanism": _mapped("sasl.mechanism"),
    "fetch.max.wait.ms": _mapped("fetch.wait.max.ms"),
    "max.request.size": _mapped("message.max.bytes"),
    "send.buffer.bytes": _mapped("socket.send.buffer.bytes"),
    "receive.buffer.bytes": _mapped("socket.receive.buffer.bytes"),
    "ssl.cipher.suites": _mapped("ssl.cipher.suites"),
    "group.id": _ignored("the groups of ours are egress.group_id and ingress.group_id"),
    "auto.offset.reset": _mapped("egress.defaults.start"),
    "sasl.jaas.config": _mapped("sasl.username, sasl.password"),
    **dict.fromkeys(("acks", "enable.idempotence", "transactional.id", "enable.auto.commit"), _ignored(_OURS)),
    "max.in.flight.requests.per.connection": _ignored("the idempotent producer keeps the order with several, too"),
    **dict.fromkeys(("retries", "max.block.ms", "default.api.timeout.ms", "auto.commit.interval.ms"), _ignored(_OURS)),
    "max.poll.records": _ignored("records are read by bytes: egress.memory_budget"),
    "buffer.memory": _ignored("what waits to be sent is limited by this program"),
    **dict.fromkeys(("partition.assignment.strategy", "partitioner.class"), _ignored(_OURS)),
    **dict.fromkeys(
        (
            *("group.protocol", "group.remote.assignor", "transaction.timeout.ms", "metadata.max.idle.ms"),
            *("transaction.two.phase.commit.enable", "throw.on.fetch.stable.offset.unsupported"),
            *("metadata.recovery.rebootstrap.trigger.ms", "socket.connection.setup.timeout.max.ms"),
        ),
        _ignored(_OURS),
    ),
    **dict.fromkeys(
        ("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.ignore.keys"),
        _ignored("partition i of the source goes to partition i of the target"),
    ),
    **dict.fromkeys(
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        _ignored("librdkafka has one compression.level: write it into [kafka.producer]"),
    ),
    "allow.auto.create.topics": _ignored("topics are created by ingress, as their sources are"),
    "exclude.internal.topics": _ignored("internal topics are never replicated"),
    "bootstrap.controllers": _refused("controllers are not asked: write bootstrap.servers"),
    **dict.fromkeys(("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"), _ignored(_BYTES)),
    **dict.fromkeys(
        (
            *("metric.reporters", "metrics.sample.window.ms", "metrics.num.samples", "metrics.recording.level"),
            "auto.include.jmx.reporter",
        ),
        _ignored("see [metrics]"),
    ),
    **dict.fromkeys(
        (
            *("sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.jitter"),
            *("sasl.kerberos.ticket.renew.window.factor", "sasl.login.connect.timeout.ms"),
            *("sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds"),
            *("sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor"),
            *("sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms"),
        ),
        _ignored(_RENEWED),
    ),
    **dict.fromkeys(
        (
            *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope.claim.name"),
            *("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.header.urlencode"),
        ),
        _refused(_OIDC),
    ),
    **dict.fromkeys(
        (
            *("sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            *("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience"),
            "sasl.oauthbearer.expected.issuer",
        ),
        _ignored("only brokers read it"),
    ),
    "sasl.login.class": _refused(_JAVA),
    "ssl.engine.factory.class": _refused(_JAVA),
    **dict.fromkeys(
        (
            *("security.providers", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"),
            "ssl.secure.random.implementation",
        ),
        _ignored(_OPENSSL),
    ),
    "interceptor.classes": _refused(_JAVA),
    "sasl.login.callback.handler.class": _refused(f"{_JAVA}: see librdkafka's sasl.oauthbearer.* properties"),
    "sasl.client.callback.handler.class": _refused(f"{_JAVA}: see librdkafka's sasl.oauthbearer.* properties"),
    "ssl.protocol": _ignored("OpenSSL takes the newest protocol that both sides have"),
    "ssl.enabled.protocols": _ignored("OpenSSL takes the newest protocol that both sides have"),
    **dict.fromkeys(("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"), _refused(_NO_PEM)),
    **dict.fromkeys(("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type"), _refused(_NO_PEM)),
    **dict.fromkeys(("ssl.truststore.certificates", "ssl.keystore.certificate.chain"), _refused(_NO_PEM)),
    "ssl.keystore.key": _refused(_NO_PEM),
}
