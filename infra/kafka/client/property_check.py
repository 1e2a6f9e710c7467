"""Finds all properties that the Kafka client rejects, by asking the client itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.settings.field import UNKNOWN, suggestion

_NO_SUCH = "no.such.property.of.replicator"
"""Rejected by every client. Clients read properties in order, so that with this one last no client is ever created."""

_NAMES = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size bootstrap.servers broker.address.family
broker.address.ttl broker.version.fallback check.crcs client.dns.lookup client.id client.rack compression.codec
compression.level compression.type connections.max.idle.ms coordinator.query.interval.ms debug delivery.timeout.ms
enable.auto.commit enable.auto.offset.store enable.idempotence enable.metrics.push enable.partition.eof
enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections
enable.ssl.certificate.verification fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem isolation.level linger.ms
log.connection.close log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
max.partition.fetch.bytes max.poll.interval.ms message.copy.max.bytes message.max.bytes message.send.max.retries
message.timeout.ms metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metadata.request.timeout.ms partition.assignment.strategy partitioner
plugin.library.paths queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy receive.message.max.bytes
reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks request.timeout.ms
retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
session.timeout.ms socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location
ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist
topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
"""
KNOWN = tuple(_NAMES.split())
"""Names for suggestions: those of librdkafka 2.16, without the ones that only a program can set. The client decides
which names are unknown."""


def problems(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each rejected property with the reason. All kinds of clients know the same properties. Makes no connection."""
    for name, value in properties.items():
        refusal = _refusal(name, value)
        if f'property: "{name}"' in refusal:
            yield name, f"{UNKNOWN}{suggestion(name, KNOWN)}"
        elif refusal:
            # the text quotes values of enumerations only, so it never contains a secret
            yield name, f"the Kafka client refuses it: {refusal.strip()}"


def _refusal(name: str, value: str) -> str:
    """The client's error text; empty when it accepts the property."""
    try:
        AdminClient({name: value, _NO_SUCH: ""})
    except KafkaException as error:
        text = str(error.args[0].str())
        return "" if _NO_SUCH in text else text
    except (TypeError, ValueError, AttributeError):  # a property whose value has to be a Python object
        return f'No such configuration property: "{name}"'
    raise AssertionError(f"a client accepted {_NO_SUCH}")
