"""Request bodies that are windows into a larger file, so that no part is copied into memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from infra.settings.storage import MAX_PARTS

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Slice(io.RawIOBase):
    """`length` bytes of `file` from `start`, as a file. Closing it leaves `file` open. Only one slice of a file may be
    read at a time: reads move the file's position."""

    def __init__(self, file: BinaryIO, start: int, length: int) -> None:
        super().__init__()
        self._file, self._start, self._length = file, start, length
        self._position = 0

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:  # an empty slice is a body, too
        return True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read `size` bytes, or up to the end; `RawIOBase` would copy them once more."""
        left = max(self._length - self._position, 0)
        self._file.seek(self._start + self._position)
        data = self._file.read(left if size is None or size < 0 else min(size, left))
        self._position += len(data)
        return data

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def part_ranges(size_bytes: int, part_size_bytes: int) -> Iterator[tuple[int, int]]:
    """Start and length of every part: all but the last have the same size, and there are at most `MAX_PARTS`."""
    part = max(part_size_bytes, -(-size_bytes // MAX_PARTS))
    for start in range(0, size_bytes, part):
        yield start, min(part, size_bytes - start)
