"""For a user who waits for the answer, without retries: how the bucket and the queue of a configuration are set up, of
whom AWS takes credentials to be, and whether keys can be used."""

# ruff: noqa: PLC0415  -- packages of ciphers are imported on first use, as in `encryption`

from __future__ import annotations

import os
from contextlib import ExitStack

from formats.errors import ConfigError, KeyRefused
from infra.contracts.encryption import KeyProvider
from infra.settings.encryption import EncryptionSettings
from infra.storage.aws import client_config
from infra.storage.bucket_setup import S3BucketSetup
from infra.storage.clients import create_client
from infra.storage.identity import Identity
from infra.storage.queue_setup import SqsQueueSetup
from infra.storage.sqs import make_sqs_client
from replicator.config import S3Settings, SqsSettings
from replicator.services.credentials import credentials_of
from replicator.services.encryption import kms_clients
from replicator.services.wiring import ARCHIVE_THREADS, PROBE_TIMEOUT, s3_client_of

STS_ENDPOINT = "AWS_ENDPOINT_URL_STS"


def s3_setup(settings: S3Settings, resources: ExitStack) -> S3BucketSetup:
    """Of the bucket."""
    client = s3_client_of(settings, 2 * ARCHIVE_THREADS, resources, once=True, read_timeout=PROBE_TIMEOUT)
    return S3BucketSetup(client, settings.bucket)


def queue_setup(settings: SqsSettings, resources: ExitStack, queue: str = "") -> SqsQueueSetup:
    """Of the queue, or of another one (`queue`) with its credentials."""
    client = make_sqs_client(
        endpoint_url=settings.endpoint_url,
        region_name=settings.region_name,
        credentials=credentials_of(settings),
        read_timeout=PROBE_TIMEOUT,
        attempts=1,
    )
    resources.callback(client.close)
    return SqsQueueSetup(client, queue or settings.queue)


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
