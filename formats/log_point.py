"""A point of a partition's log: an offset, and the leader epoch in which the log reached it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogPoint:
    """The log reached `next_offset` in `leader_epoch`. When this is no longer true, the log has forked: it lost its
    tail and assigns those offsets to other records (KIP-320)."""

    next_offset: int
    leader_epoch: int
