"""Which generations of a control object stay. Pure: two neighbours, a rule, a time and a horizon in; a decision out.

    age         0 ───── 1 h ──────────────── 7 d ────────────── horizon ──>
    catalog     all      the last of an hour  the last of a day  the last one before it
    watermarks  the last of a minute          the last of a day  the last one before it

1. The newest generation always stays.
2. By age, of a generation's hour (or minute, or day: UTC) only the last stays, so that the generation in force at any
   time is known to that precision. The spans divide each other: what stays for a day has stayed for its hour.
3. Of watermarks the one with the most settled partitions stays, too, the last of several: a moment to which a restore
   may go without splitting a transaction. It is read for that; the other rules need only the listing.
4. What is older than the horizon, the oldest stored segment, describes nothing that is stored; the one in force at the
   horizon does. Generations of the first tier stay even then.

A generation goes because of the one that follows it, so a listing in order of numbers is decided as it is read. Ages
are those of the stored objects, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from formats.control.lease import SKEW
from formats.segment import SegmentInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class KeepTier:
    """What stays of generations up to an age."""

    age: timedelta  # not included
    one_per: timedelta | None  # None: all


@dataclass(frozen=True, slots=True)
class KeepRule:
    tiers: Sequence[KeepTier]  # rising ages and spans
    then: timedelta | None  # one for each such span; None: none

    def span(self, age: timedelta) -> timedelta | None:
        """Of which a generation of this age is kept only as the last. Zero: it is kept in any case; None: in none."""
        for tier in self.tiers:
            if age < tier.age:
                return tier.one_per or timedelta()
        return self.then


_DESCRIBING = KeepRule((KeepTier(HOUR, None), KeepTier(7 * DAY, HOUR)), then=DAY)
_MOVING = KeepRule((KeepTier(7 * DAY, MINUTE),), then=DAY)
"""Of what changes with every record: a restore to a moment takes positions of groups that are of the same minute as the
ends of the logs, and an hour between two generations would be an hour of records read again."""

RULES: Mapping[str, KeepRule] = {
    "catalog": _DESCRIBING,
    "schemas": _DESCRIBING,
    "watermarks": _MOVING,
    "groups": _MOVING,
    "heartbeat": KeepRule((KeepTier(HOUR, None),), then=None),
}
"""By the folder of the control object."""


@dataclass(slots=True)
class SegmentHorizon:
    """When the oldest stored segment was stored. A merged segment is younger than the records in it, and so is one that
    was stored later than what follows it: by a repair, a copy or a backfill. A listing does not say by how much: while
    there is such a one, nothing expires by the horizon."""

    _oldest: datetime | None = None
    _has_younger: bool = False

    def add(self, stored: Iterable[SegmentInfo]) -> None:
        """`stored`: all of a partition."""
        newest: datetime | None = None
        for info in sorted(stored, key=lambda info: info.segment.offsets):
            self._has_younger |= info.segment.level > 0 or (newest is not None and info.stored_at < newest - SKEW)
            newest = max(newest or info.stored_at, info.stored_at)
            self._oldest = min(self._oldest or info.stored_at, info.stored_at)

    def stored_at(self, now: datetime) -> datetime | None:
        """`now` when no segment is stored; None: not known."""
        return None if self._has_younger else self._oldest or now


def is_superseded(
    stored_at: datetime, next_stored_at: datetime, rule: KeepRule, now: datetime, horizon: datetime | None
) -> bool:
    """Whether a generation goes, given when the following one was stored. `horizon`: when the oldest segment was
    stored; None: not known, or nothing expires by it."""
    return shares_span(stored_at, next_stored_at, rule, now) or is_expired(
        stored_at, next_stored_at, rule, now, horizon
    )


def shares_span(stored_at: datetime, next_stored_at: datetime, rule: KeepRule, now: datetime) -> bool:
    """Whether the following one is of the same span, so that this one is not the last of it."""
    span = rule.span(now - stored_at)
    if not span:
        return False
    return (stored_at - _EPOCH) // span == (next_stored_at - _EPOCH) // span


def is_expired(
    stored_at: datetime, next_stored_at: datetime, rule: KeepRule, now: datetime, horizon: datetime | None
) -> bool:
    """Whether it goes even as the last of its span."""
    age = now - stored_at
    if rule.span(age) is None:
        return True
    return horizon is not None and age >= rule.tiers[0].age and next_stored_at <= horizon


def most_settled(counts: Sequence[int]) -> int | None:
    """Index of the generation of one span that has the most settled partitions, the last of several; None: none has
    any. `counts`: in the order of the generations."""
    best = max(counts, default=0)
    return len(counts) - 1 - list(reversed(counts)).index(best) if best > 0 else None
