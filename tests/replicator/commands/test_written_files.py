"""A file that cannot be written is refused before hours of work, whose result would be lost with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from replicator import main
from replicator.terminal.written_file import require_writable
from replicator.verify.verify import Verification

CONFIG = """
region = "a"
[s3]
bucket = "b"
"""
OPTIONS = [("verify", "--report"), ("verify", "--state"), ("drill", "--history"), ("drill", "--metrics-file")]


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_a_folder_that_is_not_there_is_refused_at_once(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begun(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the archive is read")

    monkeypatch.setattr(Verification, "sources", begun)
    monkeypatch.setattr(Verification, "run", begun)
    config = tmp_path / "a.toml"
    config.write_text(CONFIG)
    missing = tmp_path / "absent" / "result"
    with pytest.raises(SystemExit) as ended:
        main.main([command, option, str(missing), "--config", str(config)])
    assert ended.value.code == 2
    text = " ".join(capsys.readouterr().err.split())
    assert f"{option} {missing}: cannot be written: No such file or directory" in text


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_changed(tmp_path: Path, *, replaced: bool) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.write_text("earlier")
    for path in (there, absent, None):
        require_writable("--report", path, replaced=replaced)
    assert names(tmp_path) == ["there"]
    assert there.read_text() == "earlier"


def names(folder: Path) -> Sequence[str]:
    return [path.name for path in folder.iterdir()]
