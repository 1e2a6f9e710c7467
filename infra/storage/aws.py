"""Shared by our AWS clients: credentials, timeouts, retries, and the text of their errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader

CONNECT_TIMEOUT = timedelta(seconds=5)
READ_TIMEOUT = timedelta(seconds=30)  # longer than the longest SQS poll
ATTEMPTS = 3  # of the client, within seconds; `infra.storage.retrying` owns longer retries


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """Explicit credentials; without them the AWS credential chain is used."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    def arguments(self) -> dict[str, Any]:
        """Arguments of `Session.client`."""
        return {
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
            "aws_session_token": self.session_token,
        }


def new_session() -> botocore.session.Session:
    """A session for one client: sessions are not thread safe, and each reads the environment's AWS profile. All share
    the descriptions of AWS's services, which take 0.2 s of CPU to read."""
    session = botocore.session.get_session()
    session.register_component("data_loader", _service_descriptions())
    return session


@cache
def _service_descriptions() -> Loader:
    loader: Loader = botocore.session.get_session().get_component("data_loader")
    return loader


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
