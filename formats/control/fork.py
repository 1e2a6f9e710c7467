"""A log that lost records which had been archived, and gives their offsets to others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent
from formats.segment import OffsetRange, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFork:
    """The source's log lost records that had been archived, and gives their offsets to others: an unclean leader
    election, the loss of every replica's tail, a snapshot that was restored. `formats.forks` says how it goes on."""

    source: SourcePartition
    next_offset: int  # everything below was archived
    leader_epoch: int | None  # of the last record archived below `next_offset`; None: found by comparing records
    end_offset: int | None  # the two logs are the same below it; None: nothing is known to be the same
    found_at: datetime  # UTC
    evidence: str = ""  # what shows it, for people

    def __post_init__(self) -> None:
        if self.next_offset < 1 or (self.end_offset is not None and not 0 <= self.end_offset < self.next_offset):
            raise ValueError(f"a fork at {self.end_offset} contests nothing below {self.next_offset}")

    @property
    def is_by_records(self) -> bool:
        """Found by comparing the log's records with archived ones, not reported by a broker."""
        return self.leader_epoch is None

    @property
    def contested(self) -> OffsetRange:
        """Offsets whose archived records are not, or may not be, those of the log as it is now."""
        return OffsetRange(0 if self.end_offset is None else self.end_offset, self.next_offset - 1)


def encode_fork(fork: LogFork) -> bytes:
    return dump(
        {
            "end_offset": fork.end_offset,
            "evidence": fork.evidence,
            "found_at": fork.found_at.isoformat(),
            "leader_epoch": fork.leader_epoch,
            "next_offset": fork.next_offset,
            "v": VERSION,
        }
    )


def decode_fork(source: SourcePartition, data: bytes) -> LogFork:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = load(data)
        return LogFork(
            source=source,
            next_offset=int(d["next_offset"]),
            leader_epoch=None if d["leader_epoch"] is None else int(d["leader_epoch"]),
            end_offset=None if d["end_offset"] is None else int(d["end_offset"]),
            found_at=datetime.fromisoformat(d["found_at"]),
            evidence=str(d.get("evidence", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a fork of {source}: {data[:200]!r} ({error})") from error
