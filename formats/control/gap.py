"""Offsets that will never be in the archive, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec
from formats.segment import OffsetRange, SourcePartition

RETENTION = "retention of the archive"
"""Why a gap was recorded whose offsets were archived, and then removed because nobody wants them any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGap:
    """Offsets that no segment will ever cover, and why."""

    source: SourcePartition
    offsets: OffsetRange
    reason: str
    low: int  # the partition's watermarks when it was found; by retention, of what was stored
    high: int
    recorded_at: datetime  # UTC
    is_accepted: bool = False  # by an operator, who knows that these records are nowhere, or not to be archived

    @property
    def is_loss(self) -> bool:
        """Whether it needs attention: not what retention removed on purpose, nor what an operator accepted."""
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
