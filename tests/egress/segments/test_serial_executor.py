"""The jobs of one segment, one after another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from egress.segments.open_segment import SerialExecutor


def test_jobs_behind_one_that_fails_are_run() -> None:
    """Each has an outcome of its own, which is waited for."""
    ran: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    with ThreadPoolExecutor(2) as pool:
        jobs = SerialExecutor(pool)
        jobs.submit(fail)
        for number in range(3):
            jobs.submit(lambda number=number: ran.append(number))  # type: ignore[misc]
        jobs.submit(fail)
        done = pool.submit(lambda: None)
        while len(ran) < 3:
            done.result()
            done = pool.submit(lambda: None)
        jobs.submit(lambda: ran.append(3))
        while len(ran) < 4:
            done = pool.submit(lambda: None)
            done.result()
    assert ran == [0, 1, 2, 3]
