"""An earlier commit becomes a program of its own, built once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import earlier
from bench.child import ChildFailed

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "thing"
version = "1"
[project.optional-dependencies]
local = []
[tool.setuptools]
py-modules = ["thing"]
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits: VALUE is 1, then 2."""
    root = tmp_path / "repository"
    (root / "bench").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "constraints.txt").write_text("")
    git(root, "init", "-q")
    for value in (1, 2):
        (root / "thing.py").write_text(f"VALUE = {value}\n")
        (root / "bench" / "__init__.py").write_text(f"VALUE = {value}\n")
        git(root, "add", ".")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", f"{value}")
    monkeypatch.setattr(earlier, "ROOT", root)
    monkeypatch.setattr(earlier, "cache_dir", lambda: tmp_path)
    return root


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_an_unknown_commit_is_named(repository: Path) -> None:
    with pytest.raises(ChildFailed, match="nowhere"):
        earlier.earlier("nowhere")


@pytest.mark.long
def test_the_wheel_and_the_benchmark_are_those_of_the_commit(repository: Path, tmp_path: Path) -> None:
    """pip fetches what builds the wheel."""
    found = earlier.earlier("HEAD^")
    command = [str(found.python), "-c", "import bench, thing; print(bench.VALUE, thing.VALUE, thing.__file__)"]
    done = subprocess.run(command, cwd=found.folder, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"1 1 {found.folder / 'venv'}")
    assert found.name == git(repository, "rev-parse", "HEAD^")[:7]
    built = (found.folder / "done").stat().st_mtime_ns
    assert earlier.earlier("HEAD^") == found
    assert (found.folder / "done").stat().st_mtime_ns == built
    assert git(repository, "worktree", "list").count("\n") == 0


@pytest.mark.long
def test_a_build_that_failed_is_tried_again(repository: Path, tmp_path: Path) -> None:
    (repository / "constraints.txt").unlink()
    (repository / "pyproject.toml").write_text("broken")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "broken")
    for _ in range(2):
        with pytest.raises(ChildFailed, match="pip wheel"):
            earlier.earlier("HEAD")
    assert not list(tmp_path.glob("earlier-*/done"))
    assert git(repository, "worktree", "list").count("\n") == 0
