"""Links of the pages outside of docs/: targets and anchors exist. Those inside are MkDocs' part of `make lint`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import GUIDES, ROOT, anchors, links


def dead(page: Path) -> list[str]:
    found = []
    for target in links(page):
        if target.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = page if not name else page.parent / name
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            found.append(target)
    return found


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_somewhere(name: str) -> None:
    assert dead(ROOT / name) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n[a](page.md#a-page) [b](none.md) [c](#none) [d](page.md#none)\n", encoding="utf-8")
    assert dead(page) == ["none.md", "#none", "page.md#none"]
