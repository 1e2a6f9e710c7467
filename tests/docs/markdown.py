"""Just enough Markdown: fenced blocks with their marks, headings with their anchors, links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
GENERATED = ("docs/configuration.md", "docs/metrics.md")

_FENCE = re.compile(r"^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (?P<mark>[^>]*?) -->\s*\Z")
_HEADING = re.compile(r"^#{1,6} (?P<title>.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"`(?P<code>[^`\n]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Text between fences. `mark`: the comment right before it, such as `not run: needs a cluster`."""

    page: str
    line: int
    language: str
    text: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> Sequence[Path]:
    """Every page that a reader may copy from. Decisions are of their time, and are left alone."""
    guides = [ROOT / name for name in GUIDES]
    docs = ROOT / "docs"
    return [*guides, *sorted(docs.glob("*.md")), *sorted(docs.glob("runbooks/*.md")), docs / "decisions" / "index.md"]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> Iterator[Block]:
    text = read(page)
    for match in _FENCE.finditer(text):
        mark = _MARK.search(text[: match.start()])
        yield Block(
            page=page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name,
            line=text.count("\n", 0, match.start()) + 1,
            language=match["language"],
            text=match["text"],
            mark=mark["mark"] if mark else "",
        )


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", read(page))


def code_spans(page: Path) -> Sequence[str]:
    return [match["code"] for match in _CODE.finditer(prose(page))]


def cells(line: str) -> Sequence[str]:
    """Of one line of a table; empty ones, too."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def links(page: Path) -> Sequence[str]:
    return [match["target"] for match in _LINK.finditer(prose(page))]


def anchors(page: Path) -> frozenset[str]:
    """Of the headings, as GitHub and MkDocs make them."""
    found = set()
    for match in _HEADING.finditer(prose(page)):
        title = re.sub(r"[^\w\s-]", "", match["title"].replace("`", "").lower()).strip()
        found.add(re.sub(r"\s", "-", title))
    return frozenset(found)
