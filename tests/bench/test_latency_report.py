"""The table of latency and cost: what is missed is marked, and the price is that of the requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.arrivals import spread
from bench.child import ROOT
from bench.deployment import MONTH_SECONDS
from bench.latency_report import LatencyRow, LatencyRun, page_with, section, table
from bench.prices import STANDARD, prices_of

ROW = LatencyRow(
    age="1s",
    seconds=600.0,
    per_second=5_000,
    partitions=50,
    arrived=3_225_000,
    is_whole=True,
    ages={"p50": 0.8, "p90": 1.2, "p99": 1.6, "p99.9": 1.9, "max": 2.0, "count": 3_000_000},
    segments=30_000,
    cpu={"egress": 90.0, "ingress": 84.0, "versitygw": 60.0},
    peak_rss_mib={"egress": 200.0, "ingress": 220.0},
    requests={"PUT": 30_000, "LIST": 100, "GET": 30_000, "DELETE": 7},
    queue_requests=12_000,
    queue_delay={"p50": 0.001, "p99": 0.01},
    notification_delay={"p50": 0.002, "p99": 0.02},
    stages={"close": 1.05, "put": 0.03},
    bare={"encode": 1.0, "put": 2.5, "get": 2.0, "decode": 0.7},
)
RUN = LatencyRun(
    commit="0123456789abcdef",
    is_clean=True,
    when="2026-01-01 00:00",
    machine="2 cores",
    software="Python",
    server="versitygw",
    rows=[ROW],
)


def test_what_is_met_and_what_is_missed() -> None:
    assert "| 0.80 (≤ 1) | 1.20 | 1.60 (≤ 2) | 2.00 | 50 | 3.0 (≤ 3) | 2.8 (≤ 3) |" in table(RUN)[-1]
    slow = replace(ROW, ages={**ROW.ages, "p50": 1.01, "p99": 2.5}, cpu={**ROW.cpu, "egress": 150.0})
    assert (
        "| 1.01 **MISS** (≤ 1) | 1.20 | 2.50 **MISS** (≤ 2) | 2.00 | 50 | 5.0 **MISS** (≤ 3) |"
        in table(replace(RUN, rows=[slow]))[-1]
    )


def test_each_row_has_its_own_load() -> None:
    few = replace(ROW, age="200ms", per_second=1_000, partitions=10, seconds=300.0)
    text = section(replace(RUN, rows=[few, ROW]))
    assert "| 200ms | 1,000 | 10 |" in text
    assert "| 1s | 5,000 | 50 |" in text
    assert "300 to 600 seconds of each row" in text
    assert (
        "\nCommit 0123456789, 2026-01-01 00:00 UTC, 2 cores; versitygw. Records of 1 kB, 600 seconds of each row:"
        in section(RUN)
    )


def test_the_price_is_that_of_the_requests_and_of_one_replicated_put_each() -> None:
    prices = prices_of("us-east-1", {})
    every_second = (
        (30_000 + 100 + 30_000) * prices.of("put", STANDARD)
        + 30_000 * prices.of("get", STANDARD)
        + 12_000 * prices.of("queue")
    )
    assert ROW.dollars_a_month(prices) == pytest.approx(every_second / 600 * MONTH_SECONDS)


def test_the_floor_of_a_segment_stands_beside_what_it_took() -> None:
    assert "to write 3.5 (encode 1.0, put 2.5), to read 2.7 (get 2.0, decode 0.7)" in section(RUN)


def test_damage_is_reported() -> None:
    assert "Every record arrived once" in section(RUN)
    assert "of 1s did NOT all arrive" in section(replace(RUN, rows=[replace(ROW, is_whole=False)]))


def test_percentiles() -> None:
    assert spread([]) == {}
    found = spread(list(range(1000, 0, -1)))
    assert (found["p50"], found["p99"], found["max"], found["count"]) == (0.501, 0.991, 1.0, 1000)


def test_a_run_survives_its_file() -> None:
    assert LatencyRun.from_json(RUN.as_json()) == RUN


def test_the_page_agrees_with_the_json() -> None:
    file = ROOT / "docs" / "latency.json"
    page = (ROOT / "docs" / "latency.md").read_text(encoding="utf-8")
    if file.exists():
        assert page_with(page, LatencyRun.from_json(file.read_text(encoding="utf-8"))) == page
    else:
        assert "\nNot measured yet at a clean commit.\n" in page


def test_the_page_has_a_place_for_the_table() -> None:
    page = (ROOT / "docs" / "latency.md").read_text(encoding="utf-8")
    assert "| 1s | 5,000 | 50 | 0.80 (≤ 1) |" in page_with(page, RUN)
