"""Bucket to bucket: copies what the other bucket lacks of this region's archive, and deletes nothing.

For those without S3 replication. Objects are written once, so a copy is a conditional put of the same key, and doing it
again does nothing. Only the sender's own region prefix is carried: each prefix has one owner.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import timedelta

from replicator import logkeys
from replicator.control import leases_prefix
from replicator.errors import MalformedKey, SegmentExists, SegmentNotFound, TransientError
from replicator.events import Created
from replicator.health import Health
from replicator.lifecycle import Deadline, Stop
from replicator.metrics import Metrics
from replicator.notifications import parse
from replicator.protocols import Clock, NotificationQueue, ObjectInfo, ObjectStore
from replicator.segment import CONTROL, parse_key, region_prefix
from replicator.topics import TopicPattern

log = logging.getLogger(__name__)

SIGN_OF_LIFE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Place:
    """One end: an archive's objects below a prefix."""

    objects: ObjectStore
    prefix: str

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name


@dataclass(slots=True)
class SyncResult:
    copied: int = 0
    copied_bytes: int = 0
    present: int = 0
    failed: int = 0  # tried again by the next round


@dataclass(slots=True)
class BucketSync:
    """One thread calls; copies run side by side on `pool`."""

    region: str
    source: Place
    destination: Place
    topics: Collection[TopicPattern]  # empty: all
    levels: Collection[int]  # empty: all
    pool: ThreadPoolExecutor
    width: int  # copies at a time
    metrics: Metrics
    stop: Stop
    alive: Callable[[], None] = lambda: None  # called every few seconds while copies run
    totals: SyncResult = field(default_factory=SyncResult)

    def once(self) -> SyncResult:
        """Lists both ends side by side and copies what is missing. Raises StoreUnavailable when a listing fails."""
        result = SyncResult()
        running: set[Future[int | None]] = set()
        for name in self._missing(result):
            if self.stop.is_set():
                break
            running.add(self.pool.submit(self._copy, name))
            if len(running) >= self.width:
                running = self._settle(running, result)
        while running:
            running = self._settle(running, result)
        self._add(result)
        return result

    def follow(self, queue: NotificationQueue, timeout: timedelta) -> SyncResult:
        """Copies what one batch of notifications of the source bucket tells of, then deletes it. What they do not tell,
        control objects too, is left to `once`."""
        result = SyncResult()
        messages = queue.receive(timeout)
        done = []
        for message in messages:
            parsed = parse(message.body, prefix=self.source.prefix, regions=(self.region,))
            wanted = [e.info for e in parsed.events if isinstance(e, Created) and self._selected(str(e.segment))]
            running = {self.pool.submit(self._copy, str(i.segment)) for i in wanted}
            failed_before = result.failed
            while running:
                running = self._settle(running, result)
            if result.failed == failed_before and not parsed.problems:
                done.append(message)
        queue.delete(done)  # copied, then deleted: a crash in between copies again, which does nothing
        self._add(result)
        return result

    def _missing(self, result: SyncResult) -> Iterator[str]:
        theirs = self._relative(self.destination)
        there = next(theirs, None)
        for key, _ in self._relative(self.source):
            while there is not None and there[0] < key:
                there = next(theirs, None)
            if not self._selected(key):
                continue
            if there is not None and there[0] == key:
                result.present += 1
                continue
            yield key

    def _relative(self, place: Place) -> Iterator[tuple[str, ObjectInfo]]:
        """Objects of this region, in key order, with their keys below the prefix."""
        head = len(place.prefix) + 1 if place.prefix else 0
        for item in place.objects.list(region_prefix(place.prefix, self.region)):
            yield item.key[head:], item

    def _selected(self, key: str) -> bool:
        """`key` is below the prefix. Control objects go, but for who works here now; keys of no segment never."""
        if key.startswith(f"{self.region}/{CONTROL}/"):
            return not key.startswith(leases_prefix("", self.region))
        try:
            segment = parse_key("", key)
        except MalformedKey:
            return False
        if self.levels and segment.level not in self.levels:
            return False
        return not self.topics or any(t.matches(segment.source.topic) for t in self.topics)

    def _copy(self, name: str) -> int | None:
        """Bytes copied; None when it was there, or is gone here. `name`: the key below the prefix."""
        try:
            with self.source.objects.open(self.source.key(name)) as body:
                size_bytes = body.seek(0, io.SEEK_END)  # what is there, whatever a listing or a notification said
                self.destination.objects.put_new(self.destination.key(name), body, size_bytes)
        except (SegmentExists, SegmentNotFound):
            return None
        topic = name.split("/")[1]
        self.metrics.count("sync_objects", 1, topic=topic)
        self.metrics.count("sync_bytes", size_bytes, topic=topic)
        log.info("object_copied", extra={logkeys.KEY: name, logkeys.STORED_BYTES: size_bytes})
        return size_bytes

    def _settle(self, running: set[Future[int | None]], result: SyncResult) -> set[Future[int | None]]:
        done, rest = wait(running, SIGN_OF_LIFE.total_seconds(), return_when=FIRST_COMPLETED)
        self.alive()
        for future in done:
            try:
                copied = future.result()
            except TransientError as error:
                result.failed += 1
                log.warning("copy_failed", extra={logkeys.ERROR: str(error)})
                continue
            if copied is None:
                result.present += 1
            else:
                result.copied += 1
                result.copied_bytes += copied
        return rest

    def _add(self, result: SyncResult) -> None:
        self.totals.copied += result.copied
        self.totals.copied_bytes += result.copied_bytes
        self.totals.failed += result.failed


@dataclass(frozen=True, slots=True)
class SyncLoop:
    """Runs on a thread of its own until stopped: notifications as they come, a listing every `interval`."""

    sync: BucketSync
    queue: NotificationQueue | None
    queue_wait: timedelta  # a stop waits for it
    interval: timedelta
    clock: Clock
    health: Health
    stop: Stop

    def run(self) -> None:
        """By listing only; `follow` runs beside it on another thread."""
        while not self.stop.is_set():
            try:
                self.sync.once()
                self.health.started(True)
            except TransientError as error:
                log.warning("sync_round_failed", extra={logkeys.ERROR: str(error)})
            self._rest()

    def _rest(self) -> None:
        """Until the next round; a round itself may take long, and `/healthz` says so."""
        rest = Deadline(self.interval)
        while not rest.expired and not self.stop.is_set():
            self.health.turn(self.clock.now())
            self.stop.wait(min(rest.left, timedelta(seconds=10)))

    def follow(self) -> None:
        while not self.stop.is_set():
            assert self.queue is not None
            try:
                self.sync.follow(self.queue, self.queue_wait)
            except TransientError as error:
                log.warning("sync_queue_failed", extra={logkeys.ERROR: str(error)})
                self.stop.wait(timedelta(seconds=1))
