"""Decides whether the log that is read is the one that was archived, and which offsets a fork contests. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from formats.control.fork import LogFork
from formats.coverage import end_of, uncovered
from formats.errors import SegmentsDiffer
from formats.log_point import LogPoint
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import LogTruncated


@dataclass(slots=True)
class LogPoints:
    """Points of one partition's log, in order: one before each segment that is not committed yet, and the last."""

    _points: list[LogPoint] = field(default_factory=list)

    def before(self, next_offset: int) -> LogPoint | None:
        """The last known point at or before `next_offset`."""
        return next((p for p in reversed(self._points) if p.next_offset <= next_offset), None)

    def read(self, point: LogPoint | None, start: int) -> None:
        """The log has reached `point` in the open segment, which begins at `start`."""
        if point is not None:
            # also replaces a point at the same offset: an idle partition reaches its end again and again
            if self._points and self._points[-1].next_offset > min(start, point.next_offset - 1):
                self._points.pop()
            self._points.append(point)

    def drop_after(self, from_offset: int) -> None:
        """Drop the points after `from_offset`: everything from there on is read again."""
        self._points = [p for p in self._points if p.next_offset <= from_offset]

    def committed(self, next_offset: int) -> int | None:
        """The leader epoch in which the log reached `next_offset`, if it is known for certain. Drops the points before
        it, and keeps the point itself: a commit may be repeated."""
        point = self.before(next_offset)
        if point is None:
            return None
        self._points = [p for p in self._points if p.next_offset >= point.next_offset]
        return point.leader_epoch if point.next_offset == next_offset else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkEvidence:
    """The log is not the one that is archived: the two agree only below `agreed`."""

    committed: int  # everything below is archived
    agreed: int | None  # None: they are not known to agree anywhere
    leader_epoch: int | None  # of the last record below `committed`, when known
    text: str

    def fork(self, source: SourcePartition, archived: Iterable[OffsetRange], found_at: datetime) -> LogFork | None:
        """None when the archive holds nothing that the log does not. Contests also everything after the first offset
        that the archive lacks although it has later ones: continuing after those would skip it."""
        covered = list(archived)
        end = max(end_of(covered), self.committed)
        missing = uncovered(covered, OffsetRange(self.committed, end - 1)) if self.committed < end else []
        agreed = None if self.agreed is None else min(self.agreed, *(o.start for o in missing[:1]), end)
        if end <= (agreed or 0):
            return None
        return LogFork(
            source=source,
            next_offset=end,
            leader_epoch=self.leader_epoch,
            end_offset=agreed,
            found_at=found_at,
            evidence=self.text,
        )


def from_truncation(truncated: LogTruncated, committed: int) -> ForkEvidence:
    """The broker rejected the point of the log that the commit or the archive knows."""
    point, end = truncated.point, truncated.end_offset
    now = "and no such epoch is in it now" if end is None else f"which ends at {end} now"
    return ForkEvidence(
        committed=committed,
        agreed=end,
        leader_epoch=point.leader_epoch,
        text=f"it reached offset {point.next_offset} in leader epoch {point.leader_epoch}, {now}",
    )


def from_contradiction(error: SegmentsDiffer, committed: int) -> ForkEvidence:
    """Records that were read differ from those stored after the commit."""
    return ForkEvidence(committed=committed, agreed=error.offset, leader_epoch=None, text=str(error))


def from_lost_end(end: int, high: int, committed: int) -> ForkEvidence:
    """The archive, as listed before the source was asked, reaches beyond the log's end: those records were in the log,
    and their offsets will be given to others. Whether the records between the commit and the log's end are still the
    same is unknown."""
    return ForkEvidence(
        committed=committed,
        agreed=committed,
        leader_epoch=None,
        text=f"the archive ends before {end}, and the log at {high}, where it was longer",
    )
