"""How the end of a log is brought to an offset without a record that a consumer sees. Pure: no I/O.

    end 7, wanted 8     Marker        a transaction without records, aborted: its marker takes offset 7
    end 7, wanted 12    Fillers(4)    four records in an aborted transaction: offsets 7 to 10, and the marker takes 11
    end 7, wanted 7     nothing
    end 8, wanted 7     Overtaken     another offset than the source's is next: no step leads back

1. A step never reaches beyond `wanted`, wherever it is interrupted: of a transaction of n fillers, k are in the log,
   and its marker takes one more offset, k + 1 <= n + 1. So after any crash the end alone decides the next step.
2. Fillers are limited to MOST_FILLERS in one transaction, so that a crash repeats little, and a stop waits shortly.
3. A log that ends before what was delivered has lost its tail. Fillers there would hide records that are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

MOST_FILLERS = 100_000
FILLERS_PER_SECOND, HOLES_PER_SECOND = 150_000, 40  # measured, on the careful side: docs/preserved-offsets.md


@dataclass(frozen=True, slots=True)
class Marker:
    """An aborted transaction without records: one offset."""


@dataclass(frozen=True, slots=True)
class Fillers:
    """An aborted transaction of `count` records: `count` + 1 offsets."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} fillers")


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The log has gone beyond the wanted offset."""

    end: int


FillStep = Marker | Fillers | Overtaken | None


def next_step(end: int, wanted: int) -> FillStep:
    """What is to be done next while the log ends at `end`; None: it ends where it is to. Both are next offsets."""
    if not end >= 0 or not wanted >= 0:
        raise ValueError(f"not offsets: {end}, {wanted}")
    hole = wanted - end
    if hole < 0:
        return Overtaken(end)
    if hole == 0:
        return None
    return Marker() if hole == 1 else Fillers(min(hole - 1, MOST_FILLERS))


def has_lost_its_tail(end: int, delivered: int) -> bool:
    """Rule 3. `delivered`: next offset of the checkpoint, up to which the log was filled once."""
    return end < delivered


def time_to_fill(hole: int) -> timedelta:
    """About how long a hole of so many offsets takes."""
    return timedelta(seconds=1 / HOLES_PER_SECOND + hole / FILLERS_PER_SECOND) if hole else timedelta()
