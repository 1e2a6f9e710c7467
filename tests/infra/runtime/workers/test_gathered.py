"""The health of all tasks as one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from infra.runtime.health import HealthSnapshot
from infra.runtime.workers.gathered import DRIVER, decode_health, encode_health, gather
from infra.runtime.workers.messages import Hello
from infra.runtime.workers.roster import TaskState
from infra.spark.long_job import SPARK, waits_for_executors

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELLO = Hello(job=1, task=0, attempt=0, host="worker-1", pid=1, instance="a-0")
READY = HealthSnapshot(is_started=True, turns={"egress": NOW - timedelta(seconds=3)})
RUNS = TaskState(task=0, hello=HELLO, health=READY, error="", next_at=None)
MISSING = TaskState(task=1, hello=None, health=None, error="", next_at=None)


def gathered(*tasks: TaskState, job_problem: str = "", spark_error: str = "") -> HealthSnapshot:
    missing = partial(waits_for_executors, spark_error=spark_error)
    problems = {SPARK: job_problem} if job_problem else {}
    return gather(tasks, NOW, driver_turn=NOW, missing=missing, problems=problems)


TEXTS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)


@given(st.booleans(), TEXTS, TEXTS, st.integers(0, 10**6))
def test_health_is_sent_with_ages(is_started: bool, stopped: dict[str, str], problems: dict[str, str], ms: int) -> None:
    age = timedelta(milliseconds=ms)
    health = HealthSnapshot(turns={"a": NOW - age}, is_started=is_started, stopped=stopped, problems=problems)
    there = NOW + timedelta(days=3)  # another machine's clock
    received = decode_health(encode_health(health, NOW), there)
    assert abs(received.turns["a"] - (there - age)) < timedelta(milliseconds=1)
    assert replace(received, turns=health.turns) == health


@given(st.text(max_size=60))
def test_garbage_is_refused(text: str) -> None:
    try:
        decode_health(text, NOW)
    except MalformedEvent:
        return


@pytest.mark.parametrize("text", ["{}", "[]", '{"ages": {"a": 1e400}, "started": true, "stopped": {}, "problems": {}}'])
def test_what_is_no_health_is_refused(text: str) -> None:
    with pytest.raises(MalformedEvent):
        decode_health(text, NOW)


def test_ready_when_every_task_is() -> None:
    second = replace(RUNS, task=1)
    health = gathered(RUNS, second)
    assert health.is_ready
    assert health.turns == {
        DRIVER: NOW,
        "task 0: egress": READY.turns["egress"],
        "task 1: egress": READY.turns["egress"],
    }


def test_waits_for_executors() -> None:
    health = gathered(RUNS, MISSING)
    assert not health.is_ready
    assert health.problems == {
        "tasks": "waits for executors: 1 of 2 tasks run; each takes a core: give the application more, or start it "
        "again with fewer --tasks"
    }
    assert "did not begin: no module" in gathered(RUNS, MISSING, spark_error="no module").problems["tasks"]


def test_a_failing_task_says_why_and_when_it_begins_again() -> None:
    failing = replace(MISSING, error="no such bucket", next_at=NOW + timedelta(seconds=4))
    assert gathered(RUNS, failing).problems["task 1"] == "no such bucket; its next attempt begins in 4 s"
    again = replace(RUNS, task=1, health=None, error="no such bucket")
    assert gathered(RUNS, again).problems == {"task 1": "is starting on worker-1; before: no such bucket"}


def test_what_a_service_reports_has_its_task() -> None:
    health = HealthSnapshot(is_started=True, stopped={"a/3": "parked"}, problems={"gaps": "1"})
    found = gathered(replace(RUNS, health=health))
    assert found.stopped == {"task 0: a/3": "parked"}
    assert found.problems == {"task 0: gaps": "1"}


def test_between_jobs_the_reason_is_the_jobs() -> None:
    assert gathered(MISSING, job_problem="Java ended").problems == {"spark": "Java ended"}
