"""The first of many names in a message. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def first_few(names: Sequence[str], most: int) -> str:
    """The first `most` of `names`, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
