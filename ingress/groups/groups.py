"""Consumer groups of the sources, at an interval: translated, written to MirrorMaker 2's topics, and synchronised.

    every `interval`, by the process that has partition 0 of the first destination of a source region ──> GroupRound

The requests run on a pool, so delivery never waits for a group.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from formats.errors import BrokerUnavailable
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.metrics import Metrics
from infra.settings.current import InForce
from ingress.groups.flows import group_flows
from ingress.groups.lookup import DeliveryPositions
from ingress.groups.round import GroupRound, RegionReport
from ingress.groups.settings import GroupSettings
from ingress.groups.sync_plan import SyncOutcome
from ingress.groups.translation import Exactness
from ingress.heartbeats import held_regions
from ingress.routing.destinations import RoutingTable
from ingress.settings import IngressSettings

log = logging.getLogger(__name__)

GROUPS = "groups"  # in health


@dataclass(slots=True, kw_only=True)
class Groups:
    """Use from the controller's thread only; the requests run on `pool`."""

    settings: InForce[IngressSettings]
    groups: GroupSettings
    round: GroupRound | None  # None: groups are neither emitted nor synchronised
    pool: Executor
    metrics: Metrics
    health: Health
    _lookup: Lookup[Mapping[str, RegionReport]] = field(init=False)
    _failures: Failures = field(default_factory=Failures)
    _problems: Mapping[str, str] = field(default_factory=dict)  # by region, in health
    _seen: frozenset[str] = frozenset()  # regions with gauges

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(
        self,
        found: RoutingTable,
        kept: Callable[[], Collection[str]],
        positions: Callable[[], DeliveryPositions],
        now: datetime,
    ) -> None:
        """`kept`: destinations whose partition 0 this process has. `positions`: checkpoints of all processes."""
        if self.round is None:
            return
        match self._lookup.collect():
            case Answer(value=reports):
                self._failures.succeeded(Attempt.GROUP_POSITIONS)
                self._report(reports)
            case Failed(error=error):
                log.warning("groups_not_translated", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.GROUP_POSITIONS, str(error), now)
        self.health.problem(GROUPS, self._failures.alarm(now))
        if found.destinations and self._lookup.is_due(now):
            self._lookup.due_at = now + self.groups.interval
            self._lookup.ask(self._run, self.round, found, frozenset(kept()), dict(positions()))

    def _run(
        self, round_: GroupRound, found: RoutingTable, kept: Collection[str], positions: DeliveryPositions
    ) -> Mapping[str, RegionReport]:
        flows, problems = group_flows(self.settings.value)
        held = held_regions(found, kept)
        for region in problems.keys() & held:
            log.warning("groups_not_translated", extra={log_fields.REGION: region, log_fields.ERROR: problems[region]})
        try:
            return round_.run([flow for flow in flows if flow.region in held], found, positions)
        except (OSError, ValueError) as error:  # a full disk, say: delivery goes on, and the next round tries again
            raise BrokerUnavailable(f"translate the offsets of groups: {error}") from error

    def _report(self, reports: Mapping[str, RegionReport]) -> None:
        for region in self._seen - reports.keys():  # another process has it now
            self._forget(region)
        self._seen = frozenset(reports)
        problems = {region: one.problem for region, one in reports.items() if one.problem}
        for region in self._problems.keys() - problems.keys():
            self.health.solved(_subject(region))
        for region, problem in problems.items():
            if self._problems.get(region) != problem:
                log.warning("groups_not_written", extra={log_fields.REGION: region, log_fields.ERROR: problem})
            self.health.problem(_subject(region), problem)
        self._problems = problems
        for region, report in reports.items():
            self._measure(region, report)

    def _measure(self, region: str, report: RegionReport) -> None:
        age = max(report.age.total_seconds(), 0.0)
        self.metrics.gauge("group_snapshot_age_seconds", age, region=region)
        if not report.has_arrived:
            return
        if report.checkpoints:
            self.metrics.count("group_checkpoints", report.checkpoints, region=region)
            self.metrics.gauge("group_checkpoint_latency_seconds", age, region=region)
        known = Counter(one.exactness for one in report.positions)
        for exactness in Exactness:
            self.metrics.gauge("group_positions", known[exactness], region=region, exactness=exactness.value)
        outcomes = Counter(one.outcome for some in report.decisions.values() for one in some)
        for outcome in SyncOutcome:
            self.metrics.gauge("group_offsets", outcomes[outcome], region=region, outcome=outcome.value)

    def _forget(self, region: str) -> None:
        self.metrics.forget("group_snapshot_age_seconds", region=region)
        self.metrics.forget("group_checkpoint_latency_seconds", region=region)
        for exactness in Exactness:
            self.metrics.forget("group_positions", region=region, exactness=exactness.value)
        for outcome in SyncOutcome:
            self.metrics.forget("group_offsets", region=region, outcome=outcome.value)


def _subject(region: str) -> str:
    return f"groups of {region}"
