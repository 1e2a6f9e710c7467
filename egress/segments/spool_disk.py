"""The file system under the spool: its free space, and appending to files until it is full."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class SpoolDisk:
    """`directory` exists. Thread safe for different files."""

    directory: Path

    def free_bytes(self) -> int:
        """Bytes that may still be written, which other writers share; 0 when the file system does not answer."""
        try:
            found = os.statvfs(self.directory)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def append(self, path: Path, at: int, data: memoryview) -> int:
        """Append as much of `data` as the disk takes, and return the number of bytes written. The file has `at` bytes
        (0: it may be absent). Raises OSError for anything but a full disk, and when the file does not have `at` bytes:
        a file that lost its beginning (a wiped directory) must not become a short segment."""
        written = 0
        try:
            with path.open("ab", buffering=0) as file:
                if file.tell() != at:
                    raise OSError(f"spool file {path} has {file.tell()} bytes, {at} were written")
                while written < len(data):
                    written += file.write(data[written:])
        except OSError as error:
            if error.errno not in FULL:
                raise
        return written
