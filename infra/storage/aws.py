"""Shared by our AWS clients: credentials, timeouts, retries, and the text of their errors."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError

CONNECT_TIMEOUT = timedelta(seconds=5)
READ_TIMEOUT = timedelta(seconds=30)  # longer than the longest SQS poll
ATTEMPTS = 2  # of the client; `infra.storage.retrying` owns the others, which are logged and reported


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role whose temporary keys a client uses."""

    arn: str
    external_id: str | None = None
    session_name: str = "kafka-segment-replicator"
    duration: timedelta = timedelta(hours=1)

    def arguments(self) -> dict[str, Any]:
        """Arguments of AssumeRole, besides the ARN."""
        given = {"RoleSessionName": self.session_name, "DurationSeconds": int(self.duration.total_seconds())}
        return given | ({"ExternalId": self.external_id} if self.external_id else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """The credentials of one client: explicit keys, or those of a profile, or without both the AWS credential chain.
    With a `role`, they only assume it."""

    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    role: AssumedRole | None = None

    @property
    def has_own(self) -> bool:
        """Whether they say more than to use what the environment, or the program around us, has."""
        return self.access_key_id is not None or self.profile is not None


def new_session(profile: str | None = None) -> botocore.session.Session:
    """A session for one client: sessions are not thread safe, and each reads the AWS profile, which is the
    environment's by default. All share the descriptions of AWS's services, which take 0.2 s of CPU to read."""
    session = botocore.session.Session(profile=profile)
    session.register_component("data_loader", _descriptions(tuple(session.get_component("data_loader").search_paths)))
    return session


class _Descriptions(Loader):
    """Takes each folder for a service. The library's own loader first searches all of them, 400, for the file of which
    it opens one: 20 ms of the start of a process."""

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - a method of the library
        return sorted({name for path in self.search_paths if os.path.isdir(path) for name in os.listdir(path)})


@cache
def _descriptions(search_paths: tuple[str, ...]) -> Loader:
    return _Descriptions(extra_search_paths=search_paths, include_default_search_paths=False)


def client_config(
    *,
    max_pool_connections: int,
    connect_timeout: timedelta = CONNECT_TIMEOUT,
    read_timeout: timedelta = READ_TIMEOUT,
    attempts: int = ATTEMPTS,
    s3: Any = None,
) -> Config:
    return Config(
        connect_timeout=connect_timeout.total_seconds(),
        read_timeout=read_timeout.total_seconds(),
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=max_pool_connections,
        s3=s3,
    )


ASSUME_ROLE = "AssumeRole"
_TEMPORARY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable"})


def advice_on_credentials(error: BaseException) -> str:
    """What an operator has to do about the credentials themselves; empty when the error is of something else."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return "set the AWS credentials in the environment, or give this process a role"
    if not isinstance(error, ClientError) or error.operation_name != ASSUME_ROLE:
        return ""
    if status(error) < 500 and error_code(error) not in _TEMPORARY:
        return (
            "role_arn cannot be assumed: allow sts:AssumeRole on it to the credentials that assume it, and check the "
            "role's trust policy, its maximum session duration, and external_id"
        )
    return ""


FAILURES = (ClientError, BotoCoreError, ResponseParserError, OSError)
"""What a call of a client raises, from its own validation down to the socket; an error page of a proxy, or of an
overloaded server, cannot be parsed."""


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def describe_error(error: BaseException) -> str:
    """`error` as one line: the code and message of AWS, or the client's own text."""
    if isinstance(error, ClientError):
        message = error.response.get("Error", {}).get("Message", "")
        return f"{status(error)} {error_code(error)}: {message}"
    if isinstance(error, BotoCoreError):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
