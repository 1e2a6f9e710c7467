"""Settings of a process that is all ours: what a service of ours gains, and a library must not decide for its host."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

import pyarrow as pa


class _NoPandas:
    """An import finder for which pandas is not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


M_ARENA_MAX = -8  # of malloc.h


def one_arena() -> None:
    """Before any thread begins. The Kafka client allocates each message on one thread and frees it on another: an arena
    for each thread keeps what is free. Measured on a restore of 1 kB records: 120 MB less, at the same speed."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def tune() -> None:
    """Once, before a service starts. Measured on egress of 1 kB records, all together: from 14 to 11.5 CPU-seconds per
    million, and some 60 MiB less memory over 400 partitions."""
    # Batches are freed by their reference counts; the collector would look at a hundred thousand young messages and
    # headers again and again, and find nothing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    # The default allocator keeps what Arrow has freed; this one gives it back.
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    # Where pandas is installed, Arrow imports it with the first array, on the poll thread, and never uses it for us.
    sys.meta_path.insert(0, _NoPandas())
