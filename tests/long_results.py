"""A pytest plugin of `make test-long`: writes down in docs/test-long.md what each file's tests came to, and at which
commit. A run of some files (`pytest -p tests.long_results -m long FILE`) changes their rows only. A run with many
examples, or without compiled code (`REPLICATOR_NATIVE=off`), has rows of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.kafka.client.librdkafka import switched_off

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "test-long.md"
BEGIN, END = "<!-- written by tests/long_results.py -->", "<!-- end -->"
HEAD = "| tests | result | time | day | commit |\n|---|---|---|---|---|\n"
ROW = re.compile(r"^\| `([^`]+)` \|.*\|$", re.MULTILINE)


@dataclass(slots=True)
class FileResult:
    """`outcomes` count tests: "passed", "failed", "skipped"."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, outcome: str, when: str, seconds: float) -> None:
        self.seconds += seconds
        if when == "call" or outcome != "passed":
            self.outcomes[outcome] += 1

    def row(self, name: str, day: str, commit: str) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"| `{name}` | {outcomes} | {self.seconds:.0f} s | {day} | {commit} |"


def with_rows(page: str, rows: Iterable[str]) -> str:
    """`page` with these rows in the place of those of the same files. Raises ValueError without the marks."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    known = {found.group(1): found.group() for found in ROW.finditer(page[begin:end])}
    new = {found.group(1): row for row in rows if (found := ROW.match(row))}
    table = "\n".join(row for _, row in sorted((known | new).items()))
    return f"{page[:begin]}\n{HEAD}{table}\n{page[end:]}"


def variant() -> str:
    """What a row's name ends with."""
    examples = " (many examples)" if os.environ.get("REPLICATOR_TEST_LONG") else ""
    return examples + (" (without compiled code)" if switched_off() else "")


_found: dict[str, FileResult] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # the process that started the workers has all of them
        return
    name = report.nodeid.partition("::")[0] + variant()
    _found.setdefault(name, FileResult()).add(report.outcome, report.when or "", report.duration)


def pytest_sessionfinish() -> None:
    if _found:
        write(_found)


def write(found: Mapping[str, FileResult]) -> None:
    day, commit = datetime.now(UTC).date().isoformat(), _commit()
    rows = [result.row(name, day, commit) for name, result in found.items() if result.outcomes]
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


def _commit() -> str:
    """Short; with a plus where the tree is not the commit's. Results that are written down are no change."""
    commit = _git("rev-parse", "--short", "HEAD")
    return commit + ("+" if _git("status", "--porcelain", "--", ".", ":!docs") else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
