"""A range of integers, offsets or timestamps, whose ends may be open."""

from __future__ import annotations

from dataclasses import dataclass

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class IntRange:
    """Integers from `low` to `high`, both inclusive; empty when `low` is greater."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def intersection(self, other: IntRange) -> IntRange:
        return IntRange(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_bounded(self) -> bool:
        return self != IntRange()

    def overlaps(self, low: int, high: int) -> bool:
        return max(self.low, low) <= min(self.high, high)


ANY_OFFSET, ANY_TIME = IntRange(0), IntRange()
