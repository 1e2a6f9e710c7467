"""Storing one finished segment, and what it means when its key is taken already.

A final key is never overwritten. Taken by an earlier attempt with the same records: stored. Taken by a copy that
differs only in records that the log may have dropped meanwhile (a compacted or trimmed topic): the stored one stands.
Any other difference means that two logs were filed under one name: that partition stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from formats.compare import compare
from replicator import logkeys
from replicator.durable import Step, durable
from replicator.errors import SegmentExists, SegmentNotFound, SegmentsDiffer
from replicator.footer import SegmentFooter
from replicator.protocols import SegmentFormat
from replicator.segment import Segment
from replicator.store import SegmentStore

log = logging.getLogger(__name__)


class Encoded(Protocol):
    """A finished segment that waits to be stored."""

    @property
    def size_bytes(self) -> int: ...

    def reader(self) -> BinaryIO:
        """From its start, seekable; the caller closes it. May be called again."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Safe to call from several threads."""

    store: SegmentStore
    format: SegmentFormat
    may_thin: Callable[[Segment], bool]  # compacted, or trimmed since: records may be missing in one copy

    def upload(self, segment: Segment, file: Encoded, footer: SegmentFooter) -> bool:
        """True: stored by this call. False: an equal, or at least not contradicting, segment stood there already.

        Raises SegmentsDiffer or CorruptSegment (the stored object is in the way), and what the store raises.
        """
        while True:
            body = file.reader()
            try:
                with durable(Step.PUT_SEGMENT):
                    self.store.store(segment, body, file.size_bytes)
                return True
            except SegmentExists:
                pass
            finally:
                body.close()
            try:
                self._agree(segment, file, footer)
                return False
            except SegmentNotFound:
                continue  # removed between the two calls: the key is free again

    def _agree(self, segment: Segment, file: Encoded, footer: SegmentFooter) -> None:
        with closing(self.format.open(self.store.open(segment), segment)) as there:
            other = there.footer
            if other.origin.topic_id and footer.origin.topic_id and other.origin.topic_id != footer.origin.topic_id:
                raise SegmentsDiffer(
                    f"stored {segment}",
                    "the new one",
                    offset=segment.offsets.start,
                    detail=f"topic ids {other.origin.topic_id} and {footer.origin.topic_id}: the topic was created "
                    "again. Archive the new one under another prefix, or move the old segments away",
                )
            if other.digest is not None and other.digest == footer.digest:
                log.info("segment_already_stored", extra={logkeys.SEGMENT: str(segment)})
                return
            with closing(self.format.open(file.reader(), segment)) as ours:
                result = compare(there.batches(), ours.batches())
        if result.equal or (result.thinned and self.may_thin(segment)):
            log.warning(
                "segment_stands", extra={logkeys.SEGMENT: str(segment), logkeys.REASON: "same offsets, thinner log"}
            )
            return
        raise SegmentsDiffer(
            f"stored {segment}",
            "the new one",
            offset=segment.offsets.start if result.offset is None else result.offset,
            detail=f"{result.detail}. Find out which log is right (was the topic created again, or the offset set "
            "back by hand?) before anything is removed",
        )
