"""Finds out why a broker's certificate is not trusted. The Kafka client says only that it is not.

This process shakes hands with the broker once, with the same authorities: Python's own TLS names the reason.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

CONNECT_SECONDS = 2.0
NOT_VERIFIED = "certificate could not be verified"  # in the client's text

_ADVICE = (
    ("expired", "renew the certificate on the broker"),
    ("not yet valid", "correct this machine's clock, or the certificate on the broker"),
    ("mismatch", "name the broker in bootstrap.servers as its certificate does, or correct its advertised.listeners"),
    ("revoked", "renew the certificate on the broker"),
)
DEFAULT_ADVICE = "set ssl.ca.location to the CA of the broker's certificate"


def why_not_trusted(broker: str, properties: Mapping[str, object]) -> str:
    """The reason, such as "certificate has expired"; empty when this process finds none. `broker`: host:port.
    `properties`: of a client. Blocks up to twice CONNECT_SECONDS."""
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    try:
        context = _context(properties)
        with (
            socket.create_connection((host, int(port)), CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except (OSError, ValueError):
        return ""


def advice_on(reason: str) -> str:
    """What to do about a reason."""
    return next((advice for sign, advice in _ADVICE if sign in reason), DEFAULT_ADVICE)


def _context(properties: Mapping[str, object]) -> ssl.SSLContext:
    location, pem = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    if location is not None and location != "probe":
        is_folder = Path(str(location)).is_dir()
        context = ssl.create_default_context(
            cafile=None if is_folder else str(location), capath=str(location) if is_folder else None
        )
    else:
        context = ssl.create_default_context(cadata=None if pem is None else str(pem))
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != "none"
    return context
