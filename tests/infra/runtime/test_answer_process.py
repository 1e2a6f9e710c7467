"""A call in a process of its own: its answer, its errors, and a process that gives none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from infra.runtime.answer_process import NoAnswer, answer_of
from tests.infra.runtime.calls import absent, ends, mistaken, refused, squares, waits

LONG = timedelta(seconds=60)


def test_the_answer() -> None:
    assert answer_of(partial(squares, 100_000), LONG)[-1] == 99_999**2


def test_it_is_another_process() -> None:
    assert answer_of(os.getpid, LONG) != os.getpid()


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (refused, "file: 2 problem"),
        (absent, "nowhere"),
        (mistaken, "exit code 1; its output says why"),
        (ends, "exit code 3"),
    ],
)
def test_an_error_is_no_answer(work: Callable[[], object], text: str) -> None:
    with pytest.raises(NoAnswer, match=text):
        answer_of(work, LONG)


def test_a_process_without_an_answer_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer within 1 s: the process was ended"):
        answer_of(waits, timedelta(seconds=1))
    assert time.monotonic() - began < LONG.total_seconds()
