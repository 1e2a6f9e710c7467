"""Quarantined segments: stored objects that do not match their keys or footers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec

REMEDY = "take it from a copy with `replicator repair-segment`, or delete it there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A stored object that compaction does not touch. The record does not apply to another object at the same key."""

    stored_at: datetime  # UTC, by the store's clock; identifies the object
    reason: str
    found_at: datetime  # UTC

    def is_of(self, stored_at: datetime) -> bool:
        """Whether an object that was stored then is the one. To the second: a listing may have a finer time than a
        request for the object."""
        return self.stored_at.replace(microsecond=0) == stored_at.replace(microsecond=0)


_CODEC = Codec(Quarantined, "a quarantined segment")
encode_quarantined, decode_quarantined = _CODEC.encode, _CODEC.decode
