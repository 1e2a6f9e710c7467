"""Ending the process without unwinding: what would be left behind then is removed here."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

_acts: list[Callable[[], None]] = []
"""Of what lives now, the latest last."""


@contextlib.contextmanager
def when_leaving(act: Callable[[], None]) -> Iterator[None]:
    """While the body runs, `leave_at_once` calls `act`, on any thread: it is quick, and ends another process or removes
    a file."""
    _acts.append(act)
    try:
        yield
    finally:
        _acts.remove(act)


def leave(code: int) -> NoReturn:
    """End the process with `code`, once everything is done. A thread of a pool that hangs in a request would keep the
    interpreter from ending, a daemon too, so it is not waited for."""
    if threading.active_count() > 1:
        logging.shutdown()
        leave_at_once(code)
    sys.exit(code)


def leave_at_once(code: int) -> NoReturn:
    """End the process in the middle of whatever it does; from any thread, or a signal handler."""
    for act in reversed(_acts):
        with contextlib.suppress(Exception):
            act()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be in the middle of a write
            stream.flush()
    os._exit(code)
