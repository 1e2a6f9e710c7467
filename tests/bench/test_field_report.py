"""Runs beside an earlier commit are compared by ratio, never by a bare time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.child import ROOT, Measurement
from bench.field_report import (
    WORSE,
    FieldRow,
    FieldRun,
    SizePair,
    not_compared,
    page,
    regressions,
    targets_of_floor,
    verdicts,
)

HERE, EARLIER = "this commit", "548321f"


def result(seconds: float, cpu: float) -> Measurement:
    return Measurement(
        seconds=seconds, cpu_seconds=cpu, whole_cpu_seconds=cpu, peak_rss_mib=100.0, other={"requests": {"PUT": 3}}
    )


def pair(seconds: float, cpu: float, start_up: float = 1.0) -> SizePair:
    """`cpu`: of the records; a quarter of it in the small run."""
    return SizePair(small=result(seconds / 4, start_up + cpu / 4), large=result(seconds, start_up + cpu))


def row(here: SizePair, earlier: SizePair, floor: float = 2.0) -> FieldRow:
    return FieldRow(
        name="egress",
        data="1 kB JSON, key, 2 headers",
        partitions=6,
        server="versitygw",
        small=250_000,
        records=1_000_000,
        raw_bytes=10**9,
        floor="bare consume",
        pairs={HERE: [here], EARLIER: [earlier]},
        floors=[result(floor, floor)],
        stored={HERE: 90, EARLIER: 100},
    )


def run(*rows: FieldRow) -> FieldRun:
    return FieldRun(
        commit="0123456789abcdef",
        is_clean=True,
        when="2026-01-01 00:00",
        minutes=1.0,
        machine="2 cores",
        software="Python",
        command="python -m bench.field",
        contenders=[HERE, EARLIER],
        rows=list(rows),
    )


def test_start_up_is_no_part_of_the_steady_state() -> None:
    measured = row(pair(8, 8, start_up=1.5), pair(16, 16, start_up=0.5))
    assert measured.marginal(HERE) == [8.0]
    assert measured.start_up(HERE) == pytest.approx(1.5)
    ratios = measured.ratios([HERE, EARLIER])
    assert ratios["rate ÷ 548321f"] == 2.0
    assert ratios["548321f ÷ CPU"] == 2.0
    assert ratios["of the floor"] == 0.25
    assert ratios["548321f ÷ stored"] == pytest.approx(100 / 90)


@given(st.floats(0.1, 10))
def test_a_slower_machine_is_no_regression(factor: float) -> None:
    before = run(row(pair(8, 8), pair(16, 16)))
    slower = run(row(pair(8 * factor, 8 * factor), pair(16 * factor, 16 * factor), floor=2.0 * factor))
    assert regressions(before, slower) == []


def test_a_worse_ratio_is_a_regression_although_all_times_are_better() -> None:
    before = run(row(pair(8, 8), pair(16, 16)))
    quicker = run(row(pair(4, 4), pair(8 / WORSE / 1.01, 8 / WORSE / 1.01), floor=1.0))
    assert [line.partition(":")[0] for line in regressions(before, quicker)] == ["worse", "worse"]
    assert any("rate ÷ 548321f was 2.00, is 1.72" in line for line in regressions(before, quicker))
    assert any("548321f ÷ CPU" in line for line in regressions(before, quicker))


def test_rows_that_only_one_run_has_are_not_compared() -> None:
    before = run(row(pair(8, 8), pair(16, 16)))
    other = run(replace(row(pair(80, 80), pair(16, 16)), server="moto"))
    assert regressions(before, other) == []
    (line,) = not_compared(before, other)
    assert line.startswith(f"not compared: {before.rows[0].key}: ")
    assert line.endswith("not measured now")


def test_rows_of_fewer_records_are_not_compared() -> None:
    before = run(row(pair(8, 8), pair(16, 16)))
    few = run(replace(row(pair(80, 80), pair(16, 16)), records=10_000))
    assert regressions(before, few) == []
    assert [line.partition(":")[0] for line in not_compared(before, few)] == ["not compared"]
    assert not_compared(before, before) == []


def test_a_missed_target_is_marked() -> None:
    found = run(row(pair(8, 8), pair(15, 15)))
    verdict = {what.rpartition(": ")[2]: met for what, _, _, met in verdicts(found)}
    assert verdict == {"rate": False, "CPU per record": False, "bytes stored": True, "peak RSS, MB": True}
    text = page(found)
    assert "2 of 4 targets are met. Missed, with the target:" in text
    assert text.count("**MISS**") == 2


def test_restore_has_a_target_relative_to_the_floor_of_the_same_run() -> None:
    restore = replace(
        row(pair(8, 8), pair(16, 16)), name="restore", floor="bare produce", floors=[result(4.0, 4.0)], stored={}
    )
    (found,) = [one for one in verdicts(run(restore)) if one[0].endswith("of the floor's rate")]
    assert found[1:] == (0.5, 0.75, False)


def test_a_run_survives_its_file() -> None:
    found = run(row(pair(8, 8), pair(16, 16)))
    assert FieldRun.from_json(found.as_json()) == found
    assert page(FieldRun.from_json(found.as_json())) == page(found)


def test_the_page_agrees_with_the_json() -> None:
    committed = ROOT / "docs" / "benchmarks.json"
    written = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    if not committed.exists():
        assert "Not measured yet at a clean commit." in written
        return
    found = FieldRun.from_json(committed.read_text(encoding="utf-8"))
    assert written == page(found)
    assert found.is_clean


def test_a_target_beyond_the_floor_is_shown_as_such() -> None:
    """Twice the rate of 16 s is 8 s; the floor of the run takes 10."""
    found = run(row(pair(12, 8), pair(16, 16), floor=10.0))
    assert targets_of_floor(found) == {f"{found.rows[0].key}: rate": pytest.approx(1.25)}
    assert "rate: 1.33 (2, 1.25 of the floor)" in page(found)
