"""What the seekable files of this folder share: those through which objects are read, and bodies that are sent."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class SeekableReader(io.RawIOBase):
    """An object of `size_bytes`. A subclass has `readinto`, which begins with `_check_open` and moves `_position`."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes, self._position = size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        raise NotImplementedError

    def readall(self) -> bytes:
        """The rest, in one buffer of its size; `RawIOBase` would fetch and copy it in small pieces."""
        self._check_open()
        rest = memoryview(bytearray(max(self._size_bytes - self._position, 0)))
        done = 0
        while count := self.readinto(rest[done:]):
            done += count
        return bytes(rest)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("read of a closed file")


class SeekableBody(io.RawIOBase):
    """The body of a request, of `size_bytes`; it is read again for another attempt. A subclass has `read`, which moves
    `_position`."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes, self._position = size_bytes, 0

    def __len__(self) -> int:
        return self._size_bytes

    def __bool__(self) -> bool:  # an empty one is a body, too
        return True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(base + offset, 0)
        return self._position
