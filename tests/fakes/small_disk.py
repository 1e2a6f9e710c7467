"""A disk under the spool that is as small as the test says, at any moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from egress.segments.spool_disk import SpoolDisk


@dataclass(slots=True)
class Quota:
    """Bytes that all files may have together, others' files included. None: as many as they like."""

    size_bytes: int | None = None

    def disk(self) -> Callable[[Path], SpoolDisk]:
        return lambda directory: SmallDisk(directory, self)


@dataclass(frozen=True, slots=True)
class SmallDisk(SpoolDisk):
    quota: Quota

    def free_bytes(self) -> int:
        if self.quota.size_bytes is None:
            return super(SmallDisk, self).free_bytes()
        used = sum(path.stat().st_size for path in self.directory.iterdir())
        return max(self.quota.size_bytes - used, 0)

    def append(self, path: Path, at: int, data: memoryview) -> int:
        return super(SmallDisk, self).append(path, at, data[: self.free_bytes()])
