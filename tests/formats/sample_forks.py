"""Forks of a partition's log, for the rules about them."""

from __future__ import annotations

from datetime import UTC, datetime

from formats.control.fork import LogFork
from formats.segment import SourcePartition

FOUND_AT = datetime(2026, 1, 1, tzinfo=UTC)


def fork_of(
    source: SourcePartition,
    next_offset: int,
    end_offset: int | None,
    leader_epoch: int | None = 0,
    *,
    evidence: str = "the evidence",
) -> LogFork:
    return LogFork(
        source=source,
        next_offset=next_offset,
        leader_epoch=leader_epoch,
        end_offset=end_offset,
        found_at=FOUND_AT,
        evidence=evidence,
    )
