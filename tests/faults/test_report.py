"""The counts of the table: planted losses, copies, swaps and changes are counted as such."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.faults import report
from tests.faults.report import Differences, append, differences
from tests.faults.rig import FRESH_SECONDS, Tally, Underway
from tests.faults.soak import Outcome
from tests.processes.judge import Content

if TYPE_CHECKING:
    from pathlib import Path


def record(number: int) -> Content:
    return Content(b"k", b"%d" % number, (), (1, number))


SOURCE = [record(n) for n in range(10)]


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (SOURCE, Differences()),
        (SOURCE[:4] + SOURCE[5:], Differences(lost=1)),
        ([*SOURCE, SOURCE[3], SOURCE[3]], Differences(duplicated=2)),
        ([*SOURCE[:4], SOURCE[5], SOURCE[4], *SOURCE[6:]], Differences(reordered=1)),
        ([*SOURCE[:4], record(99), *SOURCE[5:]], Differences(lost=1, foreign=1)),
        (SOURCE[:6] + SOURCE[3:], Differences(duplicated=3)),
    ],
)
def test_differences(target: list[Content], found: Differences) -> None:
    assert differences(SOURCE, target) == found


def test_equal_records_are_counted_not_ordered() -> None:
    assert differences([record(1)] * 3 + [record(2)], [record(1)] * 2 + [record(2)]) == Differences(lost=1)


def test_half_of_the_faults_must_hit_something() -> None:
    tally = Tally()
    assert not tally.honest, "nothing was done"
    tally.count("a", in_flight=True)
    tally.count("a", in_flight=False)
    assert tally.honest
    tally.count("b", in_flight=False)
    assert not tally.honest
    assert tally.faults == Counter(a=2, b=1)


@pytest.mark.parametrize(
    ("asked", "in_flight"),
    [
        ([], False),
        ([(9.9, 3)], True),
        ([(10.0, 3)], True),
        ([(9.9, 0)], False),
        ([(9.9, -3)], False),  # last words count as delivered alone
        ([(9.0, 3), (9.9, 0)], False),
        ([(9.0, 0), (9.9, 3)], True),
        ([(9.9, 0), (10.1, 3)], False),  # they wait for the process that failed
        ([(10.1, 3)], False),
        ([(10.0 - FRESH_SECONDS - 0.1, 3)], False),
    ],
)
def test_what_was_on_its_way_is_what_was_asked_last_before_the_fault(
    asked: list[tuple[float, int]], in_flight: bool
) -> None:
    underway = Underway()
    for at, records in asked:
        underway.note(at, records)
    assert underway.before(10.0) is in_flight


def test_a_row_is_added_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "faults.md"
    table.write_text("# Faults\n\n| a |\n|---|\n| old |\n\nmore\n", encoding="utf-8")
    monkeypatch.setattr(report, "TABLE", table)
    outcome = Outcome(schedules=2, failures={4: "a reason"}, differences=Differences(lost=7))
    outcome.tally.count("kill before put-segment", in_flight=True)
    append("make soak SEEDS=3-4", outcome, judged="exactly once")
    lines = table.read_text(encoding="utf-8").splitlines()
    assert lines[:5] == ["# Faults", "", "| a |", "|---|", "| old |"]
    assert "`make soak SEEDS=3-4`" in lines[5]
    assert "| exactly once | 2 | 1 | 7 | 0 | 0 | 0 |" in lines[5]
    assert lines[-1].endswith("kill before put-segment 1; failed: 4.")
