"""One run of a compaction job: list, plan, execute the plans, list again, until there are no more plans.

Segments that egress stores after the end of the first listing are left to the next run, or a run might never end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby

from compaction.planner import CleanPlan, CompactionPlan, MergePlan, plan_partition, segments_of
from compaction.settings import CompactionJob
from compaction.task_rows import PlanOutcome
from formats.control.quarantine import Quarantined
from formats.coverage import end_of
from formats.errors import ReplicatorError
from formats.segment import Segment, SegmentInfo, SourcePartition, parse_key
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock, Stop

log = logging.getLogger(__name__)

Execute = Callable[[Sequence[CompactionPlan], CompactionJob], Sequence[PlanOutcome]]
"""Runs plans; the outcomes are in the same order. Raises when the outcomes are unknown."""

MakePlans = Callable[[Collection[SegmentInfo], CompactionJob, datetime], Iterable[CompactionPlan]]
"""For one source partition."""


class CompactionStopped(ReplicatorError):
    """A run was stopped. No data is lost."""

    def __init__(self) -> None:
        super().__init__("stopped before everything was merged and deleted; the next run plans the rest anew")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """Which part of a job to run; empty: all of it."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    level: int | None = None

    def narrowed(self, job: CompactionJob) -> CompactionJob:
        return job if self.level is None else replace(job, min_level=self.level, max_level=self.level)

    def has(self, source: SourcePartition) -> bool:
        return not self.partitions or source.partition in self.partitions


@dataclass(slots=True)
class CompactionReport:
    job: str
    plans: list[CompactionPlan] = field(default_factory=list)  # of a dry run
    outcomes: list[PlanOutcome] = field(default_factory=list)
    objects: int = 0  # seen by the first listing
    size_bytes: int = 0
    quarantined: Mapping[str, str] = field(default_factory=dict)  # before and during this run

    @property
    def failed(self) -> Sequence[PlanOutcome]:
        """Plans that may succeed in the next run: those that failed for no segment that is quarantined."""
        return [one for one in self.outcomes if one.error and not one.bad.keys() & self.quarantined.keys()]


@dataclass(slots=True)
class _Tried:
    """The first listing's ends and the executed plans: a plan that changed nothing would be repeated for ever."""

    ends: dict[SourcePartition, int] = field(default_factory=dict)  # next offsets after the first listing
    merges: set[Segment] = field(default_factory=set)
    # keeper, and a segment that it is not proved to hold
    kept: set[tuple[Segment, Segment]] = field(default_factory=set)
    stored_at: dict[Segment, datetime] = field(default_factory=dict)  # of the segments of all plans, when listed

    def add(self, plans: Sequence[CompactionPlan], outcomes: Sequence[PlanOutcome]) -> None:
        for plan, outcome in zip(plans, outcomes, strict=True):
            match plan:
                case MergePlan():
                    self.merges.add(plan.output)
                case CleanPlan() if outcome.error:
                    self.kept.update((plan.keeper, segment) for segment in plan.inside)
                case CleanPlan():
                    self.kept.update((plan.keeper, parse_key("", key)) for key in outcome.kept)

    def rest_of(self, plan: CompactionPlan) -> CompactionPlan | None:
        """The part of the plan that was not tried in this run."""
        match plan:
            case MergePlan():
                return None if plan.output in self.merges else plan
            case CleanPlan():
                left = {s: size for s, size in plan.inside.items() if (plan.keeper, s) not in self.kept}
                return replace(plan, inside=left) if left else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """Lists and plans; `execute` does the work. One thread."""

    region: str
    store: SegmentStore
    control: ControlStore
    execute: Execute
    clock: Clock
    stop: Stop
    make_plans: MakePlans = plan_partition

    def run(self, job: CompactionJob, selection: JobSelection, *, dry_run: bool = False) -> CompactionReport:
        """Raises the errors of the store and of `execute`, and CompactionStopped when `stop` is set."""
        try:
            return self._run(job, selection, dry_run=dry_run)
        except CompactionStopped:
            raise
        except ReplicatorError as error:
            if self.stop.is_set():
                raise CompactionStopped from error
            raise

    def _run(self, job: CompactionJob, selection: JobSelection, *, dry_run: bool) -> CompactionReport:
        job = selection.narrowed(job)
        report = CompactionReport(job.name)
        tried = _Tried()
        while True:
            if self.stop.is_set():
                raise CompactionStopped  # the remaining work is unknown, so the caller must not see success
            plans = list(self._plans(job, selection, report, tried))
            if dry_run:
                report.plans = plans
                return report
            if not plans:
                return report
            log.info("compaction_planned", extra={log_fields.COUNT: len(plans)})
            outcomes = self.execute(plans, job)
            report.outcomes += outcomes
            tried.add(plans, outcomes)
            self._report_outcomes(outcomes, report, tried.stored_at)

    def _plans(
        self,
        job: CompactionJob,
        selection: JobSelection,
        report: CompactionReport,
        tried: _Tried,
    ) -> Iterator[CompactionPlan]:
        """Plans, partition by partition, so that only one partition's listing is held."""
        now = self.clock.now()
        region = job.region or self.region
        quarantined = self.control.quarantine.all(region)
        report.quarantined = {str(segment): found.reason for segment, found in quarantined.items()}
        first = not report.outcomes
        for incarnation in self.store.incarnations(region):
            topic = incarnation.topic
            if not job.selects(topic) or (selection.topics and topic not in selection.topics):
                continue
            stored = self.store.walk(region, incarnation.path)
            for source, infos in groupby(stored, key=lambda info: info.segment.source):
                if not selection.has(source):
                    continue
                known = list(infos)
                if first:
                    report.objects += len(known)
                    report.size_bytes += sum(info.size_bytes for info in known)
                    tried.ends[source] = end_of(info.segment.offsets for info in known)
                known = [info for info in known if info.segment.offsets.start < tried.ends.get(source, 0)]
                usable = [info for info in known if info.segment not in quarantined]
                stored_at = {one.segment: one.stored_at for one in usable}
                plans = map(tried.rest_of, self.make_plans(usable, job, now))
                for plan in (one for one in plans if one is not None):
                    tried.stored_at |= {segment: stored_at[segment] for segment in segments_of(plan)}
                    yield plan

    def _report_outcomes(
        self, outcomes: Sequence[PlanOutcome], report: CompactionReport, stored_at: Mapping[Segment, datetime]
    ) -> None:
        """Log one line for each plan, and quarantine corrupt segments, unless another object has replaced the one that
        was planned. `stored_at`: when that one was stored, by the listing."""
        now = self.clock.now()
        for outcome in outcomes:
            event, extra = _event(outcome)
            if outcome.error:
                log.warning("compaction_failed", extra=extra | {log_fields.ERROR: outcome.error})
            elif outcome.merged or outcome.deleted:
                log.info(event, extra=extra)
            if outcome.kept:
                first = next(f"{segment}: {why}" for segment, why in outcome.kept.items())
                count = {log_fields.SEGMENT: outcome.segment, log_fields.COUNT: len(outcome.kept)}
                log.info("segments_kept", extra=count | {log_fields.REASON: first})
            for key, reason in outcome.bad.items():
                segment = parse_key("", key)
                info = self.store.stat(segment)
                if info is None:
                    continue
                # of a segment that this plan has stored, no listing knows
                found = Quarantined(stored_at=stored_at.get(segment, info.modified_at), reason=reason, found_at=now)
                if found.is_of(info.modified_at):
                    self.control.quarantine.record(segment, found)
                    report.quarantined = {**report.quarantined, key: reason}


def _event(outcome: PlanOutcome) -> tuple[str, dict[str, object]]:
    """The log event of an outcome with its fields: of the merged segment, or of the deleted ones."""
    if outcome.deleted:
        event, count = "segments_deleted", outcome.deleted
        records, stored_bytes = outcome.deleted_records, outcome.freed_bytes
    else:
        event, count = "segments_merged", outcome.merged
        records, stored_bytes = outcome.records, outcome.stored_bytes
    return event, {
        log_fields.SEGMENT: outcome.segment,
        log_fields.RECORDS: records,
        log_fields.STORED_BYTES: stored_bytes,
        log_fields.COUNT: count,
    }
