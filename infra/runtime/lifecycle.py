"""Clock, stop and deadlines: the only module that reads a clock or waits."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol, Self


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time, UTC and aware. Read once per loop turn, in the shell only."""


class SystemClock:
    """UTC at the start, plus the monotonic time since then: a step of the system's clock moves no deadline."""

    def __init__(self) -> None:
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._started_at + timedelta(seconds=time.monotonic() - self._started)


class Stop:
    """Set once, by a signal or a failure; every wait also waits on it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: timedelta) -> bool:
        """True as soon as it is set, False after `timeout`."""
        return self._event.wait(max(timeout.total_seconds(), 0))


class Closing(ABC):
    """Base of classes with `close`: as a context manager, it is called at the end of the block."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time budget shared by several steps. Uses the monotonic clock."""

    budget: timedelta
    _started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> timedelta:
        """Never negative."""
        return max(self.budget - timedelta(seconds=time.monotonic() - self._started), timedelta())

    @property
    def expired(self) -> bool:
        return self.left == timedelta()
