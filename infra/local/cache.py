"""The user's cache folder: files that are fetched once, and the state of the detached stack."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE_VARIABLE = "REPLICATOR_CACHE"
COPIES_KEPT = 5  # logs of failures


def cache_dir() -> Path:
    """`$REPLICATOR_CACHE`, or `kafka-segment-replicator` in `$XDG_CACHE_HOME` or `~/.cache`. Created if absent."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        folder = Path(chosen)
    elif base := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(base) / "kafka-segment-replicator"
    else:
        folder = Path.home() / ".cache" / "kafka-segment-replicator"
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; waits for other processes. The system releases the lock when the holder dies.

    The file stays: if it were removed, two processes could hold the lock.
    """
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def keep_copy(folder: Path, to: Path) -> Path:
    """Copy `folder` to `to`, whose parent keeps the newest COPIES_KEPT. Returns `to`."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, dirs_exist_ok=True)
    os.utime(to)  # which the copy has taken over from `folder`
    ages: dict[Path, float] = {}
    for one in to.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            ages[one] = one.stat().st_mtime
    for older in sorted(ages, key=ages.__getitem__)[:-COPIES_KEPT]:
        shutil.rmtree(older, ignore_errors=True)
    return to
