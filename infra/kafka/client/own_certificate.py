"""Finds out whether the certificate that this client shows to brokers is valid today.

A broker refuses one that has expired with the same alert as one whose signer it does not trust: only the client, which
has the file, can tell them apart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.runtime.log_fields import NEXT, REASON

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

LOCATION, PEM = "ssl.certificate.location", "ssl.certificate.pem"
KEYSTORE, KEYSTORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.password"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """`where`: the property that has it, with the name of its file, if it is in one."""

    where: str
    begins: datetime
    ends: datetime

    def problem(self, now: datetime) -> str:
        """Why it is refused today; empty: it is within its time."""
        if now > self.ends:
            return f"it expired at {self.ends.isoformat(timespec='seconds')}"
        if now < self.begins:
            return f"it is not valid before {self.begins.isoformat(timespec='seconds')}"
        return ""

    def remedy(self, now: datetime) -> str:
        """What to do about a problem."""
        return f"renew {self.where} and its key" + (", or correct this machine's clock" if now < self.begins else "")


def own_certificate(properties: Mapping[str, object]) -> OwnCertificate | None:
    """The one that a client with these properties shows; None where it has none, or this process cannot read it: the
    client's own error says why."""
    try:
        found = _read(properties)
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    where, certificate = found
    return OwnCertificate(where, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def warn_if_not_valid(own: OwnCertificate, now: datetime) -> None:
    """A broker that asks for no certificate takes the connection all the same: so this is no error yet."""
    if problem := own.problem(now):
        text = f"the certificate that this client shows to brokers is not valid: {problem}"
        log.warning("certificate_not_valid", extra={REASON: text, NEXT: own.remedy(now)})


def _read(properties: Mapping[str, object]) -> tuple[str, Certificate] | None:
    """The first certificate of a file is the client's own; the others are of those who signed it."""
    from cryptography import x509  # noqa: PLC0415 -- of no use to clients without a certificate
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

    if (location := properties.get(LOCATION)) is not None:
        return f"{LOCATION} ({location})", x509.load_pem_x509_certificate(Path(str(location)).read_bytes())
    if (pem := properties.get(PEM)) is not None:
        return PEM, x509.load_pem_x509_certificate(str(pem).encode())
    if (location := properties.get(KEYSTORE)) is not None:
        password = properties.get(KEYSTORE_PASSWORD)
        secret = None if password is None else str(password).encode()
        _, certificate, _ = pkcs12.load_key_and_certificates(Path(str(location)).read_bytes(), secret)
        return None if certificate is None else (f"{KEYSTORE} ({location})", certificate)
    return None
