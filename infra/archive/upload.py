"""Store one finished segment, and compare it with segments that already cover its offsets.

A segment's key is never overwritten. When the key is taken by an earlier attempt with the same records, the segment is
stored. When the stored segment differs only in records that the log may have dropped meanwhile (a compacted or
truncated topic), the stored one stays. Any other difference means that two logs were archived under one name: that
partition stops.

The same holds for segments with other keys that cover some of its offsets, where the caller knows of any: they are
compared before the put, and no segment is stored next to one that contradicts it. Leader epochs are compared first:
they never decrease in a log, and a record has one epoch. Then digests, if the offsets are equal; else records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from formats.errors import SegmentExists, SegmentNotFound, SegmentsDiffer
from formats.footer import SegmentFooter
from formats.records.compare import compare
from formats.records.statistics import records_within
from formats.segment import OffsetRange, Segment
from infra.archive.archive import Archive
from infra.archive.forward_listing import all_ahead
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable

log = logging.getLogger(__name__)


class Encoded(Protocol):
    """A finished segment that waits to be stored."""

    @property
    def size_bytes(self) -> int: ...

    def reader(self) -> BinaryIO:
        """The segment's bytes from the start, seekable; the caller closes it. May be called again."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Safe to call from several threads."""

    archive: Archive
    source_compacted: Callable[[Segment], bool]  # compacted, or truncated since: records may be missing in one copy
    put: Callable[[Segment], None] | None = None  # stores the segment in place of the file's content

    def upload(
        self, segment: Segment, file: Encoded, footer: SegmentFooter, overlapping: Collection[Segment] = ()
    ) -> bool:
        """True: stored by this call. False: an equal, or at least not contradicting, segment was already stored.
        `overlapping`: stored segments that cover some of its offsets.

        Raises SegmentsDiffer, CorruptSegment (of the stored object), and the store's errors.
        """
        checked: set[Segment] = {segment}
        while True:
            try:
                for other in overlapping:
                    if other not in checked:
                        self.check_agreement(other, segment, file, footer)
                        checked.add(other)
            except SegmentNotFound:  # merged, or removed, since it was listed
                infos = all_ahead(self.archive.segments, segment.source, segment.offsets.start, limit=None).infos
                listed = (info.segment for info in infos)
                overlapping = [other for other in listed if other.offsets.overlaps(segment.offsets)]
                continue
            try:
                with durable(Step.PUT_SEGMENT):
                    self._put(segment, file)
                return True
            except SegmentExists:
                pass
            try:
                self.check_agreement(segment, segment, file, footer)
                return False
            except SegmentNotFound:
                continue  # removed between the two calls: the key is free again

    def _put(self, segment: Segment, file: Encoded) -> None:
        if self.put is not None:
            self.put(segment)
            return
        with closing(file.reader()) as body:
            self.archive.segments.store(segment, body, file.size_bytes)

    def check_agreement(self, other: Segment, segment: Segment, file: Encoded, footer: SegmentFooter) -> None:
        """Raises SegmentsDiffer when the stored `other` and the new segment, which overlap, contradict each other;
        SegmentNotFound, and CorruptSegment, of `other`."""
        both = OffsetRange(max(other.offsets.start, segment.offsets.start), min(other.offsets.end, segment.offsets.end))
        with self.archive.open(other) as there:
            theirs = there.footer
            if theirs.origin.topic_id and footer.origin.topic_id and theirs.origin.topic_id != footer.origin.topic_id:
                raise SegmentsDiffer(
                    f"stored {other}",
                    f"new {segment}",
                    offset=both.start,
                    detail=f"topic ids {theirs.origin.topic_id} and {footer.origin.topic_id}: the topic was created "
                    "again. Archive the new one under another prefix, or move the old segments away",
                )
            epochs = _epochs_differ(theirs, footer)
            same_range = other.offsets == segment.offsets
            if not epochs and same_range and theirs.digest is not None and theirs.digest == footer.digest:
                log.info("segment_already_stored", extra={log_fields.SEGMENT: str(other)})
                return
            with closing(self.archive.format.open(file.reader(), segment)) as ours:
                result = compare(
                    records_within(there.batches(both.start), both), records_within(ours.batches(both.start), both)
                )
        if not epochs and (result.equal or (result.differs_in_presence_only and self.source_compacted(segment))):
            if not result.equal:
                log.warning(
                    "segment_stands",
                    extra={log_fields.SEGMENT: str(other), log_fields.REASON: "same offsets, thinner log"},
                )
            return
        first = [
            o for o in (result.offset, None if self.source_compacted(segment) else result.unmatched) if o is not None
        ]
        same_isolation = theirs.origin.isolation_level == footer.origin.isolation_level
        # in one log no record changes or appears, and none disappears unless it is compacted or truncated
        is_fork = bool(epochs) or result.offset is not None or same_isolation
        raise SegmentsDiffer(
            f"stored {other}",
            f"new {segment}",
            offset=min(first, default=both.start),
            detail=f"{epochs or result.detail}. Find out which log is right (was the topic created again, or the "
            "offset set back by hand?) before anything is removed",
            forked=other.offsets if is_fork else None,
        )


def _epochs_differ(stored: SegmentFooter, new: SegmentFooter) -> str:
    """Why their last records cannot be from one log; empty when they can, or when an epoch is unknown."""
    a, b = stored.origin.last_leader_epoch, new.origin.last_leader_epoch
    if a is None or b is None or stored.last_offset is None or new.last_offset is None:
        return ""
    decreases = (stored.last_offset - new.last_offset) * (a - b) < 0
    if not decreases and (stored.last_offset != new.last_offset or a == b):
        return ""
    return (
        f"the record at {stored.last_offset} is of leader epoch {a}, and the one at {new.last_offset} of {b}: they are "
        "not of one log"
    )
