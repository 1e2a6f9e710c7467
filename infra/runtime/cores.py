"""The cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Number of them: those of its affinity, where the system has one. The CPU limit of a container is not seen."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
