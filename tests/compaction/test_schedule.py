"""When jobs run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from compaction.schedule import Schedule, next_run
from formats.errors import ConfigError
from replicator.config.load import from_mapping
from tests.compaction.archive import job

NOW = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "timezone", "wanted"),
    [
        ("0 1 * * *", "UTC", "2026-03-29T01:00:00"),
        ("0 0 1 * * *", "UTC", "2026-03-29T01:00:00"),  # the ancestor's six fields, seconds first
        ("30 0 1 * * *", "UTC", "2026-03-29T01:00:30"),
        ("0 1 * * *", "America/New_York", "2026-03-29T05:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:30:00"),  # 02:30 does not exist that night
        ("0 1 1 * *", "UTC", "2026-04-01T01:00:00"),
    ],
)
def test_next_run(cron: str, timezone: str, wanted: str) -> None:
    found = next_run(job(cron=cron, timezone=timezone), NOW)
    assert found is not None
    assert abs(found - at(wanted)) <= timedelta(minutes=30 if timezone == "Europe/Berlin" else 0)


def test_missed_runs_are_one() -> None:
    schedule = Schedule([job(name="a", cron="0 * * * *")], NOW)
    assert schedule.take(NOW) is None
    much_later = NOW + timedelta(hours=7, minutes=20)
    assert schedule.take(much_later) is not None
    assert schedule.take(much_later) is None
    assert schedule.upcoming[0].at == NOW + timedelta(hours=8)


def test_the_job_that_waits_longest_is_first() -> None:
    jobs = [job(name="late", cron="30 12 * * *"), job(name="early", cron="15 12 * * *"), job(name="never")]
    schedule = Schedule(jobs, NOW)
    assert [due.job.name for due in schedule.upcoming] == ["early", "late"]
    later = NOW + timedelta(hours=1)
    taken = [schedule.take(later) for _ in range(3)]
    assert [t and t.name for t in taken] == ["early", "late", None]


def test_jitter_is_a_part_of_its_span() -> None:
    nightly = job(name="n", cron="0 13 * * *", jitter=timedelta(minutes=10))
    assert Schedule([nightly], NOW, {"n": 0.5}).upcoming[0].at == NOW + timedelta(hours=1, minutes=5)


def test_a_file_without_a_cron_names_both_ways() -> None:
    with pytest.raises(ConfigError, match=r"cron.*--once"):
        Schedule([job()], NOW)


@pytest.mark.parametrize(
    ("cron", "wanted"),
    [
        ("61 1 * * *", "is no cron expression"),
        ("0 25 * * *", "is no cron expression"),
        ("0 0 32 * *", "is no cron expression"),
        ("a b c d e", "is no cron expression"),
        ("0 0 31 2 *", "never comes: no month that it names has such a day"),
        ("0 0 0 30 2 *", "never comes"),
        ("0 1 * *", "must be five fields"),
    ],
)
def test_an_expression_by_which_no_job_can_run_is_refused_with_its_file(cron: str, wanted: str) -> None:
    tables = {"region": "a", "s3": {"bucket": "b"}, "compaction": {"jobs": [{"name": "a", "cron": cron}]}}
    with pytest.raises(ConfigError) as caught:
        from_mapping(tables, source="test")
    [problem] = caught.value.problems
    assert problem.startswith("compaction.jobs[0].cron: ")
    assert wanted in problem


def test_a_day_of_leap_years_comes() -> None:
    assert next_run(job(cron="0 0 29 2 *"), NOW) is not None


def test_a_postponed_job_is_due_again() -> None:
    schedule = Schedule([job(name="n", cron="0 13 * * *")], NOW)
    due = NOW + timedelta(hours=1)
    taken = schedule.take(due)
    assert taken is not None
    schedule.postpone(taken, due + timedelta(minutes=1))
    assert schedule.take(due) is None
    assert schedule.take(due + timedelta(minutes=1)) == taken
    assert schedule.upcoming[0].at == NOW + timedelta(days=1, hours=1)
