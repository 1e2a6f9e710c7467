"""Tokens for SASL/OAUTHBEARER: who makes them, and the callback in which the client asks for the next one.

    auth = "aws-msk-iam"            the signer of AWS: a URL, signed with this process's credentials, for 15 minutes
    auth = "package.module:Class"   a user's: Class(servers=…), and its token() -> (text, seconds since 1970 of its end)

A token is a secret: no message and no log line quotes one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from formats.errors import BrokerUnavailable, ConfigError
from formats.plugins import plugin
from infra.runtime.log_fields import NEXT, REASON
from infra.settings.kafka import AUTH, AUTH_PROFILE, AUTH_REGION, MSK_IAM, SERVERS

TOKENS = "replicator.tokens"  # group of entry points
NEEDS_EXTRA = (
    f'kafka.{AUTH}: "{MSK_IAM}" needs the package aws-msk-iam-sasl-signer-python, which is not installed: '
    'pip install "kafka-segment-replicator[msk]"'
)
Token = tuple[str, float]  # its text, and its end in seconds since 1970

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TokenCallback:
    """What one client calls, on a thread of its own."""

    name: str
    make: Callable[[], Token]
    remedy: str
    _first: Token | None = field(default=None, init=False, repr=False)

    def make_first(self) -> None:
        """Make what the first call returns. Raises BrokerUnavailable."""
        try:
            self._first = self.make()
        except (Exception, SystemExit) as error:  # code of others may raise anything
            raise BrokerUnavailable(self._problem(error)) from error

    def __call__(self, _config: str) -> Token:
        token, self._first = self._first, None
        if token is not None:
            return token
        try:
            return self.make()
        except (Exception, SystemExit) as error:  # an exit would end the client's thread only
            log.warning("token_not_made", extra={REASON: self._problem(error), NEXT: "asking again within 10 s"})
            raise

    def _problem(self, error: BaseException) -> str:
        return f"{self.name} made no token for the cluster: {type(error).__name__}: {error}; {self.remedy}"


def token_callback(properties: Mapping[str, object]) -> TokenCallback | None:
    """For the client with these properties; None when nothing of ours makes its tokens. Raises ConfigError."""
    auth = properties.get(AUTH)
    if auth is None:
        return None
    if auth == MSK_IAM:
        return _of_msk(str(properties.get(AUTH_REGION, "")), properties.get(AUTH_PROFILE))
    return _of_plugin(str(auth), str(properties.get(SERVERS, "")))


def _of_msk(region: str, profile: object) -> TokenCallback:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigError([NEEDS_EXTRA]) from error

    def make() -> Token:
        try:
            if profile is None:
                text, expires_at_ms = Signer.generate_auth_token(region)
            else:
                text, expires_at_ms = Signer.generate_auth_token_from_profile(region, str(profile))
        except AttributeError as error:  # of None, which is what the signer has for credentials then
            raise LookupError("there are no credentials of AWS") from error
        return text, expires_at_ms / 1000

    whose = "this process" if profile is None else f"the profile {profile!r}"
    remedy = f"give {whose} credentials of AWS: in the environment, in a profile, or as the role of the machine"
    return TokenCallback(f"auth = {MSK_IAM}", make, remedy)


def _of_plugin(name: str, servers: str) -> TokenCallback:
    try:
        made = plugin(name, ("token",), {"servers": servers}, group=TOKENS)
    except ValueError as error:
        raise ConfigError([f"kafka.{AUTH}: {error}"]) from error

    def make() -> Token:
        result: Any = made.instance.token()
        match result:
            case (str() as text, int() | float() as ends_at):
                return text, float(ends_at)
        raise TypeError(f"token() returned {type(result).__name__}, which is not a text and the second of its end")

    return TokenCallback(f"auth = {name}", make, "see why its token() fails")
