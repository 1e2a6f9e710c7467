"""The file system under the spool: how much it takes, and appending to files until it takes no more."""

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
        """What may still be written, as far as others leave it; nothing on a disk that does not answer."""
        try:
            found = os.statvfs(self.directory)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def append(self, path: Path, at: int, data: memoryview) -> int:
        """Append to the file, which has `at` bytes (0: it may be absent), as much of `data` as the disk takes. Raises
        OSError for anything but a full disk, and when the file does not have its bytes any more: what lost its
        beginning (a wiped directory) must not become a short segment."""
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
