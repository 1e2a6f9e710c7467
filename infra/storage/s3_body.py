"""Request bodies that are windows into a larger file, so that no part is copied into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from infra.settings.storage import MAX_PARTS
from infra.storage.seekable import SeekableBody

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Slice(SeekableBody):
    """`length` bytes of `file` from `start`, as a file. Closing it leaves `file` open. Only one slice of a file may be
    read at a time: reads move the file's position."""

    def __init__(self, file: BinaryIO, start: int, length: int) -> None:
        super().__init__(length)
        self._file, self._start = file, start

    def read(self, size: int | None = -1) -> bytes:
        """Read `size` bytes, or up to the end; `RawIOBase` would copy them once more."""
        left = max(self._size_bytes - self._position, 0)
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
