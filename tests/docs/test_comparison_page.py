"""docs/comparison.md has a source for each cell, and what it says of us is what the pages that it links to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, anchors, cells, read

PAGE = ROOT / "docs" / "comparison.md"
REFERENCE = re.compile(r"\[(?P<name>[a-z])\](?!\()")
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")


def tables(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Number of the line, and the cells of a row behind its name; heads are left out."""
    lines = read(page).splitlines()
    for number, line in enumerate(lines, start=1):
        is_head = number < len(lines) and lines[number].startswith("|-")
        if line.startswith("|") and not line.startswith("|-") and not is_head:
            yield number, list(cells(line)[1:])


def without_source(page: Path) -> list[str]:
    text = read(page)
    defined = set(re.findall(r"^\[([a-z])\]: https://\S+$", text, re.MULTILINE))
    wrong = []
    for number, row in tables(page):
        for cell in row:
            named = {match["name"] for match in REFERENCE.finditer(cell)}
            has_file = any((ROOT / name).is_file() for name in re.findall(r"`([^`]+)`", cell))
            if named - defined or not (named or LINK.search(cell) or has_file or "unknown" in cell):
                wrong.append(f"line {number}: {cell}")
    return wrong


def test_each_cell_has_a_source_or_says_unknown() -> None:
    assert len(list(tables(PAGE))) > 25
    assert without_source(PAGE) == []


def test_its_own_links_lead_somewhere() -> None:
    for number, row in tables(PAGE):
        for target in LINK.findall(" ".join(row)):
            name, _, anchor = target.partition("#")
            page = PAGE.parent / name
            assert page.is_file(), f"line {number}: {target}"
            assert not anchor or anchor in anchors(page), f"line {number}: {target}"


def test_measured_figures_are_those_of_the_pages() -> None:
    """Seconds of configs and ACLs, records read again, and records a second."""
    beside, bench = read(ROOT / "docs" / "mm2-comparison.md"), read(ROOT / "docs" / "bench.md")
    rows = {
        match[1]: (match[2], match[3])
        for match in re.finditer(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", beside, re.MULTILINE)
    }
    page = read(PAGE)
    seconds = [[f"{float(one.split()[0]):.0f}" for one in rows[f"a config is {how}"]] for how in ("set", "unset")]
    ours, theirs = zip(*seconds, strict=True)
    assert f"set and unset, in {' and '.join(ours)} s" in page
    assert f"set and unset, in {' and '.join(theirs)} s" in page
    revoked = rows["READ is revoked, another ACL stays"]
    assert f"follows, in {float(revoked[0].split()[0]):.0f} s" in page
    assert revoked[1] == "never"
    again = re.search(r"^\| 1,000 \| 0 \| ([\d,]+) \|$", beside, re.MULTILINE)
    assert again is not None
    assert f"of a group 1,000 behind {again[1]} are read again" in page
    speed = re.search(r"^\| egress \| 1 kB JSON, key, 2 headers \| ([\d,]+) ", bench, re.MULTILINE)
    assert speed is not None
    assert f"{speed[1]} of 1 kB ([measured](bench.md))" in page


@pytest.mark.parametrize("cell", ["yes", "yes ([z])"])
def test_a_cell_without_a_source_is_found(cell: str, tmp_path: Path) -> None:
    page = tmp_path / "comparison.md"
    page.write_text(f"| | here | there |\n|---|---|---|\n| row | unknown | {cell} |\n\n[k]: https://example.com\n")
    assert without_source(page) == [f"line 3: {cell}"]
