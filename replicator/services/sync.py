"""Builds sync from its parts: this region's archive into another bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from egress.bucket_sync import BucketSide, BucketSync, SyncResult
from egress.sync_loop import SyncLoop
from egress.sync_steps import SyncStep
from formats.errors import ConfigError, StoreUnavailable
from infra.runtime.lifecycle import Stop
from infra.runtime.progress import Progress, no_progress
from infra.runtime.service import Service
from replicator.config import Config, MetricsSettings
from replicator.services.clear_objects import ClearObjects
from replicator.services.encryption import sealed_only
from replicator.services.spark_jobs import SparkJobs
from replicator.services.sync_task import CopyTask, bucket_sync
from replicator.services.wiring import ServiceContext, for_workers, require_conditional_writes

if TYPE_CHECKING:
    import boto3

    from infra.spark.driver import SparkSettings

SYNC_SHUTDOWN = timedelta(seconds=10)
STEPS_TOGETHER = 20  # objects of a row on Spark
ROWS_TOGETHER = 500  # rows of a job there: of a bucket of any size, 10,000 names are in memory
SYNC_COMPARED = 200  # objects compared per round of the service: a comparison may read the object in both buckets


def build_sync(
    config: Config, *, once: Callable[[SyncResult], None] | None = None, session: boto3.Session | None = None
) -> Service:
    """A service that copies this region's archive to another bucket until it is stopped; with `once`, one round, whose
    result is passed to `once`, without the port of [metrics]. `session`: as of `build_egress`. Raises ConfigError."""
    if config.sync is None:
        raise ConfigError(["sync: missing; add [sync.destination]"], source=config.source)
    # what ends is not watched: the port of [metrics] is that of a service of the same file
    around = ServiceContext(config if once is None else replace(config, metrics=MetricsSettings()), session)
    settings = config.sync
    with around.building():
        width = 8
        options: dict[str, Any] = {"threads": width + 4, "once": once is not None, "as_stored": True}
        here = around.objects(config.s3, **options)
        there = around.objects(settings.destination, writes_as=config.region, **options)
        clear = ClearObjects(settings.destination.prefix, around.metrics)
        sync = BucketSync(
            config.region,
            BucketSide(here, config.s3.prefix),
            BucketSide(sealed_only(there, config.encryption, clear.refuse), settings.destination.prefix),
            settings.topics,
            settings.levels,
            around.pool(width, "copy"),
            width,
            around.metrics,
            around.stop,
            alive=lambda: around.health.turn(around.clock.now()),
            most_compared=SYNC_COMPARED if once is None else None,
        )
        queue = around.queue(settings.queue) if settings.queue else None
        queue_wait = min(settings.queue.wait, SYNC_SHUTDOWN / 2) if settings.queue else timedelta()
        loop = SyncLoop(sync, queue, queue_wait, settings.interval, around.clock, around.health, around.stop)
        if once is not None:
            return around.service({"sync": lambda: once(one_round(sync, around.stop, clear))}, SYNC_SHUTDOWN)
        loops = {"sync": loop.run}
        if settings.queue is not None:
            loops["sync-queue"] = loop.follow
        return around.service(loops, SYNC_SHUTDOWN)


def sync_on_spark(
    config: Config, spark: SparkSettings, *, stop: Stop | None = None, progress: Progress = no_progress
) -> SyncResult:
    """One round of `build_sync`, on Spark: the buckets are listed here, and objects copied and compared by its workers.
    `progress`: rows done, and rows listed so far. Raises ConfigError, StoreUnavailable when a listing or copies failed,
    PlanFailed and SparkUnavailable."""
    if config.sync is None:
        raise ConfigError(["sync: missing; add [sync.destination]"], source=config.source)
    stop = stop or Stop()
    require_conditional_writes(config.sync.destination, config.region, stop)

    earlier = 0  # rows of the jobs before

    def report(done: int, total: int) -> None:
        if stop.is_set():
            raise StoreUnavailable("sync: stopped before the end; run it again")
        progress(earlier + done, earlier + total)

    with ExitStack() as opened:
        sync, result = bucket_sync(config, stop, opened), SyncResult()
        clear = ClearObjects(config.sync.destination.prefix, sync.metrics)
        jobs, task = opened.enter_context(SparkJobs(spark)), CopyTask(for_workers(config, "sync"))
        rows = _grouped(sync.steps(result), STEPS_TOGETHER)
        # a job of bounded size after the other: the listings of both buckets go on behind it
        while some_rows := list(islice(rows, ROWS_TOGETHER)):
            for some in jobs.run(task, some_rows, progress=report):
                for done in some.done:
                    sync.count(done, result)
                result.failed += len(some.failed)
                result.failure = some.failure or result.failure
                for key in some.in_clear:
                    clear.refuse(key)
            earlier += len(some_rows)
    return _whole(result, clear, is_stopped=False, failure=result.failure)


def _grouped(steps: Iterator[SyncStep], count: int) -> Iterator[Sequence[SyncStep]]:
    while some := list(islice(steps, count)):
        yield some


def one_round(sync: BucketSync, stop: Stop, clear: ClearObjects) -> SyncResult:
    """Run one round. Raises StoreUnavailable when a listing or copies failed, each logged, or when it was stopped."""
    return _whole(sync.once(), clear, is_stopped=stop.is_set())


def _whole(result: SyncResult, clear: ClearObjects, *, is_stopped: bool, failure: str = "") -> SyncResult:
    """`failure`: the last one that no log has."""
    if not result.failed and not is_stopped:
        return result
    what = f"{result.failed} objects could not be copied" if result.failed else "stopped before the end"
    then = "".join(f"; {problem}" for problem in (failure, clear.problem, result.difference) if problem)
    if is_stopped or result.failed > clear.count:
        then += "; run it again"
    raise StoreUnavailable(f"sync: {what}, {result.copied} were{then}")
