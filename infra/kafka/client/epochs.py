"""Leader epochs as the client reports them, and its error for a truncated log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from confluent_kafka import KafkaError

from formats.log_point import LogPoint

TRUNCATED = "Partition log truncation detected"  # the client's error text; the error has no code of its own in Python
_CLAIM = re.compile(r"offset (\d+) \(leader epoch (\d+)\): broker end offset is (-?\d+)")


@dataclass(frozen=True, slots=True)
class Truncation:
    """The point that the client checked, and the broker's end offset of that epoch; None: not named in the text."""

    point: LogPoint | None
    end_offset: int | None


def epoch_of(leader_epoch: int | None) -> int | None:
    """The epoch, or None for the client's −1."""
    return leader_epoch if leader_epoch is not None and leader_epoch >= 0 else None


def parse_truncation(error: KafkaError) -> Truncation | None:
    """The truncation that `error` reports; None for any other error. The client uses one code for every offset from
    which it cannot continue; only the text says that the log was truncated and what the broker answered."""
    if error.code() != KafkaError._AUTO_OFFSET_RESET or TRUNCATED not in error.str():
        return None
    claim = _CLAIM.search(error.str())
    if claim is None:
        return Truncation(None, None)
    offset, epoch, end = map(int, claim.groups())
    return Truncation(LogPoint(offset, epoch), end if end >= 0 else None)
