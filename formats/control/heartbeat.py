"""The heartbeat of a region: the process that writes its control objects is alive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.codec import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterHeartbeat:
    writer: str  # the process
    written_at: datetime  # UTC, by its own clock: for people and for lag, never to decide who may write
    interval_ms: int  # until the next one
    is_last: bool = False  # the writer ends: another may take over at once
    catalog: int = 0  # newest generation of the catalogue; 0: none yet
    watermarks: int = 0  # the same of the watermarks
    watermarks_at: datetime | None = None  # UTC; when an observation last agreed with that generation
    groups: int = 0  # newest generation of the consumer groups; 0: none, or of an earlier program
    groups_at: datetime | None = None  # UTC; when an observation last agreed with that generation

    def __post_init__(self) -> None:
        if self.interval_ms < 1:
            raise ValueError(f"interval of {self.interval_ms} ms")

    @property
    def interval(self) -> timedelta:
        return timedelta(milliseconds=self.interval_ms)


_CODEC = Codec(WriterHeartbeat, "a heartbeat", omitted=("watermarks_at", "groups", "groups_at"))
encode_heartbeat, decode_heartbeat = _CODEC.encode, _CODEC.decode
