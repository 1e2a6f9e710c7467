"""Removes generations of control objects that `compaction.generation_rules` does not keep, and copies of offset maps
that others supersede. Egress and ingress, which write them, have no right to delete.

In a bucket that was filled by copies the times of a listing are those of the copies: a whole history may have arrived
in one minute. So where several would go for one, the first that can be read is, and if it was stored later than it was
observed, all of them count by their observations. What cannot be read there stays, and so does a span of which nothing
can be: it may be of a newer program, or another thinner may have removed what was to be read. None of a copy goes
because it is older than the segments, whose times are not known to be older than the copy either.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice

from compaction.generation_rules import RULES, KeepRule, is_expired, most_settled, shares_span
from formats.control.keys import OFFSET_MAPS, generations_prefix, offset_maps_prefix, parse_offset_map_key
from formats.control.lease import SKEW
from formats.control.offset_map_copy import map_copies
from formats.control.packed import observed_at
from formats.control.watermarks import decode_watermarks
from formats.errors import MalformedEvent, MalformedKey, SegmentNotFound
from infra.archive.control_objects import read_object
from infra.archive.generations import is_generation
from infra.contracts.storage import ObjectInfo, ObjectStore
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

WATERMARKS, HEARTBEAT = "watermarks", "heartbeat"  # their folders; a heartbeat observes nothing
BATCH = 1000  # objects of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinnedKind:
    """Generations of one kind of control object, or copies."""

    stored: int
    superseded: int  # of these, what goes
    superseded_bytes: int


@dataclass(frozen=True, slots=True)
class _Generation:
    info: ObjectInfo
    at: datetime  # when it was stored; of a copy, when it was observed


@dataclass(frozen=True, slots=True)
class _Span:
    """Generations of which a rule keeps the last."""

    generations: Sequence[_Generation]
    following: datetime | None  # when the one after them was stored; None: there is none, so the last stays


@dataclass(frozen=True, slots=True)
class GenerationThinner:
    """One thread. Each call lists every generation and copy, and keeps at most those of one map, or of one day, in
    memory. Of watermarks it reads those that share a span with others. Raises StoreUnavailable."""

    objects: ObjectStore
    prefix: str
    region: str
    stop: Stop

    def plan(self, now: datetime, horizon: datetime | None) -> Mapping[str, ThinnedKind]:
        """By kind, those with any generation. `now`: by the store's clock."""
        found = {}
        for kind, decided in self._kinds(now, horizon):
            stored = superseded = size_bytes = 0
            for info, is_gone in decided:
                stored += 1
                superseded += is_gone
                size_bytes += info.size_bytes if is_gone else 0
            if stored:
                found[kind] = ThinnedKind(stored=stored, superseded=superseded, superseded_bytes=size_bytes)
        return found

    def remove(self, now: datetime, horizon: datetime | None) -> Mapping[str, int]:
        """How many were removed of each kind. Ends early, between two requests, when `stop` is set."""
        removed: dict[str, int] = {}
        for kind, decided in self._kinds(now, horizon):
            gone = (info.key for info, is_gone in decided if is_gone)
            while keys := list(islice(gone, BATCH)):
                if self.stop.is_set():
                    return removed
                with durable(Step.THIN_GENERATIONS):
                    self.objects.delete_many(keys)
                removed[kind] = removed.get(kind, 0) + len(keys)
            if kind in removed:
                extra = {log_fields.REGION: self.region, log_fields.OPERATION: kind, log_fields.COUNT: removed[kind]}
                log.info("generations_thinned", extra=extra)
        return removed

    def _kinds(
        self, now: datetime, horizon: datetime | None
    ) -> Iterator[tuple[str, Iterator[tuple[ObjectInfo, bool]]]]:
        """Of each kind the objects in order of their keys, and whether each goes."""
        for kind, rule in RULES.items():
            yield kind, self._decided(kind, rule, now, horizon)
        yield OFFSET_MAPS, self._copies()

    def _copies(self) -> Iterator[tuple[ObjectInfo, bool]]:
        """Copies of offset maps; foreign keys are left out."""
        listed = self.objects.list(offset_maps_prefix(self.prefix, self.region))
        for folder, infos in groupby(listed, key=lambda info: info.key.rpartition("/")[0]):
            named = {info.key[len(folder) + 1 :]: info for info in infos}
            try:
                parse_offset_map_key(self.prefix, self.region, f"{folder}/")
            except MalformedKey:
                continue
            gone = frozenset(map_copies(named).superseded)
            yield from ((info, name in gone) for name, info in named.items())

    def _decided(
        self, kind: str, rule: KeepRule, now: datetime, horizon: datetime | None
    ) -> Iterator[tuple[ObjectInfo, bool]]:
        """Each generation, span by span, and whether it goes; foreign keys are left out."""
        prefix = generations_prefix(self.prefix, self.region, kind)
        listed = (info for info in self.objects.list(prefix) if is_generation(info.key[len(prefix) :]))
        spans = _spans((_Generation(info, info.modified_at) for info in listed), rule, now)
        for span in spans if kind == HEARTBEAT else self._true_spans(spans, rule, now):
            best = self._most_settled(span.generations) if kind == WATERMARKS and len(span.generations) > 1 else None
            for index, one in enumerate(span.generations):
                is_last = index == len(span.generations) - 1
                after = span.following if is_last else span.generations[index + 1].at
                if after is None:
                    yield one.info, False  # the newest
                elif (not is_last and index != best) or is_expired(one.at, after, rule, now, None):
                    yield one.info, True
                else:
                    is_older = is_expired(one.at, after, rule, now, horizon)
                    yield one.info, is_older and self._is_copy(one.info) is False

    def _true_spans(self, spans: Iterable[_Span], rule: KeepRule, now: datetime) -> Iterator[_Span]:
        """By when they were observed where they are copies, else by when they were stored."""
        for span in spans:
            is_copy = False if len(span.generations) == 1 else self._are_copies(span.generations)
            if is_copy is False:
                yield span
                continue
            observed = [(one, self._observed_at(one.info)) for one in span.generations] if is_copy else []
            readable = (_Generation(one.info, at) for one, at in observed if at is not None)
            for part in _spans(readable, rule, now):
                yield part if part.following is not None else _Span(part.generations, span.following)
            read = {one.info.key for one, at in observed if at is not None}
            yield from (_Span([one], None) for one in span.generations if one.info.key not in read)  # these stay

    def _are_copies(self, generations: Sequence[_Generation]) -> bool | None:
        """By the first that can be read. None: none can."""
        answers = (self._is_copy(one.info) for one in generations)
        return next((answer for answer in answers if answer is not None), None)

    def _is_copy(self, info: ObjectInfo) -> bool | None:
        """None: it cannot be read."""
        at = self._observed_at(info)
        return None if at is None else info.modified_at - at > SKEW

    def _observed_at(self, info: ObjectInfo) -> datetime | None:
        """None of what cannot be read: damaged, of a newer program, or removed since it was listed."""
        try:
            return observed_at(read_object(self.objects, info.key))
        except (SegmentNotFound, MalformedEvent):
            return None

    def _most_settled(self, generations: Sequence[_Generation]) -> int | None:
        """The last one first: where all its partitions are settled, no other is read."""
        counts = [0] * len(generations)
        for index in range(len(generations) - 1, -1, -1):
            counts[index], is_whole = self._settled(generations[index].info.key)
            if is_whole:
                break
        return most_settled(counts)

    def _settled(self, key: str) -> tuple[int, bool]:
        """How many partitions are settled there, and whether all are. None of what cannot be read."""
        try:
            topics = decode_watermarks(read_object(self.objects, key)).topics.values()
        except (SegmentNotFound, MalformedEvent):
            return 0, False
        count = sum(len(topic.settled) for topic in topics)
        return count, 0 < count == sum(topic.partitions for topic in topics)


def _spans(generations: Iterable[_Generation], rule: KeepRule, now: datetime) -> Iterator[_Span]:
    span: list[_Generation] = []
    for one in generations:
        if span and not shares_span(span[-1].at, one.at, rule, now):
            yield _Span(span, one.at)
            span = []
        span.append(one)
    if span:
        yield _Span(span, None)
