"""What fails again and again: a failure may be the network's for a moment, one that lasts is an operator's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

ALARM = timedelta(minutes=1)


class Attempt(StrEnum):
    """At what."""

    DELIVERY = "to deliver"
    POSITION = "to read the position"
    LISTING = "to list the archive"
    LOOK = "to look for what is to be delivered"
    TARGET = "to look what the target partition holds"
    DESTINATIONS = "to look at the destinations"
    CHECKPOINTS = "to read the checkpoint topic"
    TOPICS = "to look at the topics of the source"
    COMMIT = "to commit the position"
    COMPARISON = "to compare a segment with the one stored before"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failing:
    since: datetime  # first of those in a row
    reason: str  # of the last
    is_refusal: bool  # time does not mend it
    times: int = 1


@dataclass(slots=True)
class Failures:
    """In a row, by what was attempted. Not thread safe."""

    _failing: dict[Attempt, _Failing] = field(default_factory=dict)

    def failed(self, attempt: Attempt, reason: str, now: datetime, *, is_refusal: bool = False) -> int:
        """How often it had failed before, in a row."""
        known = self._failing.get(attempt)
        if known is None:
            self._failing[attempt] = _Failing(since=now, reason=reason, is_refusal=is_refusal)
            return 0
        self._failing[attempt] = replace(known, reason=reason, is_refusal=is_refusal, times=known.times + 1)
        return known.times

    def worked(self, attempt: Attempt) -> None:
        self._failing.pop(attempt, None)

    def fails(self, attempt: Attempt) -> bool:
        """The last one did."""
        return attempt in self._failing

    def alarm(self, now: datetime) -> str:
        """What an operator has to know of: a refusal that is repeated (a topic that was just made may be unknown to one
        of several brokers), anything else when it lasts; empty when there is none."""
        for attempt, failing in self._failing.items():
            if (failing.is_refusal and failing.times > 1) or now - failing.since >= ALARM:
                return (
                    f"every attempt {attempt} fails since {failing.since.isoformat(timespec='seconds')}, the last one: "
                    f"{failing.reason}"
                )
        return ""
