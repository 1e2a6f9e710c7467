"""Runs that do not come to their end: what the metrics and `status` show of them, also after a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from compaction.missed_runs import MissedRuns
from compaction.schedule import MOST_MISSED, OVERDUE, missed_times
from formats.errors import MalformedEvent
from infra.archive.compaction_runs import CompletedRun, CompletedRuns, decode, encode
from infra.archive.control import ControlStore
from infra.archive.job_heartbeats import HeartbeatStore
from replicator.config import CompactionSettings
from replicator.status.compaction import CompactionSources, CompactionStatus
from tests.compaction.archive import PREFIX, job
from tests.fakes.surroundings import CountedMetrics, FailingStore, HandClock

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
    def __init__(self) -> None:
        self.clock = HandClock(FIRST)
        self.objects = FailingStore(self.clock)
        self.runs = CompletedRuns(self.objects, PREFIX, "eu-1")
        self.restart()

    def restart(self) -> None:
        self.metrics = CountedMetrics()
        self.missed = MissedRuns(
            jobs=[NIGHTLY, BY_HAND],
            runs=self.runs,
            clock=self.clock,
            metrics=self.metrics,
            since=self.clock.now(),
        )

    def shown(self, after: timedelta) -> float | None:
        self.clock.at = FIRST + after
        self.missed.show()
        return self.metrics.value("compaction_missed_runs", compaction_job="nightly")

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
    world.clock.at = FIRST + 2 * DAY
    world.restart()
    assert world.shown(2 * DAY + timedelta(minutes=1)) == 2
    assert world.metrics.value("quarantined_segments", compaction_job="nightly") == 2
    ended = (FIRST + timedelta(hours=2)).timestamp()
    assert world.metrics.value("compaction_last_run_timestamp_seconds", compaction_job="nightly") == ended


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
    world.runs.record("nightly", run(FIRST, failed_plans=3))
    world.runs.record("a/b ü", run(FIRST))
    assert world.runs.all() == {"nightly": run(FIRST + DAY), "a/b ü": run(FIRST)}


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
