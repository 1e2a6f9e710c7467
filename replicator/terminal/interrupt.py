"""Ctrl-C in a command that ends by itself: exits within a second with one sentence and code 130, whatever it waits for.

    SIGINT ──> main thread: KeyboardInterrupt, once it runs Python code again; resources are closed
           └─> pipe ──> watcher: prints the sentence, and exits if the main thread does not end in time

A library call that blocks in C (for a broker, for Java) keeps the main thread from handling the signal; the
interpreter's C handler writes to the pipe at once.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import typer

from infra.runtime.process_exit import exit_immediately
from replicator.terminal.output import INTERRUPTED, complain

P = ParamSpec("P")
T = TypeVar("T")

GRACE_SECONDS = 0.5
NOTHING_CHANGED = "nothing was changed"
WRITES_ONCE = "what it had written stands; the same command again changes nothing else"


def interruptible(what_stays: str = NOTHING_CHANGED) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a command with `ended_by_interrupt`."""

    def decorate(command: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(command)
        def run(*arguments: P.args, **options: P.kwargs) -> T:
            with ended_by_interrupt(what_stays):
                return command(*arguments, **options)

        return run

    return decorate


@contextmanager
def ended_by_interrupt(what_stays: str = NOTHING_CHANGED) -> Iterator[None]:
    """End the body on SIGINT, and the process if that takes too long. `what_stays` is part of the sentence.

    Does nothing if SIGINT is ignored, as in the background of a shell script: the parent process chose that.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    watcher = _Watcher(what_stays)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=watcher.watch, args=(reading,), name="interrupt", daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        watcher.print_once()
        raise typer.Exit(INTERRUPTED) from None
    finally:
        watcher.ended.set()
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, handler)
        os.close(writing)
        thread.join()
        os.close(reading)
        logging.disable(logging.NOTSET)


class _Watcher:
    def __init__(self, what_stays: str) -> None:
        self._sentence = f"interrupted; {what_stays}"
        self._lock, self._is_printed = threading.Lock(), False
        self.ended = threading.Event()

    def print_once(self) -> None:
        """Print the sentence once and disable logging: a library that is interrupted in a call logs tracebacks."""
        with self._lock:
            if not self._is_printed:
                self._is_printed = True
                logging.disable(logging.CRITICAL)
                complain(self._sentence)

    def watch(self, reading: int) -> None:
        """Read signal numbers until the other end of the pipe is closed."""
        while numbers := os.read(reading, 64):
            if signal.SIGINT in numbers:
                self.print_once()
                if not self.ended.wait(GRACE_SECONDS):
                    exit_immediately(INTERRUPTED)
