"""Where encoded segments wait for the object store: in memory while small, in files when memory is short.

A spool file holds no open descriptor between writes, so thousands of partitions need no thousands of descriptors.
The directory belongs to one process: a lock file in it says so, and what a dead process left is removed by the next.

A full disk is no loss: what it does not take stays in memory, behind what it took, and goes to the disk when there is
room again. `limit_bytes` follows what the disk has, so that reading stops before it is full.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from egress.segments.spool_disk import SpoolDisk
from infra.runtime.crash_points import Step, durable

_NAME = "replicator-spool-"
_LOCK = "lock"
_APPEND_BYTES = 256 * 1024  # buffered before the file is opened again
_READ_BYTES = 1024 * 1024
_USED = 0.75  # of what the disk has: records that are being encoded when reading stops need room, too


class SpoolFile(RawIOBase):
    """Written forward by one thread, then read by one. Not thread safe."""

    def __init__(self, spool: Spool, number: int) -> None:
        super().__init__()
        self._spool = spool
        self._path = spool.directory / f"{number:08d}"
        self._buffer = BytesIO()
        self._in_file = 0
        self._append_at = _APPEND_BYTES  # bytes in memory

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._in_file + self._buffer.tell()

    def write(self, data) -> int:  # type: ignore[no-untyped-def]  # any buffer
        count = self._buffer.write(data)
        self._spool.account(count, on_disk=False)
        if self._in_file and self._buffer.tell() >= self._append_at:
            self._append()
        return count

    def settle(self) -> None:
        """Call after each row group: goes to disk if the spool is short of memory."""
        if self._in_file or self._spool.short_of_memory:
            self._append()

    @property
    def size_bytes(self) -> int:
        return self.tell()

    def reader(self) -> BinaryIO:
        """The whole content, seekable. The caller closes it; this file stays until `remove`. Raises OSError when the
        file is not what was written."""
        rest = BytesIO(self._buffer.getbuffer())
        if not self._in_file:
            return rest
        file = self._path.open("rb")
        found = os.fstat(file.fileno()).st_size
        if found != self._in_file:
            file.close()
            raise OSError(f"spool file {self._path} has {found} bytes, {self._in_file} were written")
        return file if not self._buffer.tell() else BufferedReader(_Joined(file, rest, found), _READ_BYTES)

    def remove(self) -> None:
        """May be called more than once."""
        in_memory, in_file = self._buffer.tell(), self._in_file
        self._buffer, self._in_file = BytesIO(), 0
        self._path.unlink(missing_ok=True)
        self._spool.account(-in_memory, on_disk=False)
        self._spool.account(-in_file, on_disk=True)

    def _append(self) -> None:
        with durable(Step.SPOOL_SEGMENT):
            data = self._buffer.getbuffer()
            count = self._spool.disk.append(self._path, self._in_file, data)
            rest = BytesIO()
            rest.write(data[count:])  # a full disk did not take it
            data.release()
        self._buffer = rest
        self._in_file += count
        self._append_at = rest.tell() + _APPEND_BYTES  # not with each write, while the disk is full
        self._spool.account(-count, on_disk=False)
        self._spool.account(count, on_disk=True)


class _Joined(RawIOBase):
    """A file, and behind it what is in memory, as one."""

    def __init__(self, file: BinaryIO, rest: BinaryIO, boundary: int) -> None:
        super().__init__()
        self._file, self._rest, self._boundary = file, rest, boundary
        self._end = boundary + rest.seek(0, SEEK_END)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        self._at = max(0, {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._end}[whence] + offset)
        return self._at

    def readinto(self, buffer, /) -> int:  # type: ignore[no-untyped-def]  # any writable buffer
        view = memoryview(buffer)
        if self._at < self._boundary:
            self._file.seek(self._at)
            data = self._file.read(min(len(view), self._boundary - self._at))
        else:
            self._rest.seek(self._at - self._boundary)
            data = self._rest.read(len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        self._rest.close()
        super().close()


class Spool:
    """All spool files of a process, and how much they hold. Thread safe."""

    def __init__(self, parent: Path | None, memory_bytes: int, disk: Callable[[Path], SpoolDisk] = SpoolDisk) -> None:
        """`parent`: where the directory is made (default: the system's). `memory_bytes`: kept in memory before files
        are used; one row group per open segment may come on top. Raises OSError when the directory cannot be made."""
        base = parent or Path(tempfile.gettempdir())
        base.mkdir(parents=True, exist_ok=True)
        remove_abandoned(base)
        self.directory = Path(tempfile.mkdtemp(prefix=_NAME, dir=base))
        self._lock_file = (self.directory / "new").open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        (self.directory / "new").rename(self.directory / _LOCK)  # it is seen only when it is held
        self.disk = disk(self.directory)
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

    def limit_bytes(self, most: int) -> int:
        """How much may wait here, `most` at most: what memory and the disk have room for now."""
        room = self._memory_limit + self._on_disk + self.disk.free_bytes()
        return min(most, max(int(room * _USED), 1))

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
