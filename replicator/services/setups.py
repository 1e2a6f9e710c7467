"""How the bucket and the queue of a configuration are set up, for a user who waits for the answer: without retries."""

from __future__ import annotations

from contextlib import ExitStack

from infra.storage.bucket_setup import S3BucketSetup
from infra.storage.queue_setup import SqsQueueSetup
from infra.storage.sqs import make_sqs_client
from replicator.config import S3Settings, SqsSettings
from replicator.services.credentials import credentials_of
from replicator.services.wiring import ARCHIVE_THREADS, PROBE_TIMEOUT, s3_client_of


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
