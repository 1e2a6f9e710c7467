"""How far work has come, for those who show it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # done, of how many in all


def no_progress(_done: int, _total: int) -> None:
    """For those who do not."""
