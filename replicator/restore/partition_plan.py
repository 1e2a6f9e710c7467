"""What a restore would do with one source partition: values and pure rules over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.coverage import Extent, Gap, explained_until, joined, steps, uncovered
from formats.int_range import INT64_MAX, IntRange
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.contracts.cluster import TopicPartition

# The reasons of the offsets that a restore notes as passed over in its checkpoint topic.
GIVEN_UP = "accepted as missing by a restore"
EXPIRED = "removed by retention while it was restored"


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """Where a partition ended at the moment that is restored to."""

    end: int | None  # next offset; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`offsets`: the selected offsets between the first and the last stored one; None: none of them is stored."""

    source: SourcePartition
    target: TopicPartition
    offsets: OffsetRange | None
    infos: Sequence[SegmentInfo]  # the segments a reader chooses for these offsets, in order
    recorded: Sequence[OffsetRange]  # recorded gaps within these offsets
    missing: Sequence[OffsetRange]  # gaps within these offsets that are not recorded
    listed_at: datetime
    others: Sequence[SegmentInfo] = ()  # segments that also hold some of these offsets: alternatives to a damaged one
    newest: SegmentInfo | None = None  # of all stored segments
    begins: int | None = None  # the position if the selection lies beyond all that is stored; else None
    wanted_from: int = 0  # lower end of the selected offsets
    wanted_until: int = INT64_MAX  # and the last of them
    cut: PartitionCut | None = None  # None: not restored to a moment
    stored_until: int = 0  # next offset after all that is stored, or explained by recorded gaps
    archive_begin: int | None = None  # first selected offset of the archive; None: its start is not recorded
    checkpoint: Checkpoint | None = None  # of an earlier run of this restore
    given_up: Sequence[OffsetRange] = ()  # gaps that an earlier run of this restore passed over
    expired: Sequence[OffsetRange] = ()  # offsets that retention had removed before an earlier run read them
    gaps_before: Sequence[OffsetRange] | None = None  # of the driver's plan, on a worker that listed again

    @property
    def gaps(self) -> Sequence[OffsetRange]:
        """What was not stored when the restore was planned."""
        return [*self.recorded, *self.missing] if self.gaps_before is None else self.gaps_before

    @property
    def last_offset(self) -> int:
        """The last selected offset; −1 if there is none."""
        return -1 if self.offsets is None else self.offsets.end

    @property
    def came_back(self) -> Sequence[OffsetRange]:
        """Offsets that were passed over and have been stored since: the destination does not get them."""
        stored = [info.segment.offsets for info in self.infos]
        return [back for gap in (*self.given_up, *self.expired) for back in uncovered(uncovered(stored, gap), gap)]

    def expired_in(self, recorded: OffsetRange) -> Sequence[OffsetRange]:
        """What of a recorded gap was stored when the restore was planned, and selected."""
        planned = self.offsets
        if planned is None or not recorded.overlaps(planned):
            return ()
        return uncovered(self.gaps, OffsetRange(max(recorded.start, planned.start), min(recorded.end, planned.end)))

    @property
    def is_beyond_cut(self) -> bool:
        """Whether an earlier run of this restore delivered more than the cut."""
        position = 0 if self.checkpoint is None else self.checkpoint.next_offset
        return self.cut is not None and self.cut.end is not None and position > max(self.cut.end, self.wanted_from)

    @property
    def not_archived(self) -> int:
        """The most records before the cut that this bucket does not have. Offsets, so markers count, too, until a
        segment covers them. What egress committed at the source is no evidence: segments may be copied here late."""
        if self.cut is None or self.cut.end is None:
            return 0
        archived = max(self.stored_until, self.wanted_from)
        return max(min(self.cut.end, self.wanted_until + 1) - archived, 0)

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.source, self.target.topic)

    @property
    def next_offset(self) -> int | None:
        """The position of this restore, or where it begins."""
        if self.offsets is None:
            return self.begins
        return self.offsets.start if self.checkpoint is None else self.checkpoint.next_offset

    @property
    def is_done(self) -> bool:
        return self.offsets is None or (self.next_offset or 0) > self.offsets.end

    @property
    def offsets_left(self) -> int:
        """Upper bound of the number of records to deliver."""
        return 0 if self.offsets is None else max(self.offsets.end + 1 - (self.next_offset or 0), 0)

    @property
    def left(self) -> Sequence[SegmentInfo]:
        """Segments still to be read."""
        return [i for i in self.infos if i.segment.offsets.end >= (self.next_offset or 0)]

    @property
    def size_bytes(self) -> int:
        """Stored size of these segments. The part of the first segment before the position is included."""
        return sum(info.size_bytes for info in self.left)


def plan_partition(
    *,
    source: SourcePartition,
    target: TopicPartition,
    infos: Iterable[SegmentInfo],
    recorded: Iterable[OffsetRange],
    wanted: IntRange,
    listed_at: datetime,
    checkpoint: Checkpoint | None,
    begin: int | None = None,
    given_up: Sequence[OffsetRange] = (),
    expired: Sequence[OffsetRange] = (),
    cut: PartitionCut | None = None,
    planned: OffsetRange | None = None,
    gaps_before: Sequence[OffsetRange] | None = None,
) -> PartitionPlan:
    """Plan from a listing of the whole partition. `planned`, `gaps_before`: the offsets of an earlier plan and its
    gaps, whatever was stored or has expired since.

    `begin`: the recorded start of the archive; every offset missing from there on is a gap. If it is None, the archive
    starts with its first segment; a recorded gap before that segment is reported.
    """
    known, recorded = {info.segment: info for info in infos}, list(recorded)
    if cut is not None and cut.end is not None:
        wanted = wanted.intersection(IntRange(high=cut.end - 1))
    extent = joined(segment.offsets for segment in known)
    offsets = planned or _stored_and_wanted(_begun(extent, begin, recorded), wanted)
    chosen, missing = [], []
    if offsets is not None:
        for step in steps(known, offsets.start):
            if step.offsets.start > offsets.end:
                break
            if isinstance(step, Gap):
                within = OffsetRange(step.offsets.start, min(step.offsets.end, offsets.end))
                missing += uncovered(recorded, within)
            else:
                chosen.append(known[step.segment])
    ends = -1 if offsets is None else offsets.end
    is_behind = extent.next_offset is not None and wanted.low >= extent.next_offset
    return PartitionPlan(
        source=source,
        target=target,
        offsets=offsets,
        infos=chosen,
        recorded=[r for r in recorded if r.end >= wanted.low and r.start <= ends],
        missing=missing,
        listed_at=listed_at,
        others=_others(known.values(), chosen, offsets),
        newest=max(known.values(), key=lambda info: info.segment.offsets.end, default=None),
        begins=wanted.low if is_behind else None,
        wanted_from=wanted.low,
        wanted_until=wanted.high,
        cut=cut,
        stored_until=explained_until(recorded, extent.next_offset or begin or 0),
        archive_begin=max(begin, wanted.low) if begin is not None else None,
        checkpoint=checkpoint,
        given_up=given_up,
        expired=expired,
        gaps_before=gaps_before,
    )


def _begun(extent: Extent, begin: int | None, recorded: Iterable[OffsetRange]) -> Extent:
    """Extend `extent` by the offsets from `begin` to the first segment that no recorded gap explains."""
    if begin is None or extent.start is None:
        return extent
    start = explained_until(recorded, begin)
    return joined([OffsetRange(start, extent.start), *extent.runs]) if start < extent.start else extent


def _others(
    infos: Iterable[SegmentInfo], chosen: Sequence[SegmentInfo], offsets: OffsetRange | None
) -> Sequence[SegmentInfo]:
    if offsets is None:
        return ()
    known = {info.segment for info in chosen}
    return [i for i in infos if i.segment.offsets.overlaps(offsets) and i.segment not in known]


def _stored_and_wanted(extent: Extent, wanted: IntRange) -> OffsetRange | None:
    if extent.start is None or extent.next_offset is None:
        return None
    low, high = max(wanted.low, extent.start), min(wanted.high, extent.next_offset - 1)
    return OffsetRange(low, high) if low <= high else None
