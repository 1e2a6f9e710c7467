"""A stack whose brokers have a listener for each way to secure a connection, and clients of the principal "app"."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.local.broker import Broker, Listener
from tests.infra.certificates import Authority
from tests.infra.listeners import MTLS, SCRAM, TOKENS, secured_listeners

APP = "app"  # may do everything: what an ACL allows is the business of other tests
PASSWORD = "planted-password"
KEY_PASSWORD = "planted-key-password"
EXPIRED = "EXPIRED"  # a listener whose certificate has ended
ASK_SECONDS = 10.0
WAYS = (SCRAM, MTLS, TOKENS)
CONFIG = {"super.users": f"User:ANONYMOUS;User:{APP}"}
PATIENCE = timedelta(seconds=30)


class Security:
    """Certificates for a stack, made before it starts: `listeners` and CONFIG are its options."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.stranger = Authority(folder / "ours"), Authority(folder / "theirs")
        server = self.authority.sign("broker")
        ended = self.authority.sign("ended-broker", expired=True)
        tls_only = {**secured_listeners(self.authority, ended)[1].config, "ssl.client.auth": "none"}
        self.listeners: Sequence[Listener] = (
            *secured_listeners(self.authority, server),
            Listener(name=EXPIRED, protocol="SSL", config=tls_only),
        )
        self.client = self.authority.sign(APP, password=KEY_PASSWORD)

    def properties(self, broker: Broker, way: str) -> dict[str, str]:
        """Of a client that connects in this way, secrets included."""
        trusting = {"bootstrap.servers": broker.bootstrap_of(way), "ssl.ca.location": str(self.authority.certificate)}
        match way:
            case "TLS_SCRAM":
                own = {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": APP,
                    "sasl.password": PASSWORD,
                }
            case "MTLS":
                own = {
                    "security.protocol": "SSL",
                    "ssl.certificate.location": str(self.client.certificate),
                    "ssl.key.location": str(self.client.key),
                    "ssl.key.password": KEY_PASSWORD,
                }
            case "TOKENS":
                own = {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "OAUTHBEARER",
                    "auth": "tests.infra.token_makers:ShortLived",
                }
            case _:
                own = {"security.protocol": "SSL"}
        return {**trusting, **own}


def create_user(broker: Broker, name: str = APP) -> None:
    """A user of the listener with SCRAM."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    made = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(name, credential, PASSWORD.encode())], request_timeout=ASK_SECONDS
    )
    made[name].result(ASK_SECONDS)
