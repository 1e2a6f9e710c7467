"""Segments that are not what their keys and footers say, set aside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A stored object that compaction leaves alone. Another object at the same key is another matter."""

    stored_at: datetime  # UTC, of that object, by the store's clock
    reason: str
    found_at: datetime  # UTC


_CODEC = Codec(Quarantined, "a quarantined segment")
encode_quarantined, decode_quarantined = _CODEC.encode, _CODEC.decode
