"""Where encoded segments wait for the object store: in memory while small, in files when memory is short.

A spool file holds no open descriptor between writes, so thousands of partitions need no thousands of descriptors.
The directory belongs to one process: a lock file in it says so, and what a dead process left is removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from io import BytesIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from replicator.durable import Step, durable

_NAME = "replicator-spool-"
_LOCK = "lock"
_APPEND_BYTES = 256 * 1024  # buffered before the file is opened again


class SpoolFile(RawIOBase):
    """Written forward by one thread, then read by one. Not thread safe."""

    def __init__(self, spool: Spool, number: int) -> None:
        super().__init__()
        self._spool = spool
        self._path = spool.directory / f"{number:08d}"
        self._buffer = BytesIO()
        self._in_file = 0
        self._on_disk = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._in_file + self._buffer.tell()

    def write(self, data) -> int:  # type: ignore[no-untyped-def]  # any buffer
        count = self._buffer.write(data)
        self._spool.account(count, on_disk=False)
        if self._on_disk and self._buffer.tell() >= _APPEND_BYTES:
            self._append()
        return count

    def settle(self) -> None:
        """Call after each row group: goes to disk if the spool is short of memory."""
        if self._on_disk or self._spool.short_of_memory:
            self._append()

    @property
    def size_bytes(self) -> int:
        return self.tell()

    def reader(self) -> BinaryIO:
        """The whole content, seekable. The caller closes it; this file stays until `remove`."""
        if not self._on_disk:
            return BytesIO(self._buffer.getbuffer())
        self._append()
        return self._path.open("rb")

    def remove(self) -> None:
        """May be called more than once."""
        in_memory, in_file = self._buffer.tell(), self._in_file
        self._buffer, self._in_file = BytesIO(), 0
        if in_file or self._on_disk:
            self._path.unlink(missing_ok=True)
        self._spool.account(-in_memory, on_disk=False)
        self._spool.account(-in_file, on_disk=True)

    def _append(self) -> None:
        data = self._buffer.getbuffer()
        with durable(Step.SPOOL_SEGMENT), self._path.open("ab") as file:
            # a file that lost its beginning (a wiped spool directory) must not become a short segment
            if file.tell() != self._in_file:
                raise OSError(f"spool file {self._path} has {file.tell()} bytes, {self._in_file} were written")
            file.write(data)
        count = len(data)
        data.release()
        self._buffer = BytesIO()
        self._in_file += count
        self._on_disk = True
        self._spool.account(-count, on_disk=False)
        self._spool.account(count, on_disk=True)


class Spool:
    """All spool files of a process, and how much they hold. Thread safe."""

    def __init__(self, parent: Path | None, memory_bytes: int) -> None:
        """`parent`: where the directory is made (default: the system's). `memory_bytes`: kept in memory before files
        are used; one row group per open segment may come on top."""
        base = parent or Path(tempfile.gettempdir())
        base.mkdir(parents=True, exist_ok=True)
        remove_abandoned(base)
        self.directory = Path(tempfile.mkdtemp(prefix=_NAME, dir=base))
        self._lock_file = (self.directory / "new").open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        (self.directory / "new").rename(self.directory / _LOCK)  # it is seen only when it is held
        self._memory_limit = memory_bytes
        self._mutex = threading.Lock()
        self._in_memory = self._on_disk = self._files = 0

    def file(self) -> SpoolFile:
        with self._mutex:
            self._files += 1
            return SpoolFile(self, self._files)

    def account(self, count: int, *, on_disk: bool) -> None:
        with self._mutex:
            if on_disk:
                self._on_disk += count
            else:
                self._in_memory += count

    @property
    def short_of_memory(self) -> bool:
        return self._in_memory > self._memory_limit

    @property
    def size_bytes(self) -> int:
        return self._in_memory + self._on_disk

    def close(self) -> None:
        """Removes the directory; what was not uploaded is read from Kafka again."""
        self._lock_file.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_abandoned(base: Path) -> None:
    """Directories whose process is gone: nobody holds their lock."""
    for directory in base.glob(f"{_NAME}*"):
        with suppress(OSError):
            descriptor = os.open(directory / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def as_binary(file: SpoolFile) -> BinaryIO:
    """What format writers take; a SpoolFile is written forward and closed by `remove` only."""
    return cast(BinaryIO, file)
