"""The table of how fast a topic is copied beside MirrorMaker 2."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from bench.child import ROOT
from bench.mm2_speed import BEGIN, END, PAGE, Copied, table, with_table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def copied(records: int, seconds: float, cpu: float) -> Copied:
    return Copied(records=records, seconds=seconds, cpu_seconds=cpu, peak_rss_mib=1000 / 1.048576)


def test_start_up_is_no_part_of_the_steady_state() -> None:
    """4 s of start-up, 10 for each million: a start-up that counted would make 26 of them."""
    text = table({"ours": (copied(250_000, 1, 6.5), copied(1_000_000, 4, 14))}, at=NOON, commit="abc")
    assert text.splitlines()[-1] == "| ours | 1,000,000 | 250,000 | 10.0 | 4.0 | 1000 |"
    assert "at abc, 2026-01-01 12:00 UTC" in text


def test_only_the_table_of_the_page_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="to write between"):
        with_table("no marks", "new")


def test_the_page_has_the_marks() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, "new") != page


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.real_s3
def test_a_small_run() -> None:
    command = [sys.executable, "-m", "bench.mm2_speed", "--dry", "--records", "4800"]
    before = PAGE.read_bytes()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split(" | ") for line in done.stdout.splitlines() if "4,800" in line]
    assert [row[0] for row in rows] == ["| egress and ingress, exactly once", "| MirrorMaker 2, at least once"]
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)
    assert PAGE.read_bytes() == before
