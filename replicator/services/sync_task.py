"""Copies and compares objects as Spark tasks: some objects each. An object is put with `If-None-Match`, so that a
repeated task finds its copies, and compares them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from egress.bucket_sync import BucketSide, BucketSync, SyncDone
from egress.sync_steps import SyncStep
from formats.errors import TransientError
from infra.runtime import log_fields
from infra.runtime.lifecycle import Stop
from infra.runtime.prometheus import PrometheusMetrics
from replicator.config import Config
from replicator.services.encryption import sealed_only
from replicator.services.wiring import ARCHIVE_THREADS, stored_objects

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedObjects:
    done: Sequence[SyncDone] = ()
    failed: Sequence[str] = field(default_factory=list)  # names
    in_clear: Sequence[str] = ()  # keys of the destination, of those of `failed` that were refused
    failure: str = ""  # why, where the log of no executor says it


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A `SparkTask`. It is pickled together with the configuration, which includes credentials."""

    config: Config

    def row(self, item: Sequence[SyncStep]) -> str:
        return json.dumps([[step.name, step.is_copy] for step in item])

    def __call__(self, row: str) -> str:
        done, failed, in_clear = [], [], list[str]()
        with ExitStack() as opened:
            sync = bucket_sync(self.config, Stop(), opened, in_clear.append)
            steps = [SyncStep(name, is_copy=is_copy) for name, is_copy in json.loads(row)]
            for step, future in [(step, sync.pool.submit(sync.carry_out, step)) for step in steps]:
                try:
                    done.append(asdict(future.result()))
                except TransientError as error:
                    failed.append(step.name)
                    log.warning("copy_failed", extra={log_fields.KEY: step.name, log_fields.ERROR: str(error)})
        return json.dumps({"done": done, "failed": failed, "in_clear": in_clear})

    def outcome(self, answer: str) -> CopiedObjects:
        fields = json.loads(answer)
        done = [SyncDone(**one) for one in fields["done"]]
        return CopiedObjects(done=done, failed=fields["failed"], in_clear=fields["in_clear"])

    def failed(self, item: Sequence[SyncStep], reason: str) -> CopiedObjects:
        return CopiedObjects(failed=[step.name for step in item], failure=reason)


def bucket_sync(
    config: Config, stop: Stop, opened: ExitStack, on_refused: Callable[[str], None] = lambda _: None
) -> BucketSync:
    """For work that ends by itself. Its clients are closed with `opened`. `on_refused`: as of `sealed_only`."""
    settings = config.sync
    if settings is None:
        raise config.without("sync", "; add [sync.destination]")
    pool = opened.enter_context(ThreadPoolExecutor(ARCHIVE_THREADS, "copy"))
    return BucketSync(
        config.region,
        BucketSide(stored_objects(config.s3, stop, opened), config.s3.prefix),
        BucketSide(
            sealed_only(stored_objects(settings.destination, stop, opened), config.encryption, on_refused),
            settings.destination.prefix,
        ),
        settings.topics,
        settings.levels,
        pool,
        ARCHIVE_THREADS,
        PrometheusMetrics(),
        stop,
    )
