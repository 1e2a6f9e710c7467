"""Bytes that a process keeps on disk instead of in memory, in a temporary file without a name: it is gone with the
process. Where the folder for temporary files is in memory, give another one.
"""

from __future__ import annotations

import os
import tempfile
from io import FileIO
from pathlib import Path


class ScratchFile:
    """One thread. Raises OSError, as when the disk is full."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: None is that for temporary files."""
        self._folder = folder
        self._file: FileIO | None = None  # until the first bytes
        self.size_bytes = 0

    def append(self, data: bytes) -> int:
        """Returns where the bytes are."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 -- open until `close`
        at, rest = self.size_bytes, memoryview(data)
        while rest:
            written = os.pwrite(self._file.fileno(), rest, at + len(data) - len(rest))
            rest = rest[written:]
        self.size_bytes = at + len(data)
        return at

    def read(self, at: int, size_bytes: int) -> bytes:
        return b"" if self._file is None else os.pread(self._file.fileno(), size_bytes, at)

    def close(self) -> None:
        """May be called twice."""
        if self._file is not None:
            self._file.close()
