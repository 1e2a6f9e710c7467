"""The archive as a Spark data source: `spark.read.format("segments")`. See docs/spark-source.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replicator.spark_source.source import SegmentsSource, register

_HOMES = {
    "SegmentsSource": "replicator.spark_source.source",
    "register": "replicator.spark_source.source",
}

__all__ = ["SegmentsSource", "register"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a module of the package does not load the others."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
