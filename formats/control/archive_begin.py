"""The first offset that the archive of a partition was meant to hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBegin:
    """Where the archive of one partition begins: no segment was ever meant to hold an offset below `offset`. Written by
    the egress before it stores or commits anything of the partition, and never changed."""

    offset: int
    reason: str
    recorded_at: datetime  # UTC


def encode_begin(begin: ArchiveBegin) -> bytes:
    return dump(
        {
            "offset": begin.offset,
            "reason": begin.reason,
            "recorded_at": begin.recorded_at.isoformat(),
            "v": VERSION,
        }
    )


def decode_begin(data: bytes) -> ArchiveBegin:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = load(data)
        return ArchiveBegin(
            offset=int(d["offset"]),
            reason=str(d["reason"]),
            recorded_at=datetime.fromisoformat(d["recorded_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not the begin of an archive: {data[:200]!r} ({error})") from error
