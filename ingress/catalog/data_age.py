"""How far back the archive of a topic goes, as long as its first copy is under way.

A broker deletes by the age of records, so this decides whether the source's retention would delete what was just
delivered. It is asked once for each topic: the keys of all its objects while they are few, else the first key of each
level of each partition; and the footer of each partition's first segment. Where a footer has no timestamp, or cannot be
read now, the time counts when the segment was stored: its records are as old as that at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from formats.errors import OF_ONE_OBJECT
from formats.incarnation import Incarnation
from formats.messages.ledger import OwnedTopic
from formats.segment import SegmentInfo, SourcePartition
from infra.archive.archive import Archive

ASK_AGAIN = timedelta(minutes=5)  # whether something is stored now
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class OldestRecords:
    """Use from one thread at a time. Raises StoreUnavailable."""

    archive: Archive
    _known: dict[tuple[str, str], datetime] = field(default_factory=dict)  # by name and topic id
    _ask_at: dict[tuple[str, str], datetime] = field(default_factory=dict)  # of those that nothing is stored of

    def oldest(self, owned: OwnedTopic, sources: Sequence[tuple[str, Incarnation]], now: datetime) -> datetime | None:
        """When the oldest stored record was written, by its own timestamp. `sources`: region and incarnation of each.
        None when nothing is stored. Remembered until `forget`."""
        key = (owned.name, owned.topic_id)
        if key in self._known or now < self._ask_at.get(key, now):
            return self._known.get(key)
        if found := list(self._firsts(sources)):
            self._known[key] = min(self._written(info) for info in found)
        else:
            self._ask_at[key] = now + ASK_AGAIN
        return self._known.get(key)

    def forget(self, owned: OwnedTopic) -> None:
        """Once its first copy is through, when the ledger has it."""
        for known in (self._known, self._ask_at):
            known.pop((owned.name, owned.topic_id), None)

    def _firsts(self, sources: Sequence[tuple[str, Incarnation]]) -> Iterator[SegmentInfo]:
        """The first segment of each partition that has any."""
        segments = self.archive.segments
        for region, incarnation in sources:
            if (few := segments.few(region, incarnation.path)) is not None:
                yield from map(_first, few.values())
                continue
            for partition in segments.partitions(region, incarnation.path):
                source = SourcePartition.of(region, incarnation, partition)
                if firsts := list(segments.firsts(source)):
                    yield _first(firsts)

    def _written(self, info: SegmentInfo) -> datetime:
        if info.is_frozen:
            return info.stored_at
        try:
            stamp = self.archive.footer(info.segment).min_timestamp_ms
        except OF_ONE_OBJECT:  # removed or damaged meanwhile: delivery says so
            return info.stored_at
        if stamp is None or stamp < 0:
            return info.stored_at
        try:
            return _EPOCH + timedelta(milliseconds=stamp)
        except OverflowError:
            return _LATEST


def _first(infos: Iterable[SegmentInfo]) -> SegmentInfo:
    """Of one partition."""
    return min(infos, key=lambda info: (info.segment.offsets.start, -info.segment.level))
