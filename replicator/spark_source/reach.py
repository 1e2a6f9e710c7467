"""How far the archive reaches from a position on: lists page by page, and proves that what is missing is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.control.gap import RETENTION
from formats.coverage import SegmentSlice, explained_until
from formats.errors import DataError
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.forward_listing import ahead, all_ahead
from replicator.spark_source.missing import MissingSegments
from replicator.spark_source.positions import Advance, advance, size_of


class ArchivedDataLost(DataError):
    """Offsets that a streaming query has not read are not in the archive any more, or never came."""

    def __init__(self, source: SourcePartition, missing: OffsetRange) -> None:
        super().__init__(
            f"{source}: offsets {missing} are not in the archive: retention (gc) deleted them, or a segment "
            "was lost (`replicator gaps`). The query has not read them. With option failOnDataLoss=false it "
            "leaves them out; a new checkpoint starts where its options say"
        )


@dataclass(frozen=True, slots=True)
class ArchiveReach:
    advance: Advance
    sizes: Mapping[Segment, int]  # bytes, of the segments of its slices
    lost: Sequence[OffsetRange] = ()  # passed although nothing explains them


@dataclass(frozen=True, slots=True)
class _Listed:
    """From an offset on that a page of the listing does not have."""

    advance: Advance
    infos: Sequence[SegmentInfo]
    is_cut: bool
    expired_until: int  # what retention deleted reaches from that offset up to before this one


@dataclass(frozen=True, slots=True)
class ReachFinder:
    """A trigger lists from the position on: a page of each level, and more only as far as `max_bytes` asks for."""

    archive: Archive
    fail_on_data_loss: bool
    missing: MissingSegments

    def reach(
        self, source: SourcePartition, start: int, *, until: int, now: datetime | None, max_bytes: int | None = None
    ) -> ArchiveReach:
        """From `start` up to before `until`. What is missing counts as lost when `self.missing` says so; at once where
        retention deleted it, or if `now` is None. Raises ArchivedDataLost, StoreUnavailable."""
        slices: list[SegmentSlice] = []
        recorded: list[OffsetRange] = []
        lost: list[OffsetRange] = []
        sizes: dict[Segment, int] = {}
        at, gathered_bytes, missing = start, 0, None
        while at < until and (max_bytes is None or gathered_bytes < max_bytes):
            listing = ahead(self.archive.segments, source, at)
            infos, is_cut = listing.infos, listing.is_cut
            found = advance([info.segment for info in infos], (), at, until)
            if found.next_offset == at and found.missing is not None:
                listed = self._past_recorded(source, at, until)
                found, infos, is_cut = listed.advance, listed.infos, listed.is_cut
                if found.next_offset == at and found.missing is not None:
                    missing = found.missing
                    if listed.expired_until > at:
                        missing = OffsetRange(at, min(missing.end, listed.expired_until - 1))
                    elif now is not None and not self.missing.is_lost(source, at, infos, now):
                        break
                    if self.fail_on_data_loss:
                        raise ArchivedDataLost(source, missing)
                    lost.append(missing)
                    found, missing = Advance((), missing.next_offset), None
            known = {info.segment: info.size_bytes for info in infos}
            for part in found.slices:
                sizes[part.segment] = known[part.segment]
                gathered_bytes += size_of(part, sizes)
            slices += found.slices
            recorded += found.recorded
            is_last = found.next_offset == at or (found.missing is None and not is_cut and bool(found.slices))
            at = found.next_offset
            if is_last:
                break
        if now is None and at < until:  # it was there when the batch was planned first
            if self.fail_on_data_loss:
                raise ArchivedDataLost(source, OffsetRange(at, until - 1))
            lost.append(OffsetRange(at, until - 1))
        return ArchiveReach(Advance(slices, at, recorded, missing), sizes, lost)

    def _past_recorded(self, source: SourcePartition, at: int, until: int) -> _Listed:
        """Recorded gaps first: then each segment that was stored before a gap was recorded is listed. Only a complete
        listing proves that nothing covers an offset. What the source had lost is passed, what retention deleted here is
        not: there were records, and the query has not read them."""
        recorded, expired = self.archive.control.gaps.ranges(source), list[OffsetRange]()
        if explained_until(recorded, at) > at:  # else their reasons do not matter yet
            gaps = self.archive.control.gaps.of(source)
            recorded = [gap.offsets for gap in gaps if gap.reason != RETENTION]
            expired = [gap.offsets for gap in gaps if gap.reason == RETENTION]
        listing = all_ahead(self.archive.segments, source, at)
        found = advance([info.segment for info in listing.infos], recorded, at, until)
        return _Listed(found, listing.infos, listing.is_cut, explained_until(expired, at))
