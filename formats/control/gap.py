"""Offsets that will never be in the archive, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec
from formats.segment import OffsetRange, SourcePartition

RETENTION = "retention of the archive"
"""Reason of a gap whose offsets were archived and then removed by the archive's retention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGap:
    """Offsets that no segment will ever cover, and why."""

    source: SourcePartition
    offsets: OffsetRange
    reason: str
    low: int  # the partition's watermarks when the gap was found; for retention, those of the stored segments
    high: int
    recorded_at: datetime  # UTC
    is_accepted: bool = False  # by an operator: the records exist nowhere, or are not to be archived

    @property
    def is_loss(self) -> bool:
        """Whether the gap needs attention: retention did not remove the offsets, and no operator accepted them."""
        return self.reason != RETENTION and not self.is_accepted


_CODEC = Codec(
    RecordedGap,
    "a recorded gap of {source} at {offsets}",
    outside=("source", "offsets"),
    omitted=("is_accepted",),
)
encode_gap = _CODEC.encode


def decode_gap(source: SourcePartition, offsets: OffsetRange, data: bytes) -> RecordedGap:
    """Raises MalformedEvent, also for a newer version."""
    return _CODEC.decode(data, source=source, offsets=offsets)
