"""The certificate that a client shows to brokers: where it is read from, and which problems its time makes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from infra.kafka.client.connect import connect
from infra.kafka.client.own_certificate import OwnCertificate, own_certificate
from tests.infra.certificates import Authority, KeyPair

NOW = datetime.now(UTC)
TLS = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "log_level": 0}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def keystore(pair: KeyPair, password: str) -> bytes:
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    locked = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(b"app", key, certificate, None, locked)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["file", "chain", "pem", "keystore"])
def test_it_is_read_where_the_client_reads_it(way: str, authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign(f"app-{way}", expired=True)
    match way:
        case "file":
            given = {"ssl.certificate.location": str(pair.certificate)}
        case "chain":
            both = tmp_path / "chain.pem"
            both.write_bytes(pair.certificate.read_bytes() + authority.certificate.read_bytes())
            given = {"ssl.certificate.location": str(both)}
        case "pem":
            given = {"ssl.certificate.pem": pair.certificate.read_text("utf-8")}
        case _:
            (tmp_path / "app.p12").write_bytes(keystore(pair, "planted"))
            given = {"ssl.keystore.location": str(tmp_path / "app.p12"), "ssl.keystore.password": "planted"}
    found = own_certificate(given)
    assert found is not None
    assert NOW - timedelta(days=2) < found.ends < NOW
    assert found.where.startswith(next(iter(given)))
    assert found.problem(NOW) == f"it expired at {found.ends.isoformat(timespec='seconds')}"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"ssl.certificate.location": "/nowhere.pem"},
        {"ssl.certificate.pem": "not a certificate"},
        {"ssl.keystore.location": __file__, "ssl.keystore.password": "x"},
    ],
    ids=["none", "no file", "no PEM", "no keystore"],
)
def test_what_cannot_be_read_is_left_to_the_client(properties: dict[str, object]) -> None:
    assert own_certificate(properties) is None


@pytest.mark.parametrize(
    ("now", "problem", "remedy"),
    [
        (NOW, "", ""),
        (NOW + timedelta(days=2), "it expired at ", "renew app.pem and its key"),
        (
            NOW - timedelta(days=2),
            "it is not valid before ",
            "renew app.pem and its key, or correct this machine's clock",
        ),
    ],
    ids=["within its time", "after it", "before it"],
)
def test_its_time(now: datetime, problem: str, remedy: str) -> None:
    own = OwnCertificate("app.pem", NOW - timedelta(days=1), NOW + timedelta(days=1))
    assert own.problem(now).startswith(problem)
    assert bool(own.problem(now)) == bool(problem)
    if problem:
        assert own.remedy(now) == remedy


@pytest.mark.parametrize("expired", [True, False])
def test_a_client_that_starts_with_one_that_has_expired_warns(
    authority: Authority, caplog: pytest.LogCaptureFixture, *, expired: bool
) -> None:
    pair = authority.sign("starts", expired=expired)
    own = {"ssl.certificate.location": str(pair.certificate), "ssl.key.location": str(pair.key)}
    with caplog.at_level(logging.WARNING):
        connect(AdminClient, {**TLS, **own})
    warned = [record for record in caplog.records if record.message == "certificate_not_valid"]
    assert len(warned) == expired
    assert all("it expired at" in vars(record)["reason"] for record in warned)
