"""Runs that do not come to their end: what the metrics and `status` show of them, also after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest

from compaction.missed_runs import MissedRuns
from compaction.quarantined import QuarantinedSegments
from compaction.schedule import MOST_MISSED, OVERDUE, missed_times
from formats.control.quarantine import Quarantined
from formats.errors import MalformedEvent
from formats.segment import Segment
from infra.archive.compaction_runs import CompletedRun, CompletedRuns, decode, encode
from infra.archive.control import ControlStore
from infra.archive.job_heartbeats import HeartbeatStore
from infra.archive.segments import SegmentStore
from infra.runtime.health import Health
from replicator.config import CompactionJob, CompactionSettings
from replicator.status.compaction import CompactionSources, CompactionStatus
from tests.compaction.archive import PREFIX, job
from tests.fakes.surroundings import CountedMetrics, FailingStore, HandClock
from tests.formats.sample_records import SOURCE, segment

NIGHTLY, BY_HAND = job(name="nightly", cron="0 1 * * *"), job(name="by-hand")
FIRST = datetime(2026, 3, 5, 1, 0, 0, 500, tzinfo=UTC)  # a run begins just after its time
DAY = timedelta(days=1)


def run(began_at: datetime, *, failed_plans: int = 0, quarantined: int = 0) -> CompletedRun:
    return CompletedRun(
        began_at=began_at,
        ended_at=began_at + timedelta(hours=2),
        failed_plans=failed_plans,
        quarantined=quarantined,
    )


class World:
    def __init__(self, jobs: Sequence[CompactionJob] = (NIGHTLY, BY_HAND)) -> None:
        self.jobs = jobs
        self.clock = HandClock(FIRST)
        self.objects = FailingStore(self.clock)
        self.control = ControlStore(self.objects, PREFIX)
        self.runs = CompletedRuns(self.objects, PREFIX, "eu-1")
        self.restart()

    def restart(self) -> None:
        self.metrics, self.health = CountedMetrics(), Health()
        self.segments = QuarantinedSegments(
            jobs=self.jobs,
            region=SOURCE.region,
            quarantine=self.control.quarantine,
            metrics=self.metrics,
            health=self.health,
        )
        self.missed = MissedRuns(
            jobs=self.jobs,
            runs=self.runs,
            clock=self.clock,
            metrics=self.metrics,
            since=self.clock.now(),
        )

    def shown(self, after: timedelta) -> float | None:
        self.clock.at = FIRST + after
        self.missed.show()
        self.segments.show()
        return self.metrics.value("compaction_missed_runs", compaction_job="nightly")

    def quarantine(self, start: int, end: int) -> Segment:
        found = segment(start, end)
        SegmentStore(self.objects, PREFIX).store(found, BytesIO(b"damaged"), 7)
        now = self.clock.now()
        self.control.quarantine.record(found, Quarantined(stored_at=now, reason="digest", found_at=now))
        return found

    @property
    def quarantined(self) -> float | None:
        return self.metrics.value("quarantined_segments", compaction_job="nightly")

    @property
    def stopped(self) -> set[str]:
        return set(self.health.snapshot().stopped)

    @property
    def reasons(self) -> list[str]:
        return list(self.health.snapshot().stopped.values())

    def status(self) -> CompactionStatus:
        sources = CompactionSources(
            settings=CompactionSettings(jobs=(NIGHTLY, BY_HAND)),
            region="eu-1",
            control=ControlStore(self.objects, PREFIX),
            heartbeats=HeartbeatStore(self.objects, PREFIX, "eu-1"),
            runs=self.runs,
            lease="compaction",
            is_dead=lambda _: False,
            next_run=lambda *_: None,
            missed_times=missed_times,
            overdue=OVERDUE,
        )
        return sources.read(self.clock.now())


def test_times_of_the_cron_since_the_last_whole_run_began_are_counted() -> None:
    world = World()
    world.runs.record("nightly", run(FIRST))
    assert world.shown(timedelta(hours=23)) == 0
    assert world.shown(DAY + timedelta(hours=1)) == 1, "a run that works has not ended either"
    assert world.shown(3 * DAY) == 3
    world.runs.record("nightly", run(FIRST + 3 * DAY))
    assert world.shown(3 * DAY + timedelta(hours=1)) == 0


def test_a_restart_hides_nothing() -> None:
    world = World()
    world.runs.record("nightly", run(FIRST, quarantined=2))
    world.quarantine(0, 9)
    world.quarantine(20, 29)
    world.clock.at = FIRST + 2 * DAY
    world.restart()
    assert world.shown(2 * DAY + timedelta(minutes=1)) == 2
    assert world.metrics.value("quarantined_segments", compaction_job="nightly") == 2
    ended = (FIRST + timedelta(hours=2)).timestamp()
    assert world.metrics.value("compaction_last_run_timestamp_seconds", compaction_job="nightly") == ended


def test_a_segment_that_is_repaired_between_two_runs_is_no_longer_shown() -> None:
    """`repair-segment` replaces it, and removes the record."""
    world = World()
    world.runs.record("nightly", run(FIRST, quarantined=2))
    first, second = world.quarantine(0, 9), world.quarantine(20, 29)
    world.shown(timedelta(hours=3))
    assert world.quarantined == 2
    assert world.stopped == {"quarantine of compaction job nightly", "quarantine of compaction job by-hand"}
    world.control.quarantine.end(first)
    world.shown(timedelta(hours=4))
    assert world.quarantined == 1
    assert all(f"1 segments are not what they say, first ('{second}'" in why for why in world.reasons)
    world.control.quarantine.end(second)
    world.objects.calls.clear()
    world.shown(timedelta(hours=5))
    assert (world.quarantined, world.stopped) == (0, set())
    assert world.objects.calls == {"list": 2, "open": 1}, "of the runs, and one listing of what is empty"


def test_what_was_quarantined_stays_shown_while_the_store_does_not_answer() -> None:
    world = World()
    world.quarantine(0, 9)
    world.shown(timedelta(hours=3))
    world.objects.away = {"list"}
    world.shown(timedelta(hours=4))
    assert (world.quarantined, len(world.stopped)) == (1, 2)


def test_a_job_shows_what_is_quarantined_of_its_region() -> None:
    world = World(jobs=[job(name="nightly", region="us-1")])
    world.quarantine(0, 9)
    world.shown(timedelta(hours=3))
    assert (world.quarantined, world.stopped) == (0, set())


def test_without_a_recorded_run_times_count_from_the_start_of_the_process() -> None:
    world = World()
    assert world.shown(timedelta(hours=1)) == 0
    assert world.shown(2 * DAY) == 2
    assert world.metrics.value("compaction_missed_runs", compaction_job="by-hand") == 0


def test_times_pass_while_the_store_does_not_answer() -> None:
    world = World()
    world.runs.record("nightly", run(FIRST))
    assert world.shown(timedelta(hours=1)) == 0
    world.objects.away = {"list"}
    assert world.shown(2 * DAY) == 2


def test_the_count_has_an_end() -> None:
    often = job(name="often", cron="* * * * *")
    assert missed_times(often, FIRST, FIRST + 1000 * DAY) == MOST_MISSED


def test_the_run_that_began_last_is_kept_of_each_job() -> None:
    world = World()
    world.runs.record("nightly", run(FIRST + DAY))
    slow = replace(run(FIRST, failed_plans=3), ended_at=FIRST + DAY + timedelta(hours=3))
    world.runs.record("nightly", slow)
    world.runs.record("a/b ü", run(FIRST))
    assert world.runs.all() == {"nightly": run(FIRST + DAY), "a/b ü": run(FIRST)}


def test_a_run_by_a_clock_that_was_ahead_hides_no_later_one() -> None:
    """It counted as the last one until its time had come, so no time seemed to be missed."""
    world = World()
    world.runs.record("nightly", run(FIRST + 400 * DAY))
    assert world.shown(3 * DAY) == 0
    world.runs.record("nightly", run(FIRST + 3 * DAY))
    assert world.runs.all() == {"nightly": run(FIRST + 3 * DAY)}
    assert world.shown(5 * DAY) == 2


def test_status_names_a_job_whose_times_pass() -> None:
    world = World()
    assert [one.last for one in world.status().jobs] == [None, None]
    world.runs.record("nightly", run(FIRST))
    world.clock.at = FIRST + DAY + timedelta(hours=1)
    assert world.status().problems == []
    world.clock.at = FIRST + 2 * DAY
    [problem] = world.status().problems
    assert problem.startswith("job nightly: 2 times of its cron have passed since its last whole run began, at 2026-03")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"jobs":{"a":{}},"v":1}', encode({}).replace(b'"v":1', b'"v":2')])
def test_malformed_records(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not runs of compaction jobs"):
        decode(data)
