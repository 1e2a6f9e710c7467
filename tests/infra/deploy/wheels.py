"""Wheels of this program, built from a tree or a commit."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD_SECONDS = 900


def tree_of(commit: str, folder: Path) -> Path:
    """The files of `commit`, in a new folder. Skips the test where this clone does not have the commit."""
    known = subprocess.run(
        ["git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"], check=False, stderr=subprocess.DEVNULL
    )
    if known.returncode != 0:
        pytest.skip(f"commit {commit} is not in this clone")
    packed = folder.with_suffix(".tar")
    subprocess.run(["git", "-C", ROOT, "archive", f"--output={packed}", commit], check=True)
    with tarfile.open(packed) as files:
        files.extractall(folder, filter="data")
    return folder


def build(tree: Path, folder: Path) -> Path:
    """The wheel of `tree`, without its dependencies."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(tree)]
    subprocess.run(command, check=True, timeout=BUILD_SECONDS)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked(wheel: Path, folder: Path) -> Path:
    """A folder from which its packages can be imported."""
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
    return folder
