"""A point of a partition's log: an offset, and the leader epoch in which the log reached it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogPoint:
    """What a log once was: in `leader_epoch` it reached `next_offset`. A log of which this is no longer true lost its
    tail, and gives those offsets to other records (KIP-320): it has forked."""

    next_offset: int
    leader_epoch: int
