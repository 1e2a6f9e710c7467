"""Figures: a missed target is marked everywhere, and docs/performance.md agrees with docs/bench.json."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import report
from bench.child import ROOT, Measurement
from bench.rows import JSON_RECORDS, TARGETS, BenchRow, BenchRun, PerformanceTarget

RSS = next(target for target in TARGETS if target.row == "merge" and target.figure == "rss")


def result(*, seconds: float = 1.0, cpu: float = 1.0, rss_mb: float = 100.0, **other: object) -> Measurement:
    return Measurement(
        seconds=seconds, cpu_seconds=cpu, whole_cpu_seconds=cpu, peak_rss_mib=rss_mb / 1.048576, other=dict(other)
    )


def row(
    name: str, ours: Measurement, floor: Measurement | None = None, *, compared_by: Literal["clock", "cpu"] = "clock"
) -> BenchRow:
    given = BenchRow(
        name=name, data=JSON_RECORDS, records=1_000_000, raw_bytes=10**9, ours=[ours], compared_by=compared_by
    )
    if floor is not None:
        given = replace(given, floor="its floor", floors=[floor])
    return given


def run(*rows: BenchRow) -> BenchRun:
    return BenchRun(
        commit="0123456789abcdef" * 2,
        is_clean=True,
        when="2026-01-01 00:00",
        minutes=1.0,
        load=0.1,
        cores=2,
        machine="2 cores",
        software="Python",
        plan={"rounds": 1, "first_segments": 8, "many_partitions": 400},
        rows=rows,
        stored_ratio={},
    )


def committed() -> BenchRun:
    return BenchRun.from_json((ROOT / "docs" / "bench.json").read_text(encoding="utf-8"))


class TestWhatIsWritten:
    def test_the_page_on_performance_says_what_the_json_holds(self) -> None:
        performance = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
        assert report.with_section(performance, committed()) == performance

    def test_the_page_agrees_with_the_json(self) -> None:
        assert (ROOT / "docs" / "bench.md").read_text(encoding="utf-8") == report.page(committed())

    def test_the_json_is_read_as_it_was_written(self) -> None:
        text = (ROOT / "docs" / "bench.json").read_text(encoding="utf-8")
        assert BenchRun.from_json(text).as_json() == text

    def test_no_figure_of_speed_stands_outside_of_the_generated_part(self) -> None:
        """What the page says of speed by itself would be of another run."""
        performance = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
        before, _, rest = performance.partition(report.BEGIN)
        speed = before + rest.partition(report.END)[2]
        assert not re.findall(r"\b\d", speed), speed

    def test_the_readme_has_no_figure_of_the_benchmark(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        assert report.BEGIN not in readme
        assert not re.findall(r"\d[\d,.]* (?:records/s|MB/s|records a second)", readme)

    def test_a_page_without_marks_is_refused(self) -> None:
        with pytest.raises(ValueError, match="begin"):
            report.with_section("# Nothing", run())


class TestMisses:
    def test_301_of_300_is_a_miss(self) -> None:
        limit = RSS.limit
        assert "**MISS**" in report.judged(run(one := row("merge", result(rss_mb=limit + 0.001), result())), one, "rss")
        assert "**MISS**" not in report.judged(run(one := row("merge", result(rss_mb=limit), result())), one, "rss")

    @given(
        value=st.floats(0.001, 2000, allow_nan=False),
        target=st.sampled_from(TARGETS),
    )
    def test_the_rounded_figure_gives_the_same_verdict_as_the_exact_one(
        self, value: float, target: PerformanceTarget
    ) -> None:
        shown = float(report.exact(value, target.figure, target))
        is_met = value <= target.limit if target.at_most is not None else value >= target.limit
        assert (shown <= target.limit if target.at_most is not None else shown >= target.limit) == is_met

    def test_a_miss_is_marked_in_table_and_sentences(self) -> None:
        slow = run(row("restore", result(seconds=2), result(seconds=1)))
        for text in (report.text(slow), report.page(slow), report.section(slow)):
            assert "0.50 **MISS** (≥ 0.75)" in text
            assert f"Missed: restore ({JSON_RECORDS}), ratio." in text
        fast = run(row("restore", result(seconds=1), result(seconds=1)))
        assert "MISS" not in report.page(fast)
        assert "2 of 2 targets are met." in report.page(fast)

    def test_rows_that_were_not_measured_are_named(self) -> None:
        assert "Not measured in this run:" in report.section(run(row("merge", result(), result())))

    def test_a_ratio_by_cpu_time_compares_the_measured_parts(self) -> None:
        merge = row("merge", result(seconds=9, cpu=2), result(seconds=1, cpu=1), compared_by="cpu")
        assert merge.figure("share") == 0.5

    def test_sentences_are_computed_from_the_table(self) -> None:
        slow = run(
            row("ingress", result(seconds=10, cpu=7), result(seconds=4)),
            row("ingress, at least once", result(seconds=8), result(seconds=4)),
        )
        words = " ".join(report.sentences(slow))
        assert "Exactly-once delivery has 0.80 of the rate of at-least-once delivery" in words
        assert "0.75 of the rate of its floor is 187,500 records a second" in words
        assert "leaves 10.7 CPU-seconds per million on 2 cores" in words
        assert "the process takes 7.0" in words
