"""Polls a condition of another process until it holds or a timeout expires."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL = timedelta(milliseconds=20)


def wait_until(
    check: Callable[[], bool],
    timeout: timedelta,
    *,
    stop: threading.Event | None = None,
    interval: timedelta = INTERVAL,
) -> bool:
    """True as soon as `check` is; False after `timeout`, or once `stop` is set. `check` may raise to end the wait.
    `interval`: from the end of one check to the next."""
    stop = stop or threading.Event()
    deadline = time.monotonic() + timeout.total_seconds()
    while not check():
        if time.monotonic() >= deadline or stop.wait(interval.total_seconds()):
            return False
    return True
