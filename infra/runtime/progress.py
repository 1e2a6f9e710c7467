"""Progress of long operations, for callers that display it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # done, total


def no_progress(_done: int, _total: int) -> None:
    """For callers that do not display progress."""
