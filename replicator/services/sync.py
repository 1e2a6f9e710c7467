"""Builds sync from its parts: this region's archive into another bucket."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from egress.bucket_sync import BucketSide, BucketSync, SyncLoop, SyncResult
from formats.errors import ConfigError, StoreUnavailable
from infra.runtime.lifecycle import Stop
from infra.runtime.service import Service
from replicator.config import Config
from replicator.services.wiring import ServiceContext

SYNC_SHUTDOWN = timedelta(seconds=10)
SYNC_COMPARED = 200  # objects compared per round of the service: a comparison may read the object in both buckets


def build_sync(config: Config, *, once: Callable[[SyncResult], None] | None = None) -> Service:
    """A service that copies this region's archive to another bucket until it is stopped; with `once`, one round, whose
    result is passed to `once`. Raises ConfigError."""
    if config.sync is None:
        raise ConfigError(["sync: missing; add [sync.destination]"], source=config.source)
    settings, around = config.sync, ServiceContext(config)
    with around.building():
        width = 8
        sync = BucketSync(
            config.region,
            BucketSide(around.objects(config.s3, threads=width + 4, once=once is not None), config.s3.prefix),
            BucketSide(
                around.objects(settings.destination, threads=width + 4, once=once is not None, writes_as=config.region),
                settings.destination.prefix,
            ),
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
            return around.service({"sync": lambda: once(_once(sync, around.stop))}, SYNC_SHUTDOWN)
        loops = {"sync": loop.run}
        if settings.queue is not None:
            loops["sync-queue"] = loop.follow
        return around.service(loops, SYNC_SHUTDOWN)


def _once(sync: BucketSync, stop: Stop) -> SyncResult:
    """Run one round. Raises StoreUnavailable when a listing or copies failed, each logged, or when it was stopped."""
    result = sync.once()
    if result.failed or stop.is_set():
        what = f"{result.failed} objects could not be copied" if result.failed else "stopped before the end"
        raise StoreUnavailable(f"sync: {what}, {result.copied} were; run it again")
    return result
