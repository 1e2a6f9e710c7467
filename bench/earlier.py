"""An earlier commit of this project as a program: its wheel in a virtual environment, built once into the cache.

    python -m bench.earlier COMMIT        builds it, and prints its Python

The wheel is built from `git worktree`, and installed with the versions that commit pinned. Beside it lies `bench/` of
that commit, which wheels do not have: its measured programs know its own modules.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.child import ROOT, ChildFailed
from infra.local.cache import cache_dir, locked

MINUTES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A version of this project: how its measured programs are started."""

    name: str
    python: Path
    folder: Path  # has `bench/` of that version


HERE = Contender(name="this commit", python=Path(sys.executable), folder=ROOT)


def earlier(commit: str) -> Contender:
    """Build it, if absent (minutes). Raises ChildFailed when git or pip fails."""
    full = _run(["git", "rev-parse", f"{commit}^{{commit}}"]).strip()
    folder = cache_dir() / f"earlier-{full[:12]}"
    with locked(cache_dir() / f"earlier-{full[:12]}.lock"):
        if not (folder / "done").exists():
            _build(full, folder)
    return Contender(name=full[:7], python=folder / "venv" / "bin" / "python", folder=folder)


def _build(commit: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="replicator-earlier-") as scratch:
        tree = Path(scratch) / "tree"
        _run(["git", "worktree", "add", "--detach", str(tree), commit])
        try:
            python = folder / "venv" / "bin" / "python"
            _run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")])
            _run([str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", scratch, str(tree)])
            (wheel,) = Path(scratch).glob("*.whl")
            pinned = ["--constraint", str(tree / "constraints.txt")]
            _run([str(python), "-m", "pip", "install", "--quiet", *pinned, f"{wheel}[local]"])
            _run(["cp", "-r", str(tree / "bench"), str(folder)])
        finally:
            _run(["git", "worktree", "remove", "--force", str(tree)])
    (folder / "done").touch()


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=MINUTES * 60)
    if done.returncode:
        raise ChildFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    print(earlier(sys.argv[1]).python)
