"""The temporary folder of a Spark driver; what drivers left that were killed is removed by the next one.

A living driver holds a lock on a file in its folder, which ends with its process, however that ends. A process id would
not do: containers share folders, and not the numbers of their processes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "replicator-spark-"
LOCK = "lock"


@contextmanager
def driver_folder() -> Iterator[Path]:
    """A new one, removed at the end."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    # locked, then named: a sweep never sees a lock that nobody holds yet
    unnamed = folder / f"{LOCK}.new"
    with unnamed.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(folder / LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove the folders below `root` whose driver has ended. What cannot be removed is left, and no error."""
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has no lock yet, is somebody else's, or is being removed
            descriptor = os.open(folder / LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
