"""Parts of pages that need no broker, played: a configuration that is imported, and the files of two regions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from replicator import main
from tests.docs.markdown import ROOT, blocks
from tests.docs.runbooks import Book

DOCS = ROOT / "docs"
FILE = "file: "


def saved(page: Path, folder: Path) -> Mapping[str, str]:
    """What a reader of the page saves, in the folder."""
    found = {block.mark.removeprefix(FILE): block.text for block in blocks(page) if block.mark.startswith(FILE)}
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return found


def test_mirrormakers_file_becomes_ours(tmp_path: Path) -> None:
    page = DOCS / "migrate-mirrormaker.md"
    assert "mm2.properties" in saved(page, tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    book = Book(page=page, folder=tmp_path, environment={**os.environ, "PATH": path})
    book.play("1. The configuration")
    written = (tmp_path / "eu-west-1.toml").read_text(encoding="utf-8")
    assert "sync = true" in written
    assert "# ignored: tasks.max = 4" in written


@pytest.mark.parametrize("page", ["deploy-aws.md", "migrate-ancestor.md"])
def test_files_of_two_regions_agree(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [name for name in saved(DOCS / page, tmp_path) if name.endswith(".toml")]
    assert len(files) == 2
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main.main(["config", "check", *files])
    printed = capsys.readouterr().out
    assert (caught.value.code, "2 files: they do not contradict each other" in printed) == (0, True), printed
