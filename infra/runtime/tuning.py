"""Process-wide settings that make our own services cheaper, and that a library must not impose on its host process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys

from infra.runtime.collector import collect_rarely
from infra.runtime.cores import usable_cores


class _NoPandas:
    """An import finder that reports pandas as not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


M_ARENA_MAX = -8  # of malloc.h
ALLOCATOR_SETTINGS = "JE_ARROW_MALLOC_CONF"  # of the jemalloc inside Arrow; a user's own settings come last, and hold
MOST_ARENAS = 4  # a container with few cores may see all those of its machine
KEPT = "dirty_decay_ms:10000"
_OURS = re.compile(rf"^narenas:\d+,{KEPT}(,|$)")


def arenas_of_arrow() -> str:
    """Settings of the allocator: an arena for each core, four at most, which keep for ten seconds what is freed. By
    default there are four for each core. A dozen threads read, and what one of them freed was returned to the system
    after a second, while another one asked for more: two thirds of the page faults of ingress were such. Decision
    67."""
    return f"narenas:{min(usable_cores(), MOST_ARENAS)},{KEPT}"


def limit_malloc_arenas() -> None:
    """Limit malloc to one arena; call before any thread starts. The Kafka client allocates each message on one thread
    and frees it on another, and an arena per thread would keep the freed memory. Measured on a restore of 1 kB records:
    120 MB less, at the same speed."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def tune() -> None:
    """Call once, before a service or a command that moves records starts a thread, and before anything imports Arrow:
    its allocator reads its settings then. Where Arrow is loaded already, as in a worker of Spark, it keeps those that
    it has. Measured on egress of 1 kB records, all settings but those of memory together: from 14 to 11.5 CPU-seconds
    per million records, and some 60 MiB less memory with 400 partitions."""
    given = _OURS.sub("", os.environ.get(ALLOCATOR_SETTINGS, ""))  # without those of a tuned process that started this
    os.environ[ALLOCATOR_SETTINGS] = ",".join(filter(None, (arenas_of_arrow(), given)))  # the last one holds
    import pyarrow as pa  # noqa: PLC0415 -- the console limits arenas, and has no Arrow

    limit_malloc_arenas()
    collect_rarely()
    # The default allocator keeps memory that Arrow has freed; this one returns it to the system.
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    # Where pandas is installed, Arrow imports it with the first array, on the poll thread, and we never use it.
    sys.meta_path.insert(0, _NoPandas())
