"""Listeners of a broker, one for each way to secure a connection, and the properties of a client that connects there.

TLS_SCRAM    TLS, and SASL with a user and a password
MTLS         TLS, and a certificate of the client
TOKENS       TLS, and SASL/OAUTHBEARER with unsigned tokens: the broker reads from one who it is
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from infra.local.broker import Listener
from tests.infra.certificates import Authority, KeyPair

SCRAM, MTLS, TOKENS = "TLS_SCRAM", "MTLS", "TOKENS"
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def secured_listeners(authority: Authority, server: KeyPair, **configs: Mapping[str, str]) -> Sequence[Listener]:
    """All of them. `configs`: further properties of a listener, by its name."""
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }
    scram = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }
    mtls = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": r"RULE:^CN=([^,]*).*$/$1/,DEFAULT"}
    tokens = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f'{_LOGIN} unsecuredLoginStringClaim_sub="broker";',
        "oauthbearer.connections.max.reauth.ms": "600000",  # a session ends with the token of its client
    }
    return [
        Listener(name=SCRAM, protocol="SASL_SSL", config={**tls, **scram, **configs.get(SCRAM, {})}),
        Listener(name=MTLS, protocol="SSL", config={**tls, **mtls, **configs.get(MTLS, {})}),
        Listener(name=TOKENS, protocol="SASL_SSL", config={**tls, **tokens, **configs.get(TOKENS, {})}),
    ]


def unsecured_token(principal: str, seconds: float) -> tuple[str, float]:
    """An unsigned token, and its end."""
    now = datetime.now(UTC).timestamp()
    claims = {"sub": principal, "iat": now, "exp": now + seconds}
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", now + seconds


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
