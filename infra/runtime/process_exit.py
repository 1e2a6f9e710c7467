"""Ends the process without unwinding the stack, after running the registered clean-ups."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

_hooks: list[Callable[[], None]] = []
"""Registered clean-ups, the latest last."""


@contextlib.contextmanager
def on_exit(hook: Callable[[], None]) -> Iterator[None]:
    """Within the block, `exit_immediately` calls `hook`, on any thread. It must be quick: it ends another process or
    removes a file."""
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)


def exit_process(code: int) -> NoReturn:
    """End the process with `code` when all work is done. A pool thread that hangs in a request, even a daemon, would
    keep the interpreter from ending, so remaining threads are not waited for."""
    if threading.active_count() > 1:
        logging.shutdown()
        exit_immediately(code)
    sys.exit(code)


def exit_immediately(code: int) -> NoReturn:
    """End the process immediately; callable from any thread and from a signal handler."""
    for hook in reversed(_hooks):
        with contextlib.suppress(Exception):
            hook()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a write may be in progress
            stream.flush()
    os._exit(code)
