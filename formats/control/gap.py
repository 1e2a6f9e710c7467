"""Offsets that will never be in the archive, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent
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


def encode_gap(gap: RecordedGap) -> bytes:
    said: dict[str, object] = {
        "high": gap.high,
        "low": gap.low,
        "reason": gap.reason,
        "recorded_at": gap.recorded_at.isoformat(),
        "v": VERSION,
    }
    return dump(said | {"is_accepted": True} if gap.is_accepted else said)


def decode_gap(source: SourcePartition, offsets: OffsetRange, data: bytes) -> RecordedGap:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = load(data)
        return RecordedGap(
            source=source,
            offsets=offsets,
            reason=str(d["reason"]),
            low=int(d["low"]),
            high=int(d["high"]),
            recorded_at=datetime.fromisoformat(d["recorded_at"]),
            is_accepted=bool(d.get("is_accepted", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a recorded gap of {source} at {offsets}: {data[:200]!r} ({error})") from error
