"""The table of what groups read again beside MirrorMaker 2, without running either program."""

from __future__ import annotations

from datetime import UTC, datetime

from bench.behaviour import PAGE
from bench.offsets import BEGIN, END, LAGS, table, with_table

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_only_its_table_is_replaced() -> None:
    page = PAGE.read_text(encoding="utf-8")
    text = table(dict.fromkeys(LAGS, "0"), dict.fromkeys(LAGS, "77"), at=AT, commit="abc")
    written = with_table(page, text)
    assert "| 10,000 | 0 | 77 |" in written
    assert written.partition(BEGIN)[0] == page.partition(BEGIN)[0]
    assert written.partition(END)[2] == page.partition(END)[2]
    assert with_table(written, text) == written
