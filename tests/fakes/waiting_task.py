"""A task that only waits, for processes that need a service to run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from formats.errors import ReplicatorError
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop, SystemClock
from infra.runtime.threaded_service import ThreadedService
from infra.runtime.workers.attempt import WatchedService


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A ServiceBuilder: each task writes its process id into a folder, and leaves a mark when it has drained."""

    folder: Path
    failure: str = ""
    no_metrics: str = ""  # why there are none

    def instance(self, task: int) -> str:
        return f"member-{task}"

    def set_up(self, task: int) -> None: ...

    def build(self, task: int, _settings: bytes | None) -> WatchedService:
        if self.failure:
            raise ReplicatorError(self.failure)
        stop, health = Stop(), Health()

        def work() -> None:
            (self.folder / f"{task}.pid").write_text(str(os.getpid()))
            health.started(True)
            while not stop.wait(timedelta(milliseconds=20)):
                health.turn(SystemClock().now())
            (self.folder / f"{task}.drained").touch()

        service = ThreadedService({"work": work}, stop, ExitStack(), timedelta(seconds=5))

        def metrics_text(_accept: str) -> str:
            if self.no_metrics:
                raise ValueError(self.no_metrics)
            return f"of {task}"

        return WatchedService(service=service, health=health, metrics_text=metrics_text)

    def pid(self, task: int) -> int:
        try:
            return int((self.folder / f"{task}.pid").read_text() or 0)
        except FileNotFoundError:
            return 0
