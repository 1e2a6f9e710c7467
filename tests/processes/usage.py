"""What processes use of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICK = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process, or of several together: CPU so far, memory now."""

    cpu_seconds: float
    rss_mib: float

    @classmethod
    def of(cls, pid: int) -> Self:
        """Raises ProcessLookupError when the process has ended, also when nothing has waited for it yet."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except FileNotFoundError as error:
            raise ProcessLookupError(f"process {pid} has ended") from error
        if fields[0] == "Z":
            raise ProcessLookupError(f"process {pid} has ended")
        return cls((int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / MIB)

    @classmethod
    def of_all(cls, pids: Iterable[int]) -> Self:
        """Raises ProcessLookupError when one has ended: the sum of the others would be too low."""
        each = [cls.of(pid) for pid in pids]
        return cls(sum(one.cpu_seconds for one in each), sum(one.rss_mib for one in each))
