"""Health of all tasks as one: what `/readyz` and `/healthz` of the driver answer.

Pure. Times are sent as ages, since the clocks of two machines differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from formats.errors import MalformedEvent
from infra.runtime.health import HealthSnapshot
from infra.runtime.workers.roster import TaskState

DRIVER = "driver"  # loop of the driver itself
TASKS = "tasks"  # subject of tasks that do not run


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
    tasks: Sequence[TaskState],
    now: datetime,
    *,
    driver_turn: datetime,
    missing: Callable[[int, int], str],
    problems: Mapping[str, str] | None = None,
) -> HealthSnapshot:
    """`driver_turn`: last turn of the driver's loop. `missing`: what to say of fewer tasks that run (first argument)
    than are wanted (second). `problems`: by subject, why no task can run; empty while they can."""
    turns = {DRIVER: driver_turn}
    stopped: dict[str, str] = {}
    found = dict(problems or {})
    working = sum(task.hello is not None for task in tasks)
    if working < len(tasks) and not found:
        found[TASKS] = missing(working, len(tasks))
    for task in tasks:
        name = f"task {task.task}"
        if task.hello is None:
            if task.error:
                found[name] = _gone(task, now)
            continue
        if task.health is None or not task.health.is_started:
            found[name] = f"is starting on {task.hello.host}" + (f"; before: {task.error}" if task.error else "")
        if task.health is not None:
            turns |= {f"{name}: {loop}": at for loop, at in task.health.turns.items()}
            stopped |= {f"{name}: {subject}": reason for subject, reason in task.health.stopped.items()}
            found |= {f"{name}: {subject}": what for subject, what in task.health.problems.items()}
    is_started = any(task.health is not None and task.health.is_started for task in tasks)
    return HealthSnapshot(turns=turns, is_started=is_started, stopped=stopped, problems=found)


def _gone(task: TaskState, now: datetime) -> str:
    wait = timedelta() if task.next_at is None else max(task.next_at - now, timedelta())
    return f"{task.error}; its next attempt begins {f'in {wait.total_seconds():.0f} s' if wait else 'at once'}"


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in values.items()}
