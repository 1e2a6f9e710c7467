"""Segments that are not what their keys and footers say, set aside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A stored object that compaction leaves alone. Another object at the same key is another matter."""

    stored_at: datetime  # UTC, of that object, by the store's clock
    reason: str
    found_at: datetime  # UTC


def encode_quarantined(found: Quarantined) -> bytes:
    return dump(
        {
            "found_at": found.found_at.isoformat(),
            "reason": found.reason,
            "stored_at": found.stored_at.isoformat(),
            "v": VERSION,
        }
    )


def decode_quarantined(data: bytes) -> Quarantined:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = load(data)
        return Quarantined(
            stored_at=datetime.fromisoformat(d["stored_at"]),
            reason=str(d["reason"]),
            found_at=datetime.fromisoformat(d["found_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a quarantined segment: {data[:200]!r} ({error})") from error
