"""Copies this region's objects that another bucket lacks to it, and deletes nothing.

Replaces S3 replication where there is none. Objects are written once, so a copy is a conditional put of the same key,
and repeating it changes nothing. Only the own region's prefix is copied: each prefix has one owner.

    listed in both buckets ──┬── absent ──> copy
                             ├── present, same size and checksum ──> present
                             ├── present, another size ──> differs: reported, never overwritten
                             └── present, unproven ──> compare: checksums, else every byte

The records of where the archives of partitions begin are copied first, and segments of a partition only after its own:
who delivers from the other bucket begins there, and without the record with what happens to be copied first. Segments
of a partition are copied by offset.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice

from egress.sync_steps import SyncStep, by_offset
from formats.control.keys import begin_key, begins_prefix, is_heartbeat, is_of_either_side, is_of_one_bucket
from formats.errors import KeyUnavailable, MalformedKey, ObjectFrozen, SegmentExists, SegmentNotFound, TransientError
from formats.incarnation import CONTROL
from formats.messages.s3_notifications import parse
from formats.messages.segment_events import Created
from formats.segment import parse_key, region_prefix
from formats.topic_selection import TopicPattern
from infra.archive.compare_objects import CopyState, Likeness, Located, compare, likeness, sizes_differ
from infra.contracts.storage import NotificationQueue, ObjectInfo, ObjectStore
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Stop
from infra.runtime.metrics import Metrics

log = logging.getLogger(__name__)

SIGN_OF_LIFE = timedelta(seconds=5)
BEGINS_TOGETHER = 100  # copies of begins that wait for the pool
REMEMBERED = 100_000  # comparisons that later rounds do not repeat
NAMED = 10  # differing objects named in one message
REMEDY = "find out which one is right (replicator verify, with the file of each side), and delete the other"


@dataclass(frozen=True, slots=True)
class BucketSide:
    """One of the two buckets: an archive's objects below a prefix."""

    objects: ObjectStore
    prefix: str

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def located(self, name: str) -> Located:
        return Located(self.objects, self.key(name))


@dataclass(slots=True)
class SyncResult:
    copied: int = 0
    copied_bytes: int = 0
    present: int = 0
    failed: int = 0  # retried by the next round
    failure: str = ""  # of the last of them
    differing: dict[str, str] = field(default_factory=dict)  # key below the prefix: how its copy differs

    @property
    def difference(self) -> str:
        """Message for operators about differing objects; empty when there are none."""
        if not self.differing:
            return ""
        some = "; ".join(f"{name}: {why}" for name, why in sorted(self.differing.items())[:NAMED])
        return f"{len(self.differing)} objects differ from their copies, which are left as they are: {some}. {REMEDY}"


@dataclass(frozen=True, slots=True)
class SyncDone:
    """The result of one object."""

    name: str
    copied_bytes: int | None = None  # None: already in the destination, or gone from the source
    difference: str = ""  # from the destination's object
    state: int | None = None  # identifies the state of both objects that `difference` is remembered for


@dataclass(slots=True)
class BucketSync:
    """Called by one thread; copies run in parallel on `pool`."""

    region: str
    source: BucketSide
    destination: BucketSide
    topics: Collection[TopicPattern]  # empty: all
    levels: Collection[int]  # empty: all
    pool: Executor
    width: int  # copies at a time
    metrics: Metrics
    stop: Stop
    alive: Callable[[], None] = lambda: None  # called every few seconds while copies run
    most_compared: int | None = None  # comparisons per round, which may read every byte; None: no limit
    _compared: dict[int, str] = field(default_factory=dict)  # hash of key and ETags: difference, empty if there is none
    _compared_until: str = ""  # the key after which the next round continues
    # names whose comparison failed or was cut short, and what a copy found different: the next round compares them, so
    # that what was reported stays until it is solved
    _unsettled: set[str] = field(default_factory=set)
    _differing: frozenset[str] = frozenset()  # in the last round
    _begins_settled: set[str] = field(default_factory=set)  # begins that the destination has, or this side never had

    def once(self) -> SyncResult:
        """List both buckets side by side, copy missing objects, and compare those that may differ. Raises
        StoreUnavailable when a listing fails."""
        result = SyncResult()
        running: dict[Future[SyncDone], str] = {}
        for step in self.steps(result):
            if self.stop.is_set():
                break
            running[self.pool.submit(self.carry_out, step)] = step.name
            if len(running) >= self.width:
                running = self._settle(running, result)
        while running:
            running = self._settle(running, result)
        self._differing = frozenset(result.differing)
        return result

    def follow(self, queue: NotificationQueue, timeout: timedelta) -> SyncResult:
        """Copy the segments that one batch of notifications of the source bucket names, then delete it. The rest,
        control objects included, is left to `once`."""
        result = SyncResult()
        messages = queue.receive(timeout)
        done = []
        for message in messages:
            parsed = parse(message.body, prefix=self.source.prefix, regions=(self.region,))
            segments = [event.segment for event in parsed.events if isinstance(event, Created)]
            names = [str(segment) for segment in segments if self._selected(str(segment))]
            begins = {begin_key("", one.source) for one in segments if self._selected(str(one))}
            failed_before = result.failed
            self._copy_begins(begins - self._begins_settled, result)
            if result.failed == failed_before:
                running = {self.pool.submit(partial(self._copy, name)): name for name in names}
                while running:
                    running = self._settle(running, result)
            if result.failed == failed_before and not parsed.problems:
                done.append(message)
        queue.delete(done)  # after the copies: a crash in between copies again, which changes nothing
        return result

    def _missing_begins(self) -> Iterator[str]:
        """Recorded begins that the destination lacks. Lists those of both buckets. Raises StoreUnavailable."""
        begins = begins_prefix("", self.region)
        theirs = self._relative(self.destination, begins)
        there = next(theirs, None)
        for name, _ in self._relative(self.source, begins):
            while there is not None and there[0] < name:
                there = next(theirs, None)
            if there is not None and there[0] == name:
                self._begins_settled.add(name)
            else:
                yield name

    def _copy_begins(self, begins: Iterable[str], result: SyncResult) -> None:
        """Copy these, and add those to `_begins_settled` that segments need not wait for."""
        waiting = iter(begins)
        while not self.stop.is_set() and (some := list(islice(waiting, BEGINS_TOGETHER))):
            for begin, future in [(begin, self.pool.submit(self._copy, begin)) for begin in some]:
                try:
                    done = future.result()
                except (KeyUnavailable, ObjectFrozen) as error:  # segments do not wait for what an operator decides
                    log.warning("copy_failed", extra={log_fields.KEY: begin, log_fields.ERROR: str(error)})
                except TransientError as error:
                    self._failed(error, result)
                    continue
                else:
                    if done.copied_bytes is not None:  # else it is there, or never was
                        self.count(done, result)
                self._begins_settled.add(begin)
                self.alive()

    def steps(self, result: SyncResult) -> Iterator[SyncStep]:
        """The copies and comparisons to make, once all begins are copied; objects that need neither are counted in
        `result`. Lists both buckets. Raises StoreUnavailable."""
        missing = frozenset(self._missing_begins())
        self._copy_begins(sorted(missing), result)
        yield from by_offset(self._listed(missing, result))

    def _listed(self, begins: Collection[str], result: SyncResult) -> Iterator[SyncStep]:
        """The steps, in key order, but for those of `begins`, and of segments whose begin could not be copied."""
        whole = region_prefix("", self.region)
        theirs = self._relative(self.destination, whole)
        there = next(theirs, None)
        left, is_whole = self.most_compared, True
        all_begins = begins_prefix("", self.region)
        held: set[str] = set()  # begins that are not copied
        before, met = frozenset(self._unsettled), set[str]()
        for name, here in _without_earlier_heartbeats(self._relative(self.source, whole)):
            while there is not None and there[0] < name:
                there = next(theirs, None)
            if not self._selected(name) or name in begins:
                continue
            if there is None or there[0] != name:
                begin = _begin_of(name)
                if begin is not None and begin not in held and begin not in self._begins_settled:
                    self._copy_begins([begin], result)  # it was recorded since, or there is none
                    held |= {begin} - self._begins_settled
                if begin not in held and not name.startswith(all_begins):
                    yield SyncStep(name, is_copy=True)
                continue
            if is_of_either_side(name):
                result.present += 1
                continue
            match likeness(here, there[1]):
                case Likeness.SAME:
                    result.present += 1
                case Likeness.DIFFERENT:
                    self._differs(name, sizes_differ(here, there[1]), result)
                case Likeness.UNPROVEN:
                    state = hash((name, here.etag, there[1].etag))
                    if (difference := self._compared.get(state)) is not None:
                        self._present(name, difference, result)
                    elif name in self._unsettled or (left != 0 and name > self._compared_until):
                        met.add(name)
                        self._unsettled.add(name)
                        self._compared_until = max(self._compared_until, name)
                        left = None if left is None else max(left - 1, 0)
                        yield SyncStep(name, is_copy=False, state=state)
                    elif left == 0:
                        is_whole = False
        self._unsettled -= before - met  # gone, or proved by their metadata
        if is_whole:
            self._compared_until = ""

    def _relative(self, side: BucketSide, below: str) -> Iterator[tuple[str, ObjectInfo]]:
        """Objects below a key, in key order, with their keys below the prefix."""
        head = len(side.prefix) + 1 if side.prefix else 0
        for item in side.objects.list(side.key(below)):
            yield item.key[head:], item

    def _selected(self, key: str) -> bool:
        """Whether to copy `key`, which is below the prefix: control objects, except those about the bucket itself, and
        selected segments; never other keys."""
        if key.startswith(f"{self.region}/{CONTROL}/"):
            return not is_of_one_bucket(key)
        try:
            segment = parse_key("", key)
        except MalformedKey:
            return False
        if self.levels and segment.level not in self.levels:
            return False
        return not self.topics or any(t.matches(segment.source.topic) for t in self.topics)

    # --- on the pool, or on another machine ---

    def carry_out(self, step: SyncStep) -> SyncDone:
        """May be repeated, also at the same time. Raises TransientError."""
        return self._copy(step.name) if step.is_copy else self._compare(step.name, step.state)

    def _copy(self, name: str) -> SyncDone:
        """`name`: the key below the prefix."""
        try:
            with self.source.objects.open(self.source.key(name)) as body:
                size_bytes = body.seek(0, io.SEEK_END)  # the actual size, not that of a listing or notification
                with durable(Step.COPY_OBJECT):
                    self.destination.objects.put_new(self.destination.key(name), body, size_bytes)
        except SegmentExists:
            return SyncDone(name) if is_of_either_side(name) else self._compare(name)
        except SegmentNotFound:
            return SyncDone(name)
        topic = name.split("/")[1]
        self.metrics.count("sync_objects", 1, topic=topic)
        self.metrics.count("sync_bytes", size_bytes, topic=topic)
        log.info("object_copied", extra={log_fields.KEY: name, log_fields.STORED_BYTES: size_bytes})
        return SyncDone(name, size_bytes)

    def _compare(self, name: str, state: int | None = None) -> SyncDone:
        """`state`: hash of the key and both ETags, as listed."""
        try:
            found = compare(self.source.located(name), self.destination.located(name))
        except SegmentNotFound:
            return SyncDone(name)
        if found.state is CopyState.NO_COPY:  # removed since it was listed: the next round copies it
            return SyncDone(name)
        return SyncDone(name, difference=found.detail, state=state)

    # --- results ---

    def _settle(self, running: Mapping[Future[SyncDone], str], result: SyncResult) -> dict[Future[SyncDone], str]:
        """`running`: with the name of each. Returns those that still run."""
        done, rest = wait(running, SIGN_OF_LIFE.total_seconds(), return_when=FIRST_COMPLETED)
        self.alive()
        for future in done:
            try:
                one = future.result()
            except TransientError as error:
                self._unsettled.add(running[future])
                self._failed(error, result)
                continue
            self.count(one, result)
            if one.state is not None:  # set only by `once`, so only one thread changes `_compared`
                self._compared[one.state] = one.difference
                if len(self._compared) > REMEMBERED:  # a difference stays a problem until its object is repaired
                    del self._compared[next((s for s, why in self._compared.items() if not why), one.state)]
        return {future: running[future] for future in rest}

    def _failed(self, error: TransientError, result: SyncResult) -> None:
        result.failed += 1
        result.failure = str(error)
        log.warning("copy_failed", extra={log_fields.ERROR: str(error)})

    def count(self, one: SyncDone, result: SyncResult) -> None:
        if one.difference and one.state is None:  # nothing remembers it
            self._unsettled.add(one.name)
        else:
            self._unsettled.discard(one.name)
        if one.copied_bytes is None:
            self._present(one.name, one.difference, result)
        else:
            result.copied += 1
            result.copied_bytes += one.copied_bytes

    def _present(self, name: str, difference: str, result: SyncResult) -> None:
        if difference:
            self._differs(name, difference, result)
        else:
            result.present += 1

    def _differs(self, name: str, difference: str, result: SyncResult) -> None:
        """Report the difference and leave both objects as they are: which one is right is unknown here."""
        if name not in self._differing:
            log.error(
                "copy_differs", extra={log_fields.KEY: name, log_fields.REASON: difference, log_fields.NEXT: REMEDY}
            )
        result.differing[name] = difference


def _begin_of(name: str) -> str | None:
    """The name of the record of where the archive of a segment's partition begins; None for any other object."""
    try:
        return begin_key("", parse_key("", name).source)
    except MalformedKey:
        return None


def _without_earlier_heartbeats(listed: Iterator[tuple[str, ObjectInfo]]) -> Iterator[tuple[str, ObjectInfo]]:
    """There is one every few seconds, and only the last says anything; nothing removes copies of the others."""
    before: tuple[str, ObjectInfo] | None = None
    for one in listed:
        if before is not None and not (is_heartbeat(before[0]) and is_heartbeat(one[0])):
            yield before
        before = one
    if before is not None:
        yield before
