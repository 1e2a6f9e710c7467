"""Making thousands of small objects at once without the collector looking at them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Headers are tuples and lists, thousands at once, none of them garbage yet: a collection in the middle looks at
    all of them in vain, which costs more than making them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
