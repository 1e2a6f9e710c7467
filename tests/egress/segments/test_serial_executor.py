"""The jobs of one segment, one after another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from egress.segments.open_segment import SerialExecutor


def test_jobs_behind_one_that_fails_are_run() -> None:
    """Each has an outcome of its own, which is waited for."""
    ran: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    with ThreadPoolExecutor(2) as pool:
        jobs = SerialExecutor(pool)
        for first in (0, 4):  # the second time, it was idle after a failure
            done = threading.Event()
            jobs.submit(fail)
            for number in range(first, first + 4):
                jobs.submit(partial(ran.append, number))
            jobs.submit(done.set)
            jobs.submit(fail)
            assert done.wait(20)
    assert ran == list(range(8))
