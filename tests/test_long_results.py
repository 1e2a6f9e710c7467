"""The table of long runs: a run of some files leaves the rows of the others."""

from __future__ import annotations

import pytest

from infra.kafka.client.librdkafka import SWITCH
from tests.long_results import BEGIN, END, HEAD, PAGE, FileResult, variant, with_rows


def result(*outcomes: tuple[str, str, float]) -> FileResult:
    found = FileResult()
    for outcome, when, seconds in outcomes:
        found.add(outcome, when, seconds)
    return found


def test_a_run_changes_the_rows_of_its_files_only() -> None:
    before = result(("passed", "setup", 1), ("passed", "call", 2), ("passed", "teardown", 0.4))
    after = result(("failed", "setup", 1), ("passed", "call", 7), ("skipped", "setup", 0))
    page = f"# Long\n\n{BEGIN}\n{HEAD}{END}\n\nmore\n"
    first = with_rows(page, [before.row("b.py", "2026-01-01", "abc"), before.row("c.py", "2026-01-01", "abc")])
    assert first.count("| 1 passed | 3 s | 2026-01-01 | abc |") == 2
    second = with_rows(first, [after.row("b.py", "2026-01-02", "def"), after.row("a.py", "2026-01-02", "def")])
    assert second == (
        f"# Long\n\n{BEGIN}\n{HEAD}"
        "| `a.py` | 1 failed, 1 passed, 1 skipped | 8 s | 2026-01-02 | def |\n"
        "| `b.py` | 1 failed, 1 passed, 1 skipped | 8 s | 2026-01-02 | def |\n"
        "| `c.py` | 1 passed | 3 s | 2026-01-01 | abc |\n"
        f"{END}\n\nmore\n"
    )


def test_a_page_without_the_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="substring not found"):
        with_rows("# Long\n", [])


def test_the_page_has_the_marks() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_rows(page, []) == page


def test_a_run_without_compiled_code_has_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLICATOR_TEST_LONG", raising=False)
    monkeypatch.delenv(SWITCH, raising=False)
    assert variant() == ""
    monkeypatch.setenv(SWITCH, "off")
    assert variant() == " (without compiled code)"
    monkeypatch.setenv("REPLICATOR_TEST_LONG", "1")
    assert variant() == " (many examples) (without compiled code)"
