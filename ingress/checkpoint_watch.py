"""Watches the checkpoint topic while ingress runs: its owning group, the checkpoints that operators wrote, and whether
its settings still retain its records.

    start ──> claim, again until the cluster answers ──> `is_ours`
    every `interval` ──> read, confirm the claim, ask for the settings ──> `positions`, `skipped`, problems in health
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import OtherGroup, ReplicatorError, TargetError
from formats.messages.delivery_checkpoint import Skipped
from infra.contracts.internal_topics import CheckpointStore
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.retry import RETRY
from ingress.checkpoint_lookup import Positions
from ingress.group_ownership import GroupOwnership

log = logging.getLogger(__name__)

SUBJECT = "checkpoint topic"  # in health


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    positions: Positions
    skipped: Sequence[Skipped]
    problems: Sequence[str]


@dataclass(slots=True, kw_only=True)
class CheckpointWatch:
    """Use from the controller's thread only; the requests run on `pool`."""

    ownership: GroupOwnership
    checkpoints: CheckpointStore
    settings_problems: Callable[[], Sequence[str]]  # of the topic; may raise TargetError or BrokerUnavailable
    pool: Executor
    interval: timedelta
    health: Health
    is_ours: bool = False  # nothing may be delivered before
    is_read: bool = False  # at least once
    positions: Positions = field(default_factory=dict)  # as of the last reading
    skipped: Sequence[Skipped] = ()  # as of the last reading
    _failures: Failures = field(default_factory=Failures)
    _claiming: Lookup[object] = field(init=False)
    _reading: Lookup[_Seen] = field(init=False)

    def __post_init__(self) -> None:
        self._claiming, self._reading = Lookup(self.pool), Lookup(self.pool)

    def poll(self, now: datetime) -> bool:
        """Whether a reading has succeeded. Raises OtherGroup when the topic belongs to another group."""
        if not self.is_ours:
            self._claim(now)
            return False
        if self._reading.is_due(now):
            self._reading.due_at = now + self.interval
            self._reading.ask(self._read)
        return self._collect(now)

    def _claim(self, now: datetime) -> None:
        if self._claiming.is_due(now):
            self._claiming.ask(self.ownership.claim)
        match self._claiming.collect():
            case Failed(error=OtherGroup() as error):
                raise error
            case Failed(error=error):
                log.warning("group_not_claimed", extra={log_fields.ERROR: str(error)})
                self._failed(error, now)
                self._claiming.due_at = now + RETRY
            case Answer():
                self.is_ours = True
                self._failures.succeeded(Attempt.CHECKPOINTS)
                self.health.solved(SUBJECT)

    def _collect(self, now: datetime) -> bool:
        match self._reading.collect():
            case None:
                return False
            case Failed(error=OtherGroup() as error):
                raise error
            case Failed(error=error):
                log.warning("checkpoints_not_seen", extra={log_fields.ERROR: str(error)})
                self._failed(error, now)
                return False
            case Answer(value=seen):
                self._failures.succeeded(Attempt.CHECKPOINTS)
                self.is_read, self.positions, self.skipped = True, seen.positions, seen.skipped
                self.health.problem(SUBJECT, "; ".join(seen.problems))
                return True

    def _failed(self, error: ReplicatorError, now: datetime) -> None:
        """Report a refusal at once, since it does not resolve itself; any other failure only when it lasts."""
        self._failures.failed(Attempt.CHECKPOINTS, str(error), now)
        if isinstance(error, TargetError):
            self.health.problem(SUBJECT, str(error))
        elif alarm := self._failures.alarm(now):
            self.health.problem(SUBJECT, alarm)

    def _read(self) -> _Seen:
        positions = self.checkpoints.read()
        self.ownership.confirm()
        skipped = self.checkpoints.skipped()
        try:
            problems = self.settings_problems()
        except TargetError as error:
            problems = [str(error)]
        return _Seen(positions=positions, skipped=skipped, problems=problems)
