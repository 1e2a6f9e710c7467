"""Keeps encoded segments until they are uploaded: in memory while they are small, in files when memory is short.

A spool file has no open descriptor between writes, so thousands of partitions do not need thousands of descriptors.
The directory belongs to one process, which holds a lock on a file in it; the next process removes the directory of a
process that has died.

A full disk loses nothing: the bytes that it does not take stay in memory, after those that it took, and are written
when there is space again. `limit_bytes` follows the free space, so that reading stops before the disk is full.
"""

from __future__ import annotations

import fcntl
import logging
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
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable

log = logging.getLogger(__name__)

_NAME = "replicator-spool-"
_LOCK = "lock"
_APPEND_BYTES = 256 * 1024  # buffered before the file is opened again
_READ_BYTES = 1024 * 1024
_SPILL_BYTES = 1024 * 1024  # joined for the disk at a time: a copy of everything, when memory is short, is too much
_USED = 0.75  # of the available space: records being encoded when reading stops need some, too


class SpoolFile(RawIOBase):
    """Written sequentially by one thread, then read by one. Not thread safe, but for `remove`."""

    def __init__(self, spool: Spool, number: int) -> None:
        super().__init__()
        self._spool = spool
        self._path = spool.directory / f"{number:08d}"
        self._pieces: list[bytes] = []  # in memory, as written: one growing buffer would be copied at each growth
        self._in_memory = self._in_file = 0
        self._on_disk = False  # whether there may be a file
        self._append_at = _APPEND_BYTES  # bytes in memory
        self._removing = threading.Lock()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._in_file + self._in_memory

    def write(self, data) -> int:  # type: ignore[no-untyped-def]  # any buffer
        """Keeps `bytes` as they are, and copies anything else."""
        piece = data if type(data) is bytes else memoryview(data).tobytes()
        count = len(piece)
        self._pieces.append(piece)
        self._in_memory += count
        self._spool.account(count, on_disk=False)
        if self._in_file and self._in_memory >= self._append_at:
            self._append()
        return count

    def spill_if_needed(self) -> None:
        """Write the buffer to disk if the spool is short of memory. Call after each row group."""
        if self._in_file or self._spool.short_of_memory:
            self._append()

    @property
    def size_bytes(self) -> int:
        return self.tell()

    def reader(self) -> BinaryIO:
        """The whole content, seekable. The caller closes it; this file stays until `remove`. Raises OSError when the
        file on disk does not have the size that was written."""
        rest = BytesIO(self._joined(self._in_memory))
        if not self._in_file:
            return rest
        file = self._path.open("rb")
        found = os.fstat(file.fileno()).st_size
        if found != self._in_file:
            file.close()
            raise OSError(f"spool file {self._path} has {found} bytes, {self._in_file} were written")
        return file if not self._in_memory else BufferedReader(_Joined(file, rest, found), _READ_BYTES)

    def remove(self) -> None:
        """May be called more than once. A file that the disk does not let go stays until the spool is closed: what
        becomes of the segment does not depend on it."""
        with self._removing:  # a segment may be discarded while its upload ends
            in_memory, in_file = self._in_memory, self._in_file
            self._pieces, self._in_memory, self._in_file = [], 0, 0
        self._spool.account(-in_memory, on_disk=False)
        self._spool.account(-in_file, on_disk=True)
        was_on_disk, self._on_disk = self._on_disk, False
        if was_on_disk:  # a disk that is read-only now refuses even a file that is not there
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("spool_file_stays", extra={log_fields.ERROR: str(error)})

    def _append(self) -> None:
        while self._in_memory:
            data = self._joined(_SPILL_BYTES)
            self._on_disk = True
            with durable(Step.SPOOL_SEGMENT):
                count = self._spool.disk.append(self._path, self._in_file, memoryview(data))
            self._pieces[:1] = [data[count:]] if count < len(data) else []
            self._in_memory -= count
            self._in_file += count
            self._spool.account(-count, on_disk=False)
            self._spool.account(count, on_disk=True)
            if count < len(data):  # the disk is full
                break
        self._append_at = self._in_memory + _APPEND_BYTES  # while the disk is full, not every write tries again

    def _joined(self, least_bytes: int) -> bytes:
        """What is first in memory, as one piece from now on: of `least_bytes`, or of all there is."""
        number = size = 0
        while number < len(self._pieces) and size < least_bytes:
            size += len(self._pieces[number])
            number += 1
        if number > 1:
            self._pieces[:number] = [b"".join(self._pieces[:number])]
        return self._pieces[0] if number else b""


class _Joined(RawIOBase):
    """A file followed by bytes in memory, read as one."""

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
    """All spool files of a process, and their total size. Thread safe."""

    def __init__(self, parent: Path | None, memory_bytes: int, disk: Callable[[Path], SpoolDisk] = SpoolDisk) -> None:
        """`parent`: where the directory is created (default: the system's temporary directory). `memory_bytes`: bytes
        kept in memory before files are used; one row group per open segment may come on top. Raises OSError when the
        directory cannot be created."""
        base = parent or Path(tempfile.gettempdir())
        base.mkdir(parents=True, exist_ok=True)
        remove_abandoned(base)
        self.directory = Path(tempfile.mkdtemp(prefix=_NAME, dir=base))
        self._lock_file = (self.directory / "new").open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        (self.directory / "new").rename(self.directory / _LOCK)  # visible to other processes only once it is locked
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
        """How many bytes the spool may hold: as much as memory and disk have space for now, but no more than `most`."""
        room = self._memory_limit + self._on_disk + self.disk.free_bytes()
        return min(most, max(int(room * _USED), 1))

    def close(self) -> None:
        """Remove the directory; records that were not uploaded are read from Kafka again."""
        self._lock_file.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_abandoned(base: Path) -> None:
    """Remove the directories whose process has ended: their lock is free."""
    for directory in base.glob(f"{_NAME}*"):
        with suppress(OSError):
            descriptor = os.open(directory / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def as_binary(file: SpoolFile) -> BinaryIO:
    """`file` as the type that format writers take. A SpoolFile is written sequentially and closed only by `remove`."""
    return cast(BinaryIO, file)
