"""A real broker with a listener that requires TLS and SASL: the first error names the mismatch, within seconds."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from formats.errors import BrokerUnavailable
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.ports import HOST, free_ports
from infra.local.stack import LocalStack

pytestmark = pytest.mark.integration

SECONDS = 20.0  # on a busy machine; the call takes three at most, and its timeout is 30
FIRST_CONTACT = timedelta(seconds=3)
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'


class Listeners(NamedTuple):
    plaintext: str
    secured: str  # TLS with SASL PLAIN
    authority: Path

    def properties(self, **changes: str) -> Mapping[str, str]:
        """Properties for the secured listener. `changes`: by property, with _ for the dot; empty removes it."""
        fit = {
            "bootstrap.servers": self.secured,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        changed = fit | {name.replace("_", "."): value for name, value in changes.items()}
        return {name: value for name, value in changed.items() if value}


def certificate(folder: Path) -> tuple[Path, Path]:
    """Create a certificate authority, and a certificate with its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority, store = folder / "authority.pem", folder / "store.pem"
    public = made.public_bytes(serialization.Encoding.PEM)
    pkcs8, open_key = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    authority.write_bytes(public)
    store.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, open_key) + public)
    return authority, store


@pytest.fixture(scope="module")
def listeners(
    run_stack: Callable[..., AbstractContextManager[LocalStack]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listeners]:
    authority, store = certificate(tmp_path_factory.mktemp("tls"))
    (port,) = free_ports(1)
    # the proxy listener is used as the secured one
    config = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:SASL_SSL",
        "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.proxied.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    with run_stack(regions=("secured",), broker_config=config, proxy_ports={"secured": (port, port)}) as stack:
        yield Listeners(stack.brokers["secured"].bootstrap, f"{HOST}:{port}", authority)


def test_matching_properties_are_answered(listeners: Listeners) -> None:
    assert KafkaAdmin(listeners.properties()).cluster_id()


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({"sasl_password": "wrong"}, "Invalid username or password.*sasl.password", id="wrong password"),
        pytest.param(
            {"sasl_mechanism": "SCRAM-SHA-512"},
            "Unsupported SASL mechanism.*supported mechanisms: PLAIN.*sasl.mechanism",
            id="mechanism not enabled",
        ),
        pytest.param({"ssl_ca_location": ""}, "certificate.*ssl.ca.location", id="unknown authority"),
        pytest.param({"security_protocol": "plaintext"}, "TLS or SASL expected", id="plaintext against TLS"),
        pytest.param({"security_protocol": "ssl"}, "TLS or SASL expected", id="TLS without SASL"),
    ],
)
def test_a_mismatch_with_the_secured_listener_is_named(
    listeners: Listeners, changes: Mapping[str, str], wanted: str
) -> None:
    names_it(listeners.properties(**changes), listeners.secured, wanted)


@pytest.mark.parametrize(
    ("protocol", "wanted"),
    [
        pytest.param("sasl_ssl", "the listener is plaintext", id="TLS against plaintext"),
        pytest.param("sasl_plaintext", "the listener does not use SASL", id="SASL where there is none"),
    ],
)
def test_a_mismatch_with_the_plaintext_listener_is_named(listeners: Listeners, protocol: str, wanted: str) -> None:
    properties = listeners.properties(security_protocol=protocol, bootstrap_servers=listeners.plaintext)
    names_it(properties, listeners.plaintext, wanted)


def names_it(properties: Mapping[str, str], server: str, wanted: str) -> None:
    admin, began = KafkaAdmin(properties, first_contact=FIRST_CONTACT), time.monotonic()
    with pytest.raises(BrokerUnavailable, match=rf"describe the cluster at {server}: .*{wanted}"):
        admin.cluster_id()
    assert time.monotonic() - began < SECONDS
