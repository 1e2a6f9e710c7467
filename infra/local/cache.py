"""The user's cache folder: files that are fetched once, and the state of the detached stack."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE_VARIABLE = "REPLICATOR_CACHE"


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
