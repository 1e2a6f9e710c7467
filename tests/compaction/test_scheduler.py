"""Metrics and health after a scheduled run of a job, for every outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pytest

from compaction.quarantined import quarantine_subject
from compaction.run import CompactionReport, CompactionStopped
from compaction.schedule import Schedule
from compaction.scheduler import Scheduler
from compaction.task_rows import PlanOutcome
from formats.control.lease import Lease
from formats.errors import SparkEnded, StoreUnavailable
from infra.archive.lease import LeaseTaken
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from replicator.config import CompactionJob
from tests.compaction.archive import job
from tests.fakes.surroundings import CountedMetrics, HandClock
from tests.formats.sample_records import segment

JOB = job(name="hourly", cron="0 * * * *")
LABELS = {"compaction_job": JOB.name}
DAMAGED = str(segment(0, 9))


class World:
    """One job, due every hour; `run` decides its outcome."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.health, self.stop = HandClock(), CountedMetrics(), Health(), Stop()
        self.schedule = Schedule([JOB], self.clock.now())

    def run(self, run: Callable[[CompactionJob], Sequence[CompactionReport]]) -> None:
        scheduler = Scheduler(
            schedule=self.schedule,
            run=run,
            clock=self.clock,
            health=self.health,
            metrics=self.metrics,
            stop=self.stop,
        )
        self.clock.at = self.schedule.upcoming[0].at
        due = self.schedule.take(self.clock.now())
        assert due is JOB
        scheduler._run(due)

    @property
    def stopped(self) -> list[str]:
        return list(self.health.snapshot().stopped.values())


def report(*outcomes: PlanOutcome, quarantined: Mapping[str, str] | None = None) -> CompactionReport:
    made = CompactionReport(JOB.name, quarantined=quarantined or {})
    made.outcomes += outcomes
    return made


def test_work_is_counted() -> None:
    world = World()
    done = (
        PlanOutcome(segment=DAMAGED, merged=3),
        PlanOutcome(segment=DAMAGED, deleted=2),
        PlanOutcome(segment=DAMAGED, error="why"),
    )
    world.run(lambda _: [report(*done), report(*done)])
    counted = [
        world.metrics.by_label("compaction_runs", **LABELS),
        world.metrics.by_label("compaction_merged_segments", **LABELS),
        world.metrics.by_label("compaction_deleted_segments", **LABELS),
        world.metrics.by_label("compaction_failures", **LABELS),
    ]
    assert counted == [1, 6, 4, 2]
    assert world.stopped == []


def test_failed_plans_are_a_problem_until_a_run_has_none() -> None:
    world = World()
    world.run(lambda _: [report(PlanOutcome(segment=DAMAGED, merged=3), PlanOutcome(segment="s", error="no room"))])
    assert list(world.health.snapshot().problems.values()) == [
        "1 of 2 plans failed; they are tried in the next run: s: no room"
    ]
    world.run(lambda _: [report()])
    assert world.health.snapshot().problems == {}


def test_a_failure_is_reported_until_a_run_succeeds() -> None:
    def away(_: CompactionJob) -> Sequence[CompactionReport]:
        raise StoreUnavailable("the store is away")

    world = World()
    world.run(away)
    assert world.stopped == ["the store is away"]
    assert world.metrics.by_label("compaction_failures", **LABELS) == 1
    assert world.metrics.by_label("compaction_runs", **LABELS) == 0
    world.run(lambda _: [report()])
    assert world.stopped == []


def test_the_end_of_submitted_spark_ends_the_scheduler() -> None:
    """No later run could start another Spark: whatever submitted this process has to begin a new one."""

    def ended(_: CompactionJob) -> Sequence[CompactionReport]:
        raise SparkEnded("yarn", "the Java of spark-submit has ended")

    world = World()
    with pytest.raises(SparkEnded):
        world.run(ended)
    assert world.metrics.by_label("compaction_failures", **LABELS) == 1


def test_the_end_of_submitted_spark_during_a_stop_is_no_failure() -> None:
    world = World()

    def stopped(_: CompactionJob) -> Sequence[CompactionReport]:
        world.stop.set()
        raise SparkEnded("yarn", "the Java of spark-submit has ended")

    world.run(stopped)
    assert world.metrics.counts["compaction_failures"] == 0


def test_a_quarantined_segment_is_reported_until_it_is_resolved() -> None:
    world = World()
    world.run(lambda _: [report(quarantined={DAMAGED: "found something else"}), report()])
    assert DAMAGED in world.stopped[0]
    world.run(lambda _: [report()])
    assert world.stopped == []


def test_what_is_quarantined_is_no_failure_of_the_run() -> None:
    """It ends with a repair, the failure with the next run."""

    def away(_: CompactionJob) -> Sequence[CompactionReport]:
        raise StoreUnavailable("the store is away")

    world = World()
    world.run(lambda _: [report(quarantined={DAMAGED: "found something else"})])
    world.run(away)
    world.health.resumed(quarantine_subject(JOB))
    assert world.stopped == ["the store is away"]


def test_a_stopped_run_is_not_a_failure() -> None:
    world = World()

    def stopped(_: CompactionJob) -> Sequence[CompactionReport]:
        world.stop.set()
        raise CompactionStopped

    world.run(stopped)
    assert (world.stopped, world.metrics.counts["compaction_failures"]) == ([], 0)


def test_a_taken_lease_is_waited_for_and_is_not_a_failure() -> None:
    world = World()
    until = world.schedule.upcoming[0].at + timedelta(minutes=7)

    def taken(_: CompactionJob) -> Sequence[CompactionReport]:
        raise LeaseTaken("a", Lease(token=1, owner="other", until=until))

    world.run(taken)
    assert [due.at for due in world.schedule.upcoming] == [until]
    assert (world.stopped, world.metrics.counts["compaction_failures"]) == ([], 0)
