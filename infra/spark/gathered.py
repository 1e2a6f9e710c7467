"""Health of all tasks as one: what `/readyz` and `/healthz` of the driver answer.

Pure. Times are sent as ages, since the clocks of two machines differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from formats.errors import MalformedEvent
from infra.runtime.health import HealthSnapshot
from infra.spark.roster import TaskState

DRIVER = "driver"  # loop of the driver itself
SPARK = "spark"  # subject of problems of the whole job
TASKS = "tasks"  # subject of tasks that no executor runs


def encode_health(health: HealthSnapshot, now: datetime) -> str:
    return json.dumps({
        "ages": {loop: (now - at).total_seconds() for loop, at in health.turns.items()},
        "started": health.is_started,
        "stopped": dict(health.stopped),
        "problems": dict(health.problems),
    })  # fmt: skip


def decode_health(text: str, now: datetime) -> HealthSnapshot:
    """Raises MalformedEvent."""
    try:
        values = json.loads(text)
        return HealthSnapshot(
            turns={str(loop): now - timedelta(seconds=float(age)) for loop, age in values["ages"].items()},
            is_started=bool(values["started"]),
            stopped=_texts(values["stopped"]),
            problems=_texts(values["problems"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise MalformedEvent(f"not the health of a task: {text[:60]!r} ({error!r})") from error


def gather(
    tasks: Sequence[TaskState], now: datetime, *, driver_turn: datetime, job_problem: str = "", spark_error: str = ""
) -> HealthSnapshot:
    """`driver_turn`: last turn of the driver's loop. `job_problem`: why no job runs; empty while one does.
    `spark_error`: Spark's last reason for a task that did not begin."""
    turns = {DRIVER: driver_turn}
    stopped: dict[str, str] = {}
    problems = {SPARK: job_problem} if job_problem else {}
    missing = [task for task in tasks if task.hello is None]
    if missing and not job_problem:
        problems[TASKS] = _waits(len(tasks) - len(missing), len(tasks), spark_error)
    for task in tasks:
        name = f"task {task.task}"
        if task.hello is None:
            if task.error:
                problems[name] = _gone(task, now)
            continue
        if task.health is None or not task.health.is_started:
            problems[name] = f"is starting on {task.hello.host}" + (f"; before: {task.error}" if task.error else "")
        if task.health is not None:
            turns |= {f"{name}: {loop}": at for loop, at in task.health.turns.items()}
            stopped |= {f"{name}: {subject}": reason for subject, reason in task.health.stopped.items()}
            problems |= {f"{name}: {subject}": what for subject, what in task.health.problems.items()}
    is_started = any(task.health is not None and task.health.is_started for task in tasks)
    return HealthSnapshot(turns=turns, is_started=is_started, stopped=stopped, problems=problems)


def _waits(working: int, wanted: int, spark_error: str) -> str:
    waits = (
        f"waits for executors: {working} of {wanted} tasks run; each takes a core: give the application more, "
        "or start it again with fewer --tasks"
    )
    return f"{waits}; the last task that did not begin: {spark_error}" if spark_error else waits


def _gone(task: TaskState, now: datetime) -> str:
    wait = timedelta() if task.next_at is None else max(task.next_at - now, timedelta())
    return f"{task.error}; its next attempt begins {f'in {wait.total_seconds():.0f} s' if wait else 'at once'}"


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in values.items()}
