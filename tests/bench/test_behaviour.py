"""The table beside MirrorMaker 2, without running either program."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bench.behaviour import BEGIN, END, PAGE, ActionTimes, table, with_table

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_only_the_table_is_replaced() -> None:
    page = PAGE.read_text(encoding="utf-8")
    text = table([ActionTimes("a config is set", ("1.0 s", "never"))], at=AT, commit="abc")
    written = with_table(page, text)
    assert "| a config is set | 1.0 s | never |" in written
    assert written.partition(BEGIN)[0] == page.partition(BEGIN)[0]
    assert written.partition(END)[2] == page.partition(END)[2]
    assert with_table(written, text) == written


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="to write between"):
        with_table("# A page\n", "a table")
