"""Consecutive failures: a single one may be a network problem, a lasting one needs an operator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

ALARM = timedelta(minutes=1)


class Attempt(StrEnum):
    """The operation, as it completes the sentence "every attempt … has failed"."""

    DELIVERY = "to deliver"
    POSITION = "to read the position"
    LISTING = "to list the archive"
    DISCOVERY = "to find the archived topics to deliver"
    TARGET_CHECK = "to check the target partition for records"
    DESTINATIONS = "to describe the destination topics"
    CHECKPOINTS = "to read the checkpoint topic"
    TOPICS = "to list the source topics"
    COMMIT = "to commit the position"
    CATALOG = "to publish the catalogue"
    CATALOG_CHANGES = "to make the destinations like their sources"
    WATERMARKS = "to publish the watermarks"
    GROUPS = "to publish the offsets of consumer groups"
    SCHEMAS = "to publish the schemas"
    GROUP_POSITIONS = "to translate the offsets of consumer groups"
    HEARTBEAT = "to store a heartbeat"
    BUCKETS = "to list both buckets"
    COPIES = "to complete a round without a failure"
    NOTIFICATIONS = "to follow the notifications"
    COMPARISON = "to compare a segment with the stored one"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failing:
    since: datetime  # first consecutive failure
    reason: str  # of the last failure
    is_refusal: bool  # not temporary
    times: int = 1


@dataclass(slots=True)
class Failures:
    """Consecutive failures by operation. Not thread safe."""

    _failing: dict[Attempt, _Failing] = field(default_factory=dict)

    def failed(self, attempt: Attempt, reason: str, now: datetime, *, is_refusal: bool = False) -> int:
        """Record a failure. Returns the number of consecutive failures before it."""
        known = self._failing.get(attempt)
        if known is None:
            self._failing[attempt] = _Failing(since=now, reason=reason, is_refusal=is_refusal)
            return 0
        self._failing[attempt] = replace(known, reason=reason, is_refusal=is_refusal, times=known.times + 1)
        return known.times

    def succeeded(self, attempt: Attempt) -> None:
        self._failing.pop(attempt, None)

    @property
    def are_any(self) -> bool:
        return bool(self._failing)

    def is_failing(self, attempt: Attempt) -> bool:
        """Whether the last attempt failed."""
        return attempt in self._failing

    def alarm(self, now: datetime) -> str:
        """A failure that an operator has to know about; empty when there is none. A refusal counts from the second one
        (a broker may not know yet of a topic that was just created), any other failure once it has lasted ALARM."""
        for attempt, failing in self._failing.items():
            if (failing.is_refusal and failing.times > 1) or now - failing.since >= ALARM:
                return (
                    f"every attempt {attempt} has failed since {failing.since.isoformat(timespec='seconds')}, the last "
                    f"one with: {failing.reason}"
                )
        return ""
