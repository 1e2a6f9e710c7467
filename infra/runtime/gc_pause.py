"""Suspends the garbage collector while thousands of small objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable garbage collection within the block. Record headers are thousands of tuples and lists, none of them
    garbage yet: a collection meanwhile would traverse all of them in vain, which costs more than creating them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
