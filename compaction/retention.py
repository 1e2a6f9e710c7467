"""Plans the expiry of one source partition. Pure: a listing, a rule and a time in; deletions out.

    what readers read    [──a──][──b──][──c──]   [──d──][──e──]
    by the rule           too old        cut ^    kept
    held                        ▔▔▔
    removed              [──a──]       [──c──]

1. One offset, the cut, decides: every segment that ends below it is removed, no other is. So the newest offsets stay,
   as one contiguous range, and overlapping segments go or stay with the offsets that they hold.
2. Two limits may move the cut up: age, to the first offset of any segment that is young enough to stay; and bytes, to
   the oldest of the newest segments that fit together. Neither moves it above the newest `keep_segments`.
3. Segments that overlap held offsets stay, wherever the cut is; older segments that are not held go. The resulting hole
   is intended.
4. A quarantined segment cannot be restored from: it does not count as kept, and it is never deleted. Where one holds
   removed offsets that no other segment does, they are a gap, which a good object at its key fills.

The age is that of the stored object, by the store's clock. Record timestamps are whatever producers set, and reading
each footer would cost one request per segment; a listing reports when an object was stored, which is never before its
records existed. A merged segment is younger than its inputs: its records are kept longer, not shorter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from compaction.retention_settings import RetentionRule
from formats.control.lease import SKEW
from formats.control.quarantine import REMEDY
from formats.coverage import Extent, SegmentSlice, from_first, joined, uncovered
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.settings.units import format_age, format_duration, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    info: SegmentInfo
    reason: str

    @property
    def segment(self) -> Segment:
        return self.info.segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What is removed from one partition, and what stays."""

    deletions: tuple[Deletion, ...]  # oldest offsets first, never empty
    remaining: Extent  # what readers find afterwards, so without quarantined segments
    newest: Segment  # that stays and that readers use
    before: OffsetRange  # from the first to the last offset stored

    @property
    def source(self) -> SourcePartition:
        return self.newest.source

    @property
    def segments(self) -> list[Segment]:
        return [one.segment for one in self.deletions]

    @property
    def size_bytes(self) -> int:
        return sum(one.info.size_bytes for one in self.deletions)

    def without(self, kept: Iterable[Segment]) -> Expiry | None:
        """The plan with the cut below all of `kept`: a segment that cannot be removed keeps everything after it."""
        cut = min((s.offsets.start for s in kept), default=self.before.next_offset)
        expired = tuple(one for one in self.deletions if one.segment.offsets.end < cut)
        if not expired:
            return None
        stay = [one.segment.offsets for one in self.deletions if one.segment.offsets.end >= cut]
        return replace(self, deletions=expired, remaining=joined([*self.remaining.runs, *stay]))

    def unexplained(self, recorded: Collection[OffsetRange]) -> list[OffsetRange]:
        """Offsets that no segment will cover after the removal, and that no recorded gap explains yet."""
        removed = joined(segment.offsets for segment in self.segments)
        explained = [*self.remaining.runs, *recorded]
        return [left for run in removed.runs for left in uncovered(explained, run)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryRefused:
    """A partition from which nothing is removed, because something about it is uncertain."""

    source: SourcePartition
    reason: str


def plan_expiry(
    stored: Collection[SegmentInfo],
    rule: RetentionRule,
    now: datetime,
    quarantined: Collection[Segment] = (),
) -> Expiry | ExpiryRefused | None:
    """`stored` is the listing of one source partition, all levels; `now` is by the store's clock. None when nothing
    expires."""
    early = [info for info in stored if info.stored_at > now + SKEW]
    if early:
        return ExpiryRefused(source=early[0].segment.source, reason=_from_the_future(early[0], now))
    usable = [info for info in stored if info.segment not in quarantined]
    slices = [step for step in from_first(info.segment for info in usable) if isinstance(step, SegmentSlice)]
    if not slices:
        return None
    first = min(info.segment.offsets.start for info in stored)
    by_age, by_bytes = _age_cut(stored, rule, now), _bytes_cut(slices, usable, rule)
    keeps = slices[-rule.keep_segments :][0].offsets.start
    cut = min(max(by_age, by_bytes), keeps)
    held = rule.held_offsets(slices[0].segment.source.partition)
    expired = [i for i in stored if i.segment.offsets.end < cut and not any(map(i.segment.offsets.overlaps, held))]
    if not expired:
        return None
    if bad := [info.segment for info in expired if info.segment in quarantined]:
        return ExpiryRefused(source=bad[0].source, reason=_quarantined(bad))
    expired.sort(key=lambda info: (info.segment.offsets, info.segment.level))
    expired_segments = {info.segment for info in expired}
    return Expiry(
        deletions=tuple(Deletion(info=info, reason=_reason(info, rule, by_age, now)) for info in expired),
        remaining=joined(info.segment.offsets for info in usable if info.segment not in expired_segments),
        newest=slices[-1].segment,
        before=OffsetRange(first, max(info.segment.offsets.end for info in stored)),
    )


def _age_cut(stored: Collection[SegmentInfo], rule: RetentionRule, now: datetime) -> int:
    """Uses all stored segments, not only those that readers use: a young copy of old offsets keeps them, too."""
    if rule.max_age is None:
        return 0
    young = [info.segment.offsets.start for info in stored if info.stored_at > now - rule.max_age]
    return min(young, default=max(info.segment.offsets.next_offset for info in stored))


def _bytes_cut(slices: Sequence[SegmentSlice], stored: Collection[SegmentInfo], rule: RetentionRule) -> int:
    if rule.max_bytes is None:
        return 0
    sizes = {info.segment: info.size_bytes for info in stored}
    left = rule.max_bytes
    for segment_slice in reversed(slices):
        left -= sizes[segment_slice.segment]
        if left < 0:
            return segment_slice.offsets.next_offset
    return 0


def _reason(info: SegmentInfo, rule: RetentionRule, by_age: int, now: datetime) -> str:
    if rule.max_age is not None and info.segment.offsets.end < by_age:
        stored_at = info.stored_at.isoformat(timespec="seconds")
        return f"stored {stored_at}, {format_age(now - info.stored_at)} ago; max_age is {format_duration(rule.max_age)}"
    return f"newer segments fill max_bytes, {format_size(rule.max_bytes or 0)}, without it"


def _from_the_future(info: SegmentInfo, now: datetime) -> str:
    return (
        f"{info.segment} was stored {info.stored_at.isoformat(timespec='seconds')}, and now it is "
        f"{now.isoformat(timespec='seconds')}: ages cannot be computed; set this machine's clock, or the store's"
    )


def _quarantined(segments: Sequence[Segment]) -> str:
    return (
        f"{segments[0]} is quarantined{f', and {len(segments) - 1} more' if len(segments) > 1 else ''}: what it holds "
        f"is unknown; {REMEDY}"
    )
