"""Copies of logs: each failure has a folder of its own, and the newest ones stay."""

from __future__ import annotations

import os
from pathlib import Path

from infra.local.cache import COPIES_KEPT, keep_copy


def test_the_newest_copies_stay(tmp_path: Path) -> None:
    logs, copies = tmp_path / "logs", tmp_path / "copies"
    logs.mkdir()
    for n in range(COPIES_KEPT + 2):
        (logs / "egress.log").write_text(f"{n}")
        os.utime(keep_copy(logs, copies / f"stack-{n}"), (n, n))
    (logs / "egress.log").write_text("last")
    last = keep_copy(logs, copies / "last")
    assert (last / "egress.log").read_text() == "last"
    kept = {one.name for one in copies.iterdir()}
    assert kept == {"last", *(f"stack-{n}" for n in range(3, COPIES_KEPT + 2))}


def test_a_second_copy_replaces_the_first(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "old.log").touch()
    keep_copy(logs, tmp_path / "copies" / "stack")
    (logs / "old.log").rename(logs / "new.log")
    copy = keep_copy(logs, tmp_path / "copies" / "stack")
    assert [one.name for one in copy.iterdir()] == ["new.log"]
