"""Forks of a source's log: the log lost archived records and assigns their offsets to other records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec
from formats.segment import OffsetRange, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFork:
    """The source's log lost archived records and assigns their offsets to other records. Causes: an unclean leader
    election, the loss of every replica's tail, a restored snapshot. `formats.forks` describes how archiving goes on."""

    source: SourcePartition
    next_offset: int  # everything below was archived
    leader_epoch: int | None  # of the last archived record below `next_offset`; None: found by comparing records
    end_offset: int | None  # both logs are equal below it; None: nothing is known to be equal
    found_at: datetime  # UTC
    evidence: str = ""  # for people

    def __post_init__(self) -> None:
        if self.next_offset < 1 or (self.end_offset is not None and not 0 <= self.end_offset < self.next_offset):
            raise ValueError(f"a fork at {self.end_offset} contests nothing below {self.next_offset}")

    @property
    def is_by_records(self) -> bool:
        """Whether the fork was found by comparing the log's records with archived ones, not reported by a broker."""
        return self.leader_epoch is None

    @property
    def contested(self) -> OffsetRange:
        """Offsets whose archived records differ, or may differ, from those in the current log."""
        return OffsetRange(0 if self.end_offset is None else self.end_offset, self.next_offset - 1)


_CODEC = Codec(LogFork, "a fork of {source}", outside=("source",), added=("evidence",))
encode_fork = _CODEC.encode


def decode_fork(source: SourcePartition, data: bytes) -> LogFork:
    """Raises MalformedEvent, also for a newer version."""
    return _CODEC.decode(data, source=source)
