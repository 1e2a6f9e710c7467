"""The file that a reader decodes: errors of the file itself are raised unchanged, never as CorruptSegment."""

from __future__ import annotations

import struct
from typing import BinaryIO, NoReturn

import pyarrow as pa

from formats.errors import CorruptSegment

DECODE_ERRORS = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
"""Everything that a decoder raises on invalid bytes."""


def size_of(source: BinaryIO) -> int:
    return source.seek(0, 2)


def read_range(source: BinaryIO, name: str, start: int, length: int) -> bytes:
    """Read exactly `length` bytes. Raises CorruptSegment when the object ends before that."""
    source.seek(start)
    parts: list[bytes] = []
    left = length
    while left:
        part = source.read(left)  # may be short: a raw file, a network stream
        if not part:
            raise CorruptSegment(name, found=f"its end at byte {start + length - left}", wanted=f"{left} bytes more")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Window:
    """The file for a decoder of verified bytes: it has the object's whole length, but only one range is readable."""

    closed = False
    mode = "rb"

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._position = self._start = 0
        self._bytes = b""

    def show(self, start: int, data: bytes) -> None:
        """Make `data`, which starts at position `start`, the readable range."""
        self._start, self._bytes = start, data

    def read(self, length: int = -1) -> bytes:
        length = self._size - self._position if length < 0 else min(length, self._size - self._position)
        at = self._position - self._start
        if at < 0 or at + length > len(self._bytes):
            raise ValueError(f"the metadata points to {length} bytes at {self._position}, outside of its row group")
        self._position += length
        return self._bytes[at : at + length]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._bytes = b""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True


class Watched:
    """The file for a decoder of unverified bytes: the source itself. Its last failure is kept, since the decoder may
    wrap it in an error of its own."""

    closed = False
    mode = "rb"

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._failure: Exception | None = None

    def raise_as(self, name: str, error: Exception, *, wanted: str) -> NoReturn:
        """For a decoder's `error`: raise the source's own failure if there was one, else CorruptSegment."""
        if self._failure is not None:
            raise self._failure
        raise CorruptSegment(name, found=repr(error), wanted=wanted) from error

    def read(self, length: int = -1) -> bytes:
        try:
            return self._source.read(length)
        except Exception as error:
            self._failure = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._source.seek(offset, whence)
        except Exception as error:
            self._failure = error
            raise

    def tell(self) -> int:
        return self._source.tell()

    def close(self) -> None:
        """Does nothing: the reader owns the source and closes it."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True
