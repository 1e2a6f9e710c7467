"""As of which moment a delivered copy is complete, by the watermarks that were stored over time.

    generations      7       12       13       20       numbers in the order of their observations; some are thinned
    end of t/0     100      250      300      400
    delivered                  260                       complete as of generation 12, and of no later one

A generation is written only when something changed. It held until its writer last observed the same, which the
heartbeats of that time say; these are kept for an hour. The search goes back from the newest generation in doubling
steps, and then by halves. Objects that cannot be read, and searches that would take too many requests, leave an earlier
moment: the answer is never too late.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from formats.control.heartbeat import WriterHeartbeat, decode_heartbeat
from formats.control.keys import heartbeat_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, decode_watermarks
from formats.errors import MalformedEvent, SegmentNotFound
from infra.archive.generations import Generations
from infra.archive.source_reports import SourceReport
from infra.contracts.storage import ObjectStore

T = TypeVar("T")
TRIED = 40  # generations that are read for all partitions of a region; and as many heartbeats
UNKNOWN = -1

Partition = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of one generation, the stable ends of the partitions in question, in their order."""

    number: int
    observed_at: datetime
    stable: array[int]

    def is_reached(self, index: int, next_offset: int) -> bool:
        return UNKNOWN != self.stable[index] <= next_offset


@dataclass(slots=True)
class WatermarkHistory:
    """Of one region. Use from one thread at a time."""

    objects: ObjectStore
    prefix: str
    region: str
    tried: int = TRIED

    def complete_as_of(self, report: SourceReport, delivered: Mapping[Partition, int]) -> Mapping[Partition, datetime]:
        """For each partition with its next offset: when its log was last observed to hold nothing at or after that
        offset. Left out: partitions of which no such observation is stored. `report`: the newest one. Raises
        StoreUnavailable."""
        if report.watermarks is None or report.as_of is None:
            return {}
        wanted = {
            partition: report.watermarks.topics[partition[0]].topic_id
            for partition in delivered
            if partition[0] in report.watermarks.topics
        }
        latest = _ends(report.generation, report.watermarks, wanted)
        earlier = _Search(
            Generations(self.objects, watermarks_prefix(self.prefix, self.region)),
            lambda number, data: _ends(number, decode_watermarks(data), wanted),
            self.tried,
        )
        until = _Until(
            _Search(
                Generations(self.objects, heartbeat_prefix(self.prefix, self.region)),
                lambda _, data: decode_heartbeat(data),
                self.tried,
            )
        )
        found: dict[Partition, datetime] = {}
        for index, partition in enumerate(wanted):
            next_offset = delivered[partition]
            if latest.is_reached(index, next_offset):
                found[partition] = report.as_of
                continue
            ends = earlier.latest(report.generation, _reached(index, next_offset))
            if ends is not None:
                found[partition] = until.held(ends)
        return found


def _ends(number: int, found: SourceWatermarks, wanted: Mapping[Partition, str]) -> _Ends:
    """`wanted`: the topic id of each; another one's ends are those of another log."""
    stable = array("q")
    for (topic, partition), topic_id in wanted.items():
        known = found.topics.get(topic)
        is_there = known is not None and known.topic_id == topic_id and partition < known.partitions
        end = known.stable[partition] if known is not None and is_there else None
        stable.append(UNKNOWN if end is None else end)
    return _Ends(number, found.observed_at, stable)


def _reached(index: int, next_offset: int) -> Callable[[_Ends], bool]:
    return lambda ends: ends.is_reached(index, next_offset)


@dataclass(slots=True)
class _Search(Generic[T]):
    """Finds the newest generation with a property that all earlier ones have, too."""

    generations: Generations
    decode: Callable[[int, bytes], T]
    left: int  # generations that may still be read
    _stored: dict[int, int | None] = field(default_factory=dict)
    _read: dict[int, T | None] = field(default_factory=dict)  # None: cannot be read

    def latest(self, before: int, accept: Callable[[T], bool]) -> T | None:
        """Of those with a lower number than `before`; None: none has the property, or too many would be read."""
        best: T | None = None
        low, high, step = 0, before, 1
        while high - low > 1:
            number = max(high - step, 1) if best is None else (low + high) // 2
            if not self.left and number not in self._stored:
                break
            stored = self._at_or_after(number)
            found = None if stored is None or stored >= high else self._content(stored)
            if stored is not None and found is not None and accept(found):
                low, best = stored, found
            else:  # nothing is stored from `number` on, up to the one that was read
                high, step = number, step * 2
        return best

    def _at_or_after(self, number: int) -> int | None:
        if number not in self._stored:
            self._stored[number] = self.generations.at_or_after(number)
        return self._stored[number]

    def _content(self, number: int) -> T | None:
        if number not in self._read:
            if not self.left:
                return None
            self.left -= 1
            try:
                self._read[number] = self.decode(number, self.generations.read(number))
            except (SegmentNotFound, MalformedEvent):
                self._read[number] = None
        return self._read[number]


@dataclass(slots=True)
class _Until:
    """When a generation was last confirmed by its writer."""

    beats: _Search[WriterHeartbeat]
    _newest: int | None = None
    _known: dict[int, datetime] = field(default_factory=dict)

    def held(self, ends: _Ends) -> datetime:
        if ends.number not in self._known:
            if self._newest is None:
                self._newest = self.beats.generations.newest()
            beat = self.beats.latest(self._newest + 1, lambda one: one.watermarks <= ends.number)
            confirmed = beat.watermarks_at if beat is not None and beat.watermarks == ends.number else None
            self._known[ends.number] = max(ends.observed_at, confirmed or ends.observed_at)
        return self._known[ends.number]
