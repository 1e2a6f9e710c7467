"""What every service is built with: clock, stop signals, metrics, health, and the clients of buckets and queues."""

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

from formats.control.keys import is_control_key, is_heartbeat, is_of_one_bucket, probe_key
from formats.errors import ConfigError, StoreUnavailable
from infra.contracts.storage import ColdStore, ObjectStore
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop, SystemClock
from infra.runtime.retry import Retries, RetryPolicy
from infra.runtime.service import Service
from infra.runtime.threaded_service import ThreadedService
from infra.storage.aws import ATTEMPTS
from infra.storage.conditional_writes import ProvenObjectStore
from infra.storage.metered import MeteredObjectStore
from infra.storage.retrying import RetryingColdStore, RetryingObjectStore
from infra.storage.s3 import S3ObjectStore, S3PutOptions, make_s3_client
from infra.storage.s3_glacier import S3Cold
from infra.storage.s3_multipart import S3Uploads
from infra.storage.sqs import SqsQueue, make_sqs_client
from replicator.config import Config, MetricsSettings, S3Settings, SqsSettings
from replicator.services.credentials import credentials_of
from replicator.services.encryption import KeyRetries, encrypted, encryption_for_workers

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_s3.client import S3Client


log = logging.getLogger(__name__)

START_PATIENCE = timedelta(seconds=30)  # how long a service waits for a cluster that may be starting, too
GRACE = timedelta(seconds=2)  # for closing clients, beyond the shutdown's deadline
PROBE_TIMEOUT = timedelta(seconds=10)
ARCHIVE_THREADS = 24  # requests of one command at a time, at most
NEEDS_BUCKET = (
    "nothing is lost meanwhile, and it goes on by itself; if only this machine says so, it needs a way to the bucket's "
    "endpoint, and credentials: those of [s3], else its own"
)
ONCE = RetryPolicy(attempts=8, raises_refusals=True)
"""For work that can be repeated later: retries transient errors for about a minute, others not at all."""


class ServiceContext:
    """The parts that every service has: clock, stop signals, metrics, health, one HTTP port, and resources to close."""

    def __init__(self, config: Config, session: boto3.Session | None = None) -> None:
        """`session`: for the buckets and queues whose sections name neither keys nor a profile."""
        # here: commands without metrics import this module, too
        from infra.runtime.health_server import HealthServer  # noqa: PLC0415
        from infra.runtime.prometheus import PrometheusMetrics  # noqa: PLC0415
        from replicator.services.listener_access import access_of  # noqa: PLC0415

        self.config, self.session = config, session
        self.clock = SystemClock()
        self.stop, self.abandon = Stop(), Stop()
        self.resources = ExitStack()
        self.health = Health()
        self.metrics = PrometheusMetrics()
        if config.metrics.listen is not None:
            server = HealthServer(
                config.metrics.listen,
                self.metrics,
                self.health,
                clock=self.clock,
                metrics=self.metrics,
                access=access_of(config.metrics),
            )
            self.resources.callback(server.close)
            # logged because the system may have chosen the port
            log.info("listening", extra={log_fields.ADDRESS: server.address})

    @contextmanager
    def building(self) -> Iterator[None]:
        """Close the resources opened so far if the block raises."""
        try:
            yield
        except BaseException:
            self.resources.close()
            raise

    def pool(self, threads: int, name: str) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(threads, name)
        self.resources.callback(pool.shutdown, wait=False, cancel_futures=True)  # a thread may hang in a request
        return pool

    def objects(
        self,
        settings: S3Settings,
        threads: int,
        *,
        once: bool = False,
        raises_refusals: bool = False,
        writes_as: str | None = None,
        as_stored: bool = False,
    ) -> ObjectStore:
        """The bucket, with retries and metrics, and with the keys of [encryption].

        `once`: for work that ends by itself and fails where a service would wait. `raises_refusals`: for reads that
        another one should not wait behind: what is refused may be one object alone. `writes_as`: the region that
        objects are put for. `as_stored`: objects as the bytes that are stored, for copies, without the keys. Raises
        ConfigError when the bucket lets objects be overwritten; a bucket that does not answer now is probed before the
        first put.
        """
        store: ObjectStore = s3_store(settings, threads, self.resources, once=once, session=self.session)
        policy = ONCE if once else RetryPolicy(raises_refusals=raises_refusals)
        if writes_as is not None and settings.conditional_writes == "probe":
            # one attempt with a short timeout: a start does not wait for an unavailable bucket
            asked = s3_store(settings, 1, self.resources, once=True, read_timeout=PROBE_TIMEOUT, session=self.session)
            key = probe_key(settings.prefix, writes_as)
            store = proven = ProvenObjectStore(store, partial(asked.problem_of_conditional_writes, key))
            try:
                problem = proven.problem()
            except StoreUnavailable as error:
                log.warning("conditional_writes_not_proven", extra={log_fields.ERROR: str(error)})
            else:
                _refuse(problem)

        def on_problem(operation: str, reason: str | None) -> None:
            self._reported(f"s3://{settings.bucket}: {operation}", reason and f"{reason}; {NEEDS_BUCKET}")

        def on_key_problem(operation: str, reason: str | None) -> None:
            self._reported(f"[encryption]: {operation}", reason)

        metered = MeteredObjectStore(store, self.metrics)
        retrying = RetryingObjectStore(metered, stop=self.abandon, policy=policy, on_problem=on_problem)
        if as_stored:
            return retrying
        retries = KeyRetries(self.abandon, policy, on_key_problem)
        return encrypted(
            retrying, self.config.encryption, settings.prefix, retries, self.resources, session=self.session
        )

    def _reported(self, what: str, reason: str | None) -> None:
        """`reason`: None when it succeeds again."""
        if reason is None:
            self.health.solved(what)
        else:
            self.health.problem(what, f"fails, and is tried again until it succeeds: {reason}")

    def queue(self, settings: SqsSettings) -> SqsQueue:
        client = make_sqs_client(
            endpoint_url=settings.endpoint_url,
            region_name=settings.region_name,
            credentials=credentials_of(settings),
            session=self.session,
        )
        self.resources.callback(client.close)
        return SqsQueue(client, settings.queue)

    def service(
        self,
        loops: dict[str, Callable[[], None]],
        shutdown_timeout: timedelta,
        reload: Callable[[], None] | None = None,
    ) -> Service:
        return ThreadedService(loops, self.stop, self.resources, grace=shutdown_timeout + GRACE, reload=reload)


def s3_store(
    settings: S3Settings, threads: int, resources: ExitStack, *, once: bool = False, **client_options: Any
) -> S3ObjectStore:
    """The bucket, with only the retries of the client; with `once`, without those, too. `client_options`: as for
    `make_s3_client`."""
    client = s3_client_of(settings, threads, resources, once=once, **client_options)
    options = S3PutOptions(
        storage_class=settings.storage_class or "",
        # control objects are read often, and an archive storage class may prevent reads
        keeps_default_class=partial(is_control_key, settings.prefix),
        sse=settings.sse or "",
        kms_key_id=settings.kms_key_id or "",
        bucket_key=settings.bucket_key,
        lock_mode=settings.object_lock_mode or "",
        lock_retention=settings.object_lock_retention or timedelta(),
        is_unlocked=partial(_is_unlocked, settings.prefix),
    )
    return S3ObjectStore(client, settings.bucket, put_options=options, part_size_bytes=settings.part_size)


def _is_unlocked(prefix: str, key: str) -> bool:
    """Whether Object Lock leaves out the object: it is about the bucket itself, or one of many signs of life."""
    name = key.removeprefix(f"{prefix}/" if prefix else "")
    return is_of_one_bucket(name) or is_heartbeat(name)


def s3_uploads(settings: S3Settings, resources: ExitStack) -> S3Uploads:
    """The incomplete multipart uploads of the bucket, with only the retries of the client."""
    return S3Uploads(s3_client_of(settings, 1, resources), settings.bucket)


def s3_cold(settings: S3Settings, stop: Stop, resources: ExitStack) -> ColdStore:
    """The bucket's objects that cannot be read at once, retried as in `archive_objects`."""
    store = S3Cold(s3_client_of(settings, ARCHIVE_THREADS, resources, once=True), settings.bucket)
    return RetryingColdStore(store, stop=stop, policy=ONCE)


def s3_client_of(
    settings: S3Settings, threads: int, resources: ExitStack, *, once: bool = False, **options: Any
) -> S3Client:
    """The client of the bucket, closed with `resources`. `options`: as for `make_s3_client`."""
    client = make_s3_client(
        attempts=1 if once else ATTEMPTS,  # the client also retries unknown hosts
        endpoint_url=settings.endpoint_url,
        region_name=settings.region_name,
        credentials=credentials_of(settings),
        max_pool_connections=threads,
        expected_bucket_owner=settings.expected_bucket_owner,
        **options,
    )
    resources.callback(client.close)
    return client


def archive_objects(
    config: Config, stop: Stop, resources: ExitStack, settings: S3Settings | None = None
) -> ObjectStore:
    """The archive's objects for work that can be repeated later: retried as `ONCE` says. `settings`: of another bucket
    than [s3]'s that has them."""
    settings = settings or config.s3
    objects = stored_objects(settings, stop, resources)
    return encrypted(objects, config.encryption, settings.prefix, KeyRetries(stop, ONCE), resources)


def stored_objects(settings: S3Settings, stop: Stop, resources: ExitStack) -> ObjectStore:
    """As `archive_objects`, but the bytes that are stored: for copies, which need no key."""
    return RetryingObjectStore(s3_store(settings, ARCHIVE_THREADS, resources, once=True), stop=stop, policy=ONCE)


def require_conditional_writes(settings: S3Settings, region: str, stop: Stop) -> None:
    """Check the bucket before work that can be repeated later puts objects for `region`. Raises ConfigError when the
    bucket lets objects be overwritten, and StoreUnavailable."""
    if settings.conditional_writes == "assume":
        return
    with ExitStack() as opened:
        bucket = s3_store(settings, 1, opened, once=True)
        key = probe_key(settings.prefix, region)
        retries = Retries(stop=stop, policy=ONCE)
        _refuse(retries.call("probe", lambda: bucket.problem_of_conditional_writes(key)))


def _refuse(problem: str) -> None:
    if problem:
        raise ConfigError([problem])


def program() -> str:
    """The writer's name in segment footers."""
    return f"kafka-segment-replicator {version('kafka-segment-replicator')}"


def for_workers(config: Config, *needed: str) -> Config:
    """The configuration that is pickled for Spark tasks: the archive and the sections `needed`, no more. Nor is there
    [metrics], which has a password, and a port that is one process's alone."""
    sections = {"kafka", "egress", "sqs", "ingress", "sync", "compaction", "retention", "schema_registry"}
    left_out: dict[str, Any] = dict.fromkeys(sections - set(needed))
    encryption = encryption_for_workers(config.encryption)
    return replace(config, encryption=encryption, metrics=MetricsSettings(), **left_out)
