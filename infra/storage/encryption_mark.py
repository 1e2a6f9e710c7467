"""Whether an object is encrypted: by the mark at its end. Needs no package of ciphers."""

from __future__ import annotations

import io
from typing import BinaryIO

MARK = b"KSRCRYPT"
CHUNK_BYTES = 64 * 1024  # of the content, encrypted one by one
TAIL_BYTES = 4096  # read at once: longer than any trailer of the program


def is_marked(tail: bytes) -> bool:
    """Whether an object that ends like this is encrypted."""
    return tail.endswith(MARK)


def tail_of(file: BinaryIO) -> tuple[bytes, int]:
    """The last bytes of an object, and its length."""
    object_bytes = file.seek(0, io.SEEK_END)
    file.seek(max(object_bytes - TAIL_BYTES, 0))
    return read_fully(file, min(TAIL_BYTES, object_bytes)), object_bytes


def read_fully(file: BinaryIO, length: int) -> bytes:
    """Read `length` bytes, or up to the end: a single read may be short."""
    data = file.read(length)
    if len(data) == length or not data:
        return data
    parts = [data]
    left = length - len(data)
    while left and (data := file.read(left)):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)
