"""The next Spark driver removes the folders of killed drivers, and not those of running ones."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.waiting import wait_until
from infra.spark.driver_folder import LOCK, PREFIX, driver_folder, sweep

HOLD = """
import sys
from infra.local.waiting import wait_until
from infra.spark.driver_folder import driver_folder
with driver_folder() as folder:
    (folder / "blockmgr").mkdir()
    (folder / "blockmgr" / "data").write_text("much")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def hold() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


START = """
from infra.spark.driver import SparkDriver, SparkSettings
SparkDriver(SparkSettings(master="local[1]"))
"""


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_folder_is_removed_with_its_driver(root: Path) -> None:
    with driver_folder() as folder:
        assert folder.parent == root
        assert [one.name for one in folder.iterdir()] == [LOCK]
    assert list(root.iterdir()) == []


def test_the_folder_of_a_killed_driver_is_removed_by_the_next(root: Path) -> None:
    alive, theirs = hold()
    killed, left = hold()
    try:
        killed.kill()
        killed.wait()
        assert left.exists(), "no other driver has removed it"
        with driver_folder() as ours:
            assert set(root.iterdir()) == {theirs, ours}
            assert (theirs / "blockmgr" / "data").read_text() == "much"
    finally:
        ended(alive)
        ended(killed)
    sweep(root)
    assert list(root.iterdir()) == []


def test_a_folder_without_a_released_lock_is_left(root: Path) -> None:
    (root / f"{PREFIX}about-to-be-locked").mkdir()
    (root / "another").mkdir()
    (root / "another" / LOCK).touch()
    (root / f"{PREFIX}file").touch()
    sweep(root)
    assert len(list(root.iterdir())) == 3


def test_a_driver_that_is_killed_before_java_has_answered_leaves_its_folder_alone(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """PySpark's launcher makes a folder, too, and waits for Java to write there where it listens."""
    home = tmp_path_factory.mktemp("spark")
    (home / "bin").mkdir()
    submit = home / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\ntouch {home}/began\nexec cat\n", encoding="ascii")  # and never answers
    submit.chmod(0o755)
    environment = {**os.environ, "SPARK_HOME": str(home)}
    process = subprocess.Popen([sys.executable, "-c", START], env=environment, stdin=subprocess.DEVNULL, text=True)
    try:
        assert wait_until((home / "began").exists, timedelta(seconds=60))
    finally:
        ended(process)
    (left,) = root.iterdir()
    assert left.name.startswith(PREFIX)
    sweep(root)
    assert list(root.iterdir()) == []
