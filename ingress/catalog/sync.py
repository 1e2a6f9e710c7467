"""Keeps the destinations of this process like their sources: plans and applies on a pool, at an interval.

assigned with partition 0 ──> kept ──every `interval`──> CatalogApplier ──> problems in health, reports in the log
settings replaced, another catalogue ──at once───────────────┘
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.control.catalog import Catalog
from formats.errors import TargetError
from formats.messages.delivery_checkpoint import CheckpointKey
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lookups import Answer, Failed, Lookup
from ingress.catalog.applier import CatalogApplier, ClusterPlan
from ingress.catalog.desired import KeptTopic
from ingress.catalog.settings import CatalogSettings

log = logging.getLogger(__name__)

CATALOG = "catalog"  # in health


@dataclass(slots=True)
class CatalogSync:
    """Use from the controller's thread only; the requests run on `pool`."""

    applier: CatalogApplier | None  # None: nothing in this cluster is to be altered
    pool: Executor
    interval: timedelta
    health: Health
    _lookup: Lookup[ClusterPlan] = field(init=False)
    _failures: Failures = field(default_factory=Failures)
    _refused: str = ""  # why the last plan failed, where that does not resolve itself
    _problems: Mapping[str, str] = field(default_factory=dict)  # in health
    _reports: frozenset[str] = frozenset()  # logged
    _asked: CatalogSettings | None = None  # the settings of the last plan that was begun
    _planned: Mapping[str, Catalog] = field(default_factory=dict)  # and its catalogues

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(
        self,
        kept: Mapping[str, KeptTopic],
        catalogs: Mapping[str, Catalog],
        positions: Mapping[CheckpointKey, object],
        now: datetime,
        *,
        stale: Collection[str] = (),
    ) -> bool:
        """`kept`: by destination. `positions`: checkpoints of all processes. `stale`: regions with a newer catalogue,
        which cannot be read. True when topics have changed: find them again."""
        if self.applier is None:
            return False
        outcome = self._lookup.collect()
        if not kept:
            self.applier.ledger.forget()
            self._forget()
            return isinstance(outcome, Answer) and bool(outcome.value.topics.changes)
        settings = self.applier.settings.value
        # a generation stays the same object, so that thousands of topics are not compared each turn
        is_other = any(catalog is not self._planned.get(region) for region, catalog in catalogs.items())
        is_replaced = (is_other or settings is not self._asked) and not self._lookup.is_under_way
        if (is_replaced or self._lookup.is_due(now)) and catalogs:
            self._lookup.due_at, self._asked, self._planned = now + self.interval, settings, catalogs
            self._lookup.ask(_sync, self.applier, kept, catalogs, dict(positions), stale)
        match outcome:
            case Failed(error=error):
                log.warning("catalog_not_applied", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.CATALOG_CHANGES, str(error), now)
                self._refused = str(error) if isinstance(error, TargetError) else ""
            case Answer(value=plan):
                self._failures.succeeded(Attempt.CATALOG_CHANGES)
                self._refused = ""
                self._report(plan)
        self.health.problem(CATALOG, self._failures.alarm(now) or self._refused)
        return isinstance(outcome, Answer) and bool(outcome.value.topics.changes)

    def _forget(self) -> None:
        """What this process kept, others keep now, and report."""
        self._failures.succeeded(Attempt.CATALOG_CHANGES)
        self._refused, self._reports = "", frozenset()
        self.health.solved(CATALOG)
        for subject in self._problems:
            self.health.solved(subject)
        self._problems = {}

    def _report(self, plan: ClusterPlan) -> None:
        for report in sorted(set(plan.reports) - self._reports):
            log.warning("destination_differs", extra={log_fields.REASON: report})
        self._reports = frozenset(plan.reports)
        before, self._problems = self._problems, {f"{name} at the source": why for name, why in plan.problems.items()}
        for subject in before.keys() - self._problems.keys():
            self.health.solved(subject)
        for subject, why in self._problems.items():
            if before.get(subject) != why:
                log.warning("destination_not_changed", extra={log_fields.DESTINATION: subject, log_fields.REASON: why})
            self.health.problem(subject, why)


def _sync(
    applier: CatalogApplier,
    kept: Mapping[str, KeptTopic],
    catalogs: Mapping[str, Catalog],
    positions: Mapping[CheckpointKey, object],
    stale: Collection[str],
) -> ClusterPlan:
    return applier.apply(applier.plan(kept, catalogs, positions, stale=stale))
