"""What the doctor asks beside buckets and queues: whom AWS takes credentials for, and whether keys can be used."""

# ruff: noqa: PLC0415  -- packages of ciphers are imported on first use, as in `encryption`

from __future__ import annotations

import os
from contextlib import ExitStack

from formats.errors import ConfigError, KeyRefused
from infra.contracts.encryption import KeyProvider
from infra.settings.encryption import EncryptionSettings
from infra.storage.aws import client_config
from infra.storage.clients import create_client
from infra.storage.identity import Identity
from replicator.config import S3Settings
from replicator.services.credentials import credentials_of
from replicator.services.encryption import kms_clients
from replicator.services.wiring import PROBE_TIMEOUT

STS_ENDPOINT = "AWS_ENDPOINT_URL_STS"


def caller_of(settings: S3Settings, resources: ExitStack) -> str:
    """The ARN of whom AWS takes the section's credentials for; empty: of another store than AWS's. Raises
    StoreUnavailable and ConfigError."""
    if settings.endpoint_url is not None and STS_ENDPOINT not in os.environ:
        return ""
    client = create_client(
        "sts",
        endpoint_url=None,
        region_name=settings.region_name,
        credentials=credentials_of(settings),
        session=None,
        config=client_config(max_pool_connections=1, read_timeout=PROBE_TIMEOUT, attempts=1),
    )
    resources.callback(client.close)
    return Identity(client).arn()


def problem_of_new_objects(settings: EncryptionSettings, region: str, resources: ExitStack) -> str:
    """Why no data key can be made and unwrapped for the archive of `region`; empty: it was done, and nothing is left of
    it. Raises StoreUnavailable."""
    from infra.storage.key_file import KeyFile
    from infra.storage.kms_keys import KmsKeys

    try:
        keys: KeyProvider
        if settings.key == "file":
            assert settings.key_file is not None, "checked by EncryptionSettings"
            keys = KeyFile(settings.key_file, settings.key_text)
        else:
            keys = KmsKeys(settings.kms_key_id, (), kms_clients(settings, resources))
        made = keys.create(region)
        keys.unwrap(made.key_id, made.wrapped, region)
    except (KeyRefused, ConfigError) as error:
        return str(error)
    return ""


def problem_of_read_key(settings: EncryptionSettings, arn: str, resources: ExitStack) -> str:
    """Why a KMS key unwraps nothing; empty: it does. Raises KeyRefused, where it may not be described, and
    StoreUnavailable."""
    from infra.storage.key_setup import KmsKeySetup

    return KmsKeySetup(kms_clients(settings, resources)).problem(arn)
