"""Clients of AWS's services, each with the credentials of its own bucket or queue.

keys │ profile │ the program's session │ the credential chain  ──>  the client
                           └── with a role: AssumeRole, again before its keys end  ──>  the client
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.credentials import Credentials, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, NoCredentialsError

from formats.errors import ConfigError
from infra.storage.aws import AssumedRole, AwsCredentials, client_config, describe_error, new_session

if TYPE_CHECKING:
    import boto3

_METHOD = "assume-role"  # as botocore calls it, in its logs


def create_client(
    service: str,
    *,
    endpoint_url: str | None,
    region_name: str | None,
    credentials: AwsCredentials | None,
    session: boto3.Session | None,
    config: Config,
) -> Any:
    """A client; the caller closes it. `session`: of the program around us, for credentials that name neither keys nor a
    profile. A role is assumed at the first request. Raises ConfigError when the settings, the profile or the
    environment's AWS configuration are invalid."""
    given = credentials or AwsCredentials()
    session = None if given.has_own else session
    try:
        if session is not None and given.role is None:
            return session.client(  # type: ignore[call-overload]  # a literal for each service
                service, endpoint_url=endpoint_url, region_name=region_name, config=config
            )
        base = new_session(given.profile)
        if given.access_key_id is not None and given.secret_access_key is not None:
            base.set_credentials(given.access_key_id, given.secret_access_key, given.session_token)
        if given.role is not None:
            source = session.get_credentials() if session is not None else base.get_credentials()
            region_name = region_name or (session.region_name if session is not None else None)
            of_role = role_credentials(given.role, source, region_name, profile=given.profile)
            base = new_session(given.profile)
            base.register_component("credential_provider", _Given(of_role))
        return base.create_client(service, endpoint_url=endpoint_url, region_name=region_name, config=config)
    except (BotoCoreError, ValueError) as error:
        problem = f"{describe_error(error)}; correct it in the file or in the environment"
        raise ConfigError([problem], source=service.upper()) from error


@dataclass(frozen=True, slots=True)
class _Given:
    """In place of a session's search for credentials."""

    credentials: Credentials

    def load_credentials(self) -> Credentials:
        return self.credentials


def role_credentials(
    role: AssumedRole,
    source: Any,
    region_name: str | None,
    *,
    profile: str | None = None,
    now: Callable[[], datetime] | None = None,
) -> DeferredRefreshableCredentials:
    """Keys of `role`, asked for with the credentials `source` when they are needed, and again from 15 minutes before
    their end on: a renewal that fails is tried again with each request, and is an error only 10 minutes before their
    end. STS is asked at AWS_ENDPOINT_URL_STS if the environment has it, else in `region_name` or the profile's
    region."""

    def fetch() -> Mapping[str, Any]:
        if source is None:
            raise NoCredentialsError
        keys = source.get_frozen_credentials()
        sts: Any = new_session(profile).create_client(
            "sts",
            region_name=region_name,
            config=client_config(max_pool_connections=1),
            aws_access_key_id=keys.access_key,
            aws_secret_access_key=keys.secret_key,
            aws_session_token=keys.token,
        )
        with closing(sts):
            found = sts.assume_role(RoleArn=role.arn, **role.arguments())["Credentials"]
        return {
            "access_key": found["AccessKeyId"],
            "secret_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expiry_time": found["Expiration"].isoformat(),
        }

    given: Mapping[str, Any] = {} if now is None else {"time_fetcher": now}
    return DeferredRefreshableCredentials(fetch, _METHOD, **given)
