"""In which order the objects of a bucket are copied."""

from __future__ import annotations

import pytest

import egress.sync_steps
from egress.sync_steps import SyncStep, by_offset


def name(start: int, *, partition: int = 0, level: int = 0) -> str:
    return f"a/t/{partition}/{level}/{start:020d}-{start + 9:020d}"


def copies(*names: str) -> list[SyncStep]:
    return [SyncStep(each, is_copy=True) for each in names]


def order(steps: list[SyncStep]) -> list[str]:
    return [step.name for step in by_offset(iter(steps))]


def test_the_segments_of_a_partition_by_offset_whatever_their_level() -> None:
    first = copies(name(40), name(50), name(20, level=1), name(30, level=1), name(0, level=2))
    other = copies(name(10, partition=1), name(0, partition=1, level=1))
    assert order([*copies("a/_control/v1/x"), *first, *other]) == [
        "a/_control/v1/x",
        *(name(0, level=2), name(20, level=1), name(30, level=1), name(40), name(50)),
        *(name(0, partition=1, level=1), name(10, partition=1)),
    ]


def test_of_the_same_offset_the_merged_one_first() -> None:
    assert order(copies(name(0), name(10), name(0, level=1))) == [name(0, level=1), name(0), name(10)]


def test_comparisons_do_not_wait() -> None:
    compared = SyncStep(name(10), is_copy=False)
    assert order([*copies(name(0)), compared, *copies(name(20))]) == [name(10), name(0), name(20)]


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress.sync_steps, "MOST_WAITING", 2)
    assert order(copies(name(20), name(30), name(0, level=1), name(10, level=1))) == [
        *(name(20), name(30)),
        *(name(0, level=1), name(10, level=1)),
    ]
