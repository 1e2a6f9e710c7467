"""Every kind of client over each way to secure a connection, on a real broker; and what a refusal says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from formats.errors import BrokerUnavailable, ConfigError, ReplicatorError, TargetError
from infra.contracts.cluster import TopicPartition
from infra.kafka.client.idempotent_producer import transactional_properties
from infra.kafka.client.librdkafka import is_fit
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_partition
from infra.kafka.producer.transactional_producer import TransactionalProducer
from infra.local.broker import Broker
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Deadline
from tests.conftest import FEW_THREADS
from tests.infra.certificates import KeyPair
from tests.infra.listeners import MTLS, SCRAM, TOKENS
from tests.infra.secured_stack import (
    APP,
    CONFIG,
    EXPIRED,
    KEY_PASSWORD,
    PASSWORD,
    PATIENCE,
    WAYS,
    Security,
    create_user,
)

pytestmark = pytest.mark.integration

COUNT = 100
FIRST_CONTACT = timedelta(seconds=3)


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    return Security(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(security: Security, run_stack: Callable[..., AbstractContextManager[LocalStack]]) -> Iterator[Broker]:
    with run_stack(
        regions=("a",),
        listeners=security.listeners,
        broker_config={**FEW_THREADS, **CONFIG},
        needed=lambda item: item.path == Path(__file__),
    ) as stack:
        create_user(stack.brokers["a"])
        yield stack.brokers["a"]


def admin_of(properties: Mapping[str, str]) -> KafkaAdmin:
    return KafkaAdmin(properties, timeout=timedelta(seconds=8), first_contact=FIRST_CONTACT)


def transaction(properties: Mapping[str, str], topic: str, values: list[bytes]) -> None:
    """All of them in one."""
    given = transactional_properties(
        {**properties, "transactional.id": topic}, memory_bytes=1 << 20, transaction_timeout=timedelta(seconds=10)
    )
    producer = TransactionalProducer(given)
    deadline = Deadline(PATIENCE)
    try:
        producer.init(lambda: deadline.expired)
        producer.begin()
        for value in values:
            producer.put(topic, key=b"k", value=value, owner=TopicPartition(topic, 0), wait=lambda: None, partition=0)
        producer.acknowledged(lambda: deadline.expired)
        producer.commit(lambda: deadline.expired)
    finally:
        producer.close(timedelta())


@pytest.mark.parametrize("way", WAYS)
def test_admin_transactions_and_reads_without_a_python_object_per_record(
    way: str, security: Security, broker: Broker, topic_name: str
) -> None:
    assert is_fit()
    properties = security.properties(broker, way)
    admin = KafkaAdmin(properties)
    admin.create_topic(topic_name, partitions=1, replication_factor=1, configs={})
    values = [b"%d" % n for n in range(COUNT)]
    transaction(properties, topic_name, values)
    read = read_partition(properties, TopicPartition(topic_name, 0), 0, COUNT, patience=PATIENCE)
    assert [value for batch in read for value in batch.column("value").to_pylist()] == values


@pytest.mark.long
def test_clients_that_are_not_polled_have_a_token_after_several_lives_of_one(
    security: Security, broker: Broker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a connection with the token that opened it: a client without a new one could not go on."""
    made = tmp_path / "made"
    monkeypatch.setenv("TOKENS_MADE", str(made))
    properties = security.properties(broker, TOKENS)
    admin = KafkaAdmin(properties)
    admin.create_topic(topic_name, partitions=1, replication_factor=1, configs={})
    given = transactional_properties(
        {**properties, "transactional.id": topic_name}, memory_bytes=1 << 20, transaction_timeout=timedelta(seconds=10)
    )
    producer = TransactionalProducer(given)
    deadline = Deadline(timedelta(minutes=3))
    producer.init(lambda: deadline.expired)
    clients = 2
    assert wait_until(lambda: len(made.read_text("utf-8").splitlines()) >= 4 * clients, timedelta(minutes=3))
    begun = time.monotonic()
    assert topic_name in admin.topics()
    producer.begin()
    producer.put(topic_name, key=b"k", value=b"v", owner=TopicPartition(topic_name, 0), wait=lambda: None, partition=0)
    producer.acknowledged(lambda: deadline.expired)
    producer.commit(lambda: deadline.expired)
    producer.close(timedelta())
    assert time.monotonic() - begun < 10  # without waiting for another token


@pytest.mark.long
def test_a_client_for_which_no_token_is_made_any_more_names_the_token(
    security: Security, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    admin = admin_of({**security.properties(broker, TOKENS), "auth": "tests.infra.token_makers:Failing"})
    admin.topics()
    refused: list[str] = []

    def is_refused() -> bool:
        try:
            admin.topics()
        except BrokerUnavailable as error:
            refused.append(str(error))
        return any("token" in one for one in refused)

    assert wait_until(is_refused, timedelta(minutes=2), interval=timedelta(seconds=1)), refused
    assert "in [kafka]" in refused[-1]
    assert "token_not_made" in caplog.text


@pytest.mark.long
def test_a_right_that_no_acl_gives(security: Security, broker: Broker, topic_name: str) -> None:
    create_user(broker, "guest")
    KafkaAdmin({"bootstrap.servers": broker.bootstrap}).create_topic(
        topic_name, partitions=1, replication_factor=1, configs={}
    )
    guest = KafkaAdmin({**security.properties(broker, SCRAM), "sasl.username": "guest"})
    with pytest.raises(TargetError) as caught:
        guest.configs(topic_name)
    line = str(caught.value)
    assert line.startswith(f"describe the settings of topic {topic_name}: TOPIC_AUTHORIZATION_FAILED")
    assert line.endswith("allow DESCRIBE_CONFIGS on the topic to the principal of [kafka]")


Change = Callable[[Security, Broker], Mapping[str, str]]
REFUSALS: Mapping[str, tuple[str, Change, type[ReplicatorError], str]] = {
    "a wrong password": (
        SCRAM,
        lambda _s, _b: {"sasl.password": "another"},
        BrokerUnavailable,
        "invalid credentials with SASL mechanism SCRAM-SHA-512; correct sasl.username, sasl.password",
    ),
    "another mechanism": (
        SCRAM,
        lambda _s, _b: {"sasl.mechanism": "PLAIN"},
        BrokerUnavailable,
        "supported mechanisms: SCRAM-SHA-512; correct sasl.mechanism, or enable it on the broker's listener",
    ),
    "an authority that is not trusted": (
        SCRAM,
        lambda s, _b: {"ssl.ca.location": str(s.stranger.certificate)},
        BrokerUnavailable,
        "the broker's certificate is not trusted: unable to get local issuer certificate; set ssl.ca.location",
    ),
    "a certificate of the broker that has expired": (
        EXPIRED,
        lambda _s, _b: {},
        BrokerUnavailable,
        "the broker's certificate is not trusted: certificate has expired; renew the certificate on the broker",
    ),
    "a broker by another name": (
        EXPIRED,
        lambda s, b: {"bootstrap.servers": b.bootstrap_of(SCRAM).replace("127.0.0.1", "[::ffff:127.0.0.1]")},
        BrokerUnavailable,
        "IP address mismatch, certificate is not valid for '::ffff:127.0.0.1'; name the broker in bootstrap.servers as",
    ),
    "plaintext where TLS is expected": (
        SCRAM,
        lambda _s, _b: {"security.protocol": "PLAINTEXT"},
        BrokerUnavailable,
        "security.protocol may not be that of this listener (TLS or SASL expected)",
    ),
    "TLS where plaintext is expected": (
        SCRAM,
        lambda _s, b: {"bootstrap.servers": b.bootstrap},
        BrokerUnavailable,
        "the listener is plaintext: correct security.protocol, or the port",
    ),
    "no certificate of the client": (
        EXPIRED,
        lambda _s, b: {"bootstrap.servers": b.bootstrap_of(MTLS)},
        BrokerUnavailable,
        "the broker wants a certificate of this client: set ssl.certificate.location and ssl.key.location",
    ),
    "a certificate of the client that has expired": (
        EXPIRED,
        lambda s, b: {"bootstrap.servers": b.bootstrap_of(MTLS)} | certificate(s.authority.sign("late", expired=True)),
        BrokerUnavailable,
        "the broker does not accept this client's certificate: it expired at ",
    ),
    "a certificate of the client that somebody else signed": (
        EXPIRED,
        lambda s, b: {"bootstrap.servers": b.bootstrap_of(MTLS)} | certificate(s.stranger.sign(APP)),
        BrokerUnavailable,
        "the broker does not accept this client's certificate, which has not expired: it does not trust who signed it",
    ),
    "a wrong password of the key": (
        MTLS,
        lambda _s, _b: {"ssl.key.password": "another"},
        ConfigError,
        "check that it exists and is PEM, and that ssl.key.password fits it",
    ),
    "a token that has ended": (
        TOKENS,
        lambda _s, _b: {"auth": "tests.infra.token_makers:Ended"},
        BrokerUnavailable,
        "the broker refuses the token: it has ended, or was made for another cluster",
    ),
    "no token": (
        TOKENS,
        lambda _s, _b: {"auth": "tests.infra.token_makers:Never"},
        BrokerUnavailable,
        "made no token for the cluster: LookupError: the identity provider is away; see why its token() fails",
    ),
}


def certificate(pair: KeyPair) -> dict[str, str]:
    return {"ssl.certificate.location": str(pair.certificate), "ssl.key.location": str(pair.key)}


@pytest.mark.long
@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_is_one_line_with_place_reason_and_remedy(what: str, security: Security, broker: Broker) -> None:
    way, change, kind, text = REFUSALS[what]
    properties = {**security.properties(broker, way), **change(security, broker)}
    with pytest.raises(kind) as caught:
        admin_of(properties).cluster_id()
    line = str(caught.value)
    assert text in line
    if kind is BrokerUnavailable:
        assert "\n" not in line
        assert properties["bootstrap.servers"].rpartition(":")[2] in line or "made no token" in line
    for secret in (PASSWORD, KEY_PASSWORD, "another"):
        assert secret not in line.replace("was made for another cluster", "")
