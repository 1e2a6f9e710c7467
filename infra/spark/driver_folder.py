"""The temporary folder of a Spark driver. The next driver removes the folders of drivers that were killed.

A running driver holds a lock on a file in its folder; the lock ends with the process, however that ends. A process id
would not work: containers may share a folder, but not their process ids.
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
    """A new folder, removed at the end of the block."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    # locked before it gets its name: a sweep never sees a lock file that is not locked yet
    unnamed = folder / f"{LOCK}.new"
    with unnamed.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(folder / LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """What this process creates in its temporary folder meanwhile is in `folder` instead. PySpark's launcher makes a
    folder of its own there, which stays if the process is killed before Java has answered."""
    before, tempfile.tempdir = tempfile.gettempdir(), str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def sweep(root: Path) -> None:
    """Remove the folders below `root` whose driver has ended. Folders that cannot be removed are left, without an
    error."""
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has no lock file yet, belongs to another user, or is being removed
            descriptor = os.open(folder / LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
