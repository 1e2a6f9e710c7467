"""Decides from the client's log lines and errors why no broker can be reached, and whether to stop waiting.

    a line "FAIL … Connection refused"  ──> the last failure of that broker
    "all brokers are down"              ──> no connection, until an answer arrives
    an answer                           ──> clears both

A permanent failure, which waiting cannot fix (an unknown host, a failed TLS handshake, a rejected password), ends a
call as soon as every broker is down because of one. Any other failure may be temporary (a broker that restarts), so the
call keeps waiting up to the caller's timeout.

The client raises none of these from a call: the call itself only times out.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from infra.kafka.client.broker_certificate import DEFAULT_ADVICE, NOT_VERIFIED, advice_on
from infra.kafka.client.own_certificate import OwnCertificate

MIN_WAIT = timedelta(seconds=1)
"""The first failure may concern one of several addresses, or be a guess that the second attempt corrects (seen: "reset
by peer" first, "connecting to a PLAINTEXT broker listener?" 0.1 s later)."""
MAX_LISTED = 3  # brokers listed in one message

_FAILURE = re.compile(
    r"(?:FAIL \[\S+\] \[thrd:\S+\]: )?(?:\w+://)?(?P<broker>\S+?)(?:/\w+)?: "
    r"(?P<reason>.*?)(?: \(after \d+ms in state (?P<state>\w+).*\))?",
    re.DOTALL,
)

NOT_ACQUIRED = "Failed to acquire SASL OAUTHBEARER token"  # how an error about no broker begins
_FIRST_REQUEST = (
    "the connection is opened and then closed: security.protocol may not be that of this listener (TLS or SASL "
    "expected), or the broker is shutting down"
)
_CLOSED_IN_HANDSHAKE = (
    "the connection was closed during the TLS handshake: the listener is plaintext (correct security.protocol, or the "
    "port), or the broker is shutting down"
)
_NO_CERTIFICATE = (
    "the broker wants a certificate of this client: set ssl.certificate.location and ssl.key.location to one that it "
    "trusts"
)
_REFUSED_CERTIFICATE = (
    "the broker does not accept this client's certificate: it has expired, or the broker does not trust who signed it; "
    "renew the files of ssl.certificate.location and ssl.key.location, or correct the broker's truststore"
)
_VALID_CERTIFICATE = (
    "the broker does not accept this client's certificate, which has not expired: it does not trust who signed it, or "
    "has revoked it; use a certificate whose signer is in the broker's truststore, or correct that"
)
_PERMANENT: tuple[tuple[str, str], ...] = (
    ("Failed to resolve", "unknown host: correct bootstrap.servers, or this machine's DNS"),
    (
        "connecting to a PLAINTEXT broker listener",
        "security.protocol is TLS, but the listener is plaintext: correct security.protocol, or the port",
    ),
    (NOT_VERIFIED, DEFAULT_ADVICE),
    ("alert bad certificate", _NO_CERTIFICATE),
    ("alert certificate required", _NO_CERTIFICATE),
    ("alert certificate expired", _REFUSED_CERTIFICATE),
    ("alert certificate revoked", _REFUSED_CERTIFICATE),
    ("alert certificate unknown", _REFUSED_CERTIFICATE),
    ("alert unknown ca", _REFUSED_CERTIFICATE),
    ("SSL handshake failed", "correct the ssl.* properties, or security.protocol"),
    ("Unsupported SASL mechanism", "correct sasl.mechanism, or enable it on the broker's listener"),
    (
        "not valid in current SASL state",
        "security.protocol is SASL, but the listener does not use SASL: correct security.protocol, or the port",
    ),
    (
        "invalid_token",
        "the broker refuses the token: it has ended, or was made for another cluster or by somebody it does not trust; "
        "correct auth or sasl.oauthbearer.* in [kafka], or this machine's clock",
    ),
    (NOT_ACQUIRED, "see the log line token_not_made; correct auth or sasl.oauthbearer.* in [kafka]"),
    ("SASL", "correct sasl.username, sasl.password and sasl.mechanism, or the user on the broker"),
)
"""Text in the client's line, and the remedy; the first match counts."""
_TEMPORARY: tuple[tuple[str, str], ...] = (
    ("Connection refused", "nothing listens there: is the broker up, and are host and port right?"),
    ("No route to host", "the network has no route to this host: check the host and the routing"),
    ("timed out", "no answer at all: a firewall, a wrong port, or a broker that hangs"),
    ("Timed out", "no answer at all: a firewall, a wrong port, or a broker that hangs"),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one broker is not connected. `is_permanent`: waiting cannot fix it."""

    broker: str  # host:port
    reason: str
    advice: str
    is_permanent: bool

    def __str__(self) -> str:
        return f"{self.broker}: {self.reason}" + (f"; {self.advice}" if self.advice else "")


def parse_failure(line: str) -> Failure | None:
    """Parse a log line `FAIL …`, or the text of an error about a broker. None when it has another form. Pure."""
    found = _FAILURE.fullmatch(line.strip())
    if found is None:
        return None
    broker, reason, state = found["broker"], found["reason"], found["state"]
    for sign, advice in _PERMANENT:
        if sign in reason:
            return Failure(broker, reason, advice, is_permanent=True)
    for sign, advice in _TEMPORARY:
        if sign in reason:
            return Failure(broker, reason, advice, is_permanent=False)
    return Failure(broker, reason, _advice_on_disconnect(reason, state), is_permanent=False)


def _advice_on_disconnect(reason: str, state: str | None) -> str:
    """By how far the connection had come; `state` None: the text does not say. Empty: no advice."""
    if not reason.startswith("Disconnected"):
        return ""
    if state in ("APIVERSION_QUERY", "UP"):
        return _FIRST_REQUEST
    if "SSL" in reason and state in (None, "CONNECT", "SSL_HANDSHAKE"):
        return _CLOSED_IN_HANDSHAKE
    return ""


def _refused(failure: Failure, own: OwnCertificate, now: datetime) -> Failure:
    """By a broker that does not accept this certificate. Pure."""
    if not (problem := own.problem(now)):
        return replace(failure, advice=_VALID_CERTIFICATE)
    reason = f"TLS: the broker does not accept this client's certificate: {problem}"
    return replace(failure, reason=reason, advice=own.remedy(now))


class Unreachable:
    """Connection state of one client. Times are seconds of one monotonic clock. Safe to call from several threads."""

    def __init__(
        self,
        servers: str,
        why_not_trusted: Callable[[str], str] = lambda _broker: "",
        own_certificate: Callable[[], OwnCertificate | None] = lambda: None,
    ) -> None:
        """`servers`: as configured, for the message when the client has reported no failure. `why_not_trusted`: what is
        wrong with the certificate of a broker; it may block for some seconds. `own_certificate`: what this client shows
        to brokers. Both are asked for a message only."""
        self._servers, self._why_not_trusted, self._own_certificate = servers, why_not_trusted, own_certificate
        self._lock = threading.Lock()
        self._failures: dict[str, tuple[Failure, float]] = {}
        self._all_down = False

    def failed(self, failure: Failure, now: float) -> None:
        with self._lock:
            self._failures[failure.broker] = failure, now

    def all_down(self) -> None:
        """The client reports that it is connected to none of the brokers it knows."""
        with self._lock:
            self._all_down = True

    def answered(self) -> None:
        with self._lock:
            self._failures.clear()
            self._all_down = False

    @property
    def is_down(self) -> bool:
        """No broker is connected, according to the client."""
        with self._lock:
            return self._all_down

    def verdict(self, asked_at: float, now: float, patience: timedelta) -> str:
        """Why a call made at `asked_at` should not be waited for any longer; empty: keep waiting."""
        with self._lock:
            waited = now - asked_at
            if not self._all_down or waited < min(MIN_WAIT, patience).total_seconds():
                return ""
            # only failures since the call: the cause of an earlier failure may be fixed
            since = [failure for failure, at in self._failures.values() if at >= asked_at]
            is_permanent = bool(since) and all(failure.is_permanent for failure in since)
        return self.text() if is_permanent or waited >= patience.total_seconds() else ""

    def text(self) -> str:
        """Brokers that are not connected, with the remedy; if the client has reported none, that no broker answers."""
        with self._lock:
            known = [failure for failure, _ in self._failures.values()]
        if not known:
            return f"no answer from {self._servers}: check hosts and ports, and that no firewall drops packets"
        listed = [str(self._explained(failure)) for failure in known[:MAX_LISTED]]
        more = [f"and {len(known) - MAX_LISTED} more"] if len(known) > MAX_LISTED else []
        return " | ".join([*listed, *more])

    def _explained(self, failure: Failure) -> Failure:
        if failure.advice == _REFUSED_CERTIFICATE and (own := self._own_certificate()) is not None:
            return _refused(failure, own, datetime.now(UTC))
        if NOT_VERIFIED not in failure.reason or not (why := self._why_not_trusted(failure.broker)):
            return failure
        return replace(failure, reason=f"TLS: the broker's certificate is not trusted: {why}", advice=advice_on(why))
