"""What whatever we build stands in: clock, stop signals, metrics, health, and the clients of buckets and queues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from infra.aws import AwsCredentials
from infra.http import HealthServer
from infra.metered import MeteredObjectStore
from infra.metrics import PrometheusMetrics
from infra.retry import RetryingColdStore, RetryingObjectStore, RetryPolicy
from infra.s3 import S3ObjectStore, S3PutOptions, make_s3_client
from infra.s3_cold import S3Cold
from infra.s3_uploads import S3Uploads
from infra.sqs import SqsQueue, make_sqs_client
from replicator import logkeys
from replicator.config import Config, S3Settings, SqsSettings
from replicator.control import is_control_key
from replicator.health import Health
from replicator.lifecycle import Stop, SystemClock
from replicator.protocols import ColdStore, ObjectStore
from replicator.service import Service
from replicator.threads import ThreadedService

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

log = logging.getLogger(__name__)

GRACE = timedelta(seconds=2)  # for closing clients, beyond the shutdown's deadline
ARCHIVE_THREADS = 8
ARCHIVE_ATTEMPTS = 8


class Surroundings:
    """What every service has: clock, stop signals, metrics, health, one HTTP port, and things to close."""

    def __init__(self, config: Config) -> None:
        self.clock = SystemClock()
        self.stop, self.abandon = Stop(), Stop()
        self.resources = ExitStack()
        self.health = Health()
        self.metrics = PrometheusMetrics()
        if config.metrics.listen is not None:
            server = HealthServer(config.metrics.listen, self.metrics.registry, self.health, clock=self.clock)
            self.resources.callback(server.close)
            # the port is news when it was left to the system
            log.info("listening", extra={logkeys.ADDRESS: server.address})

    @contextmanager
    def building(self) -> Iterator[None]:
        """Closes what was opened already when the rest cannot be built."""
        try:
            yield
        except BaseException:
            self.resources.close()
            raise

    def pool(self, threads: int, name: str) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(threads, name)
        self.resources.callback(pool.shutdown, wait=False, cancel_futures=True)  # one may hang in a request
        return pool

    def objects(self, settings: S3Settings, threads: int) -> ObjectStore:
        store = s3_store(settings, threads, self.resources)

        def troubled(operation: str, reason: str | None) -> None:
            what = f"s3://{settings.bucket}: {operation}"
            if reason is None:
                self.health.resumed(what)
            else:
                self.health.stopped(what, f"fails again and again: {reason}")

        return RetryingObjectStore(MeteredObjectStore(store, self.metrics), stop=self.abandon, troubled=troubled)

    def queue(self, settings: SqsSettings) -> SqsQueue:
        client = make_sqs_client(
            endpoint_url=settings.endpoint_url, region_name=settings.region_name, credentials=_credentials(settings)
        )
        self.resources.callback(client.close)
        return SqsQueue(client, settings.queue)

    def service(self, loops: dict[str, Callable[[], None]], shutdown_timeout: timedelta) -> Service:
        return ThreadedService(loops, self.stop, self.resources, grace=shutdown_timeout + GRACE)


def s3_store(settings: S3Settings, threads: int, resources: ExitStack) -> S3ObjectStore:
    """The bucket, without retries."""
    client = _s3_client(settings, threads, resources)
    options = S3PutOptions(
        storage_class=settings.storage_class or "",
        # the control plane is read all the time, and an archive's class may not let it be read at all
        keeps_default_class=partial(is_control_key, settings.prefix),
        sse=settings.sse or "",
        kms_key_id=settings.kms_key_id or "",
    )
    return S3ObjectStore(client, settings.bucket, put_options=options, part_size_bytes=settings.part_size)


def s3_uploads(settings: S3Settings, resources: ExitStack) -> S3Uploads:
    """Those of the bucket that nobody completed, without retries."""
    return S3Uploads(_s3_client(settings, 1, resources), settings.bucket)


def s3_cold(settings: S3Settings, stop: Stop, resources: ExitStack) -> ColdStore:
    """Its objects that cannot be read at once; a request is given up as `archive_objects` does."""
    store = S3Cold(_s3_client(settings, ARCHIVE_THREADS, resources), settings.bucket)
    return RetryingColdStore(store, stop=stop, policy=RetryPolicy(attempts=ARCHIVE_ATTEMPTS))


def _s3_client(settings: S3Settings, threads: int, resources: ExitStack) -> S3Client:
    client = make_s3_client(
        endpoint_url=settings.endpoint_url,
        region_name=settings.region_name,
        credentials=_credentials(settings),
        max_pool_connections=threads,
    )
    resources.callback(client.close)
    return client


def archive_objects(settings: S3Settings, stop: Stop, resources: ExitStack) -> ObjectStore:
    """For work that can be done another time: a request is given up after a minute or so."""
    store = s3_store(settings, ARCHIVE_THREADS, resources)
    return RetryingObjectStore(store, stop=stop, policy=RetryPolicy(attempts=ARCHIVE_ATTEMPTS))


def program() -> str:
    """As footers name the writer of a segment."""
    return f"kafka-segment-replicator {version('kafka-segment-replicator')}"


def for_workers(config: Config, *needed: str) -> Config:
    """What is pickled for tasks of Spark: no more than the archive and the sections `needed`."""
    sections = {"kafka", "egress", "sqs", "ingress", "sync", "compaction", "retention"}
    left_out: dict[str, Any] = dict.fromkeys(sections - set(needed))
    return replace(config, **left_out)


def _credentials(settings: S3Settings | SqsSettings) -> AwsCredentials | None:
    if settings.access_key_id is None or settings.secret_access_key is None:
        return None
    return AwsCredentials(
        access_key_id=settings.access_key_id,
        secret_access_key=settings.secret_access_key,
        session_token=settings.session_token,
    )
