"""Facts that cannot be read, or not in time, are `Unread`, and nothing waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from formats.errors import StoreUnavailable
from infra.runtime.lifecycle import Deadline, Stop
from replicator.doctor.facts import NotRead, Unread, known
from replicator.doctor.reading import Questions, attempt


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def fails() -> str:
    raise StoreUnavailable("planned")


def test_an_error_is_a_reason_and_a_bug_is_a_bug() -> None:
    assert attempt(lambda: 5) == 5
    assert attempt(fails) == Unread("planned")
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 // 0)


def test_what_takes_too_long_is_not_waited_for(pool: ThreadPoolExecutor) -> None:
    stop, questions = Stop(), Questions(pool, Deadline(timedelta(milliseconds=50)))
    late = questions.ask(lambda: stop.wait(timedelta(seconds=60)))
    soon = questions.ask(lambda: 5)
    try:
        assert soon.answer() == 5
        assert late.answer() == Unread("there was no answer within 0.05 s")
        assert soon.answer() == 5, "what is there is there"
    finally:
        stop.set()


def test_a_fact_that_is_unread_cannot_be_used() -> None:
    assert known(0) == 0
    with pytest.raises(NotRead, match="planned"):
        known(attempt(fails))
