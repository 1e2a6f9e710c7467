"""The first offset that the archive of a partition was meant to hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBegin:
    """Where the archive of one partition begins: no segment was ever meant to hold an offset below `offset`. The egress
    writes it before it stores or commits anything of the partition. It never changes; a backfill records an earlier one
    beside it, after everything between the two is stored."""

    offset: int
    reason: str
    recorded_at: datetime  # UTC


_CODEC = Codec(ArchiveBegin, "the begin of an archive")
encode_begin, decode_begin = _CODEC.encode, _CODEC.decode
