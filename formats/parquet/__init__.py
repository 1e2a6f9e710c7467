"""Segments as Parquet files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from formats.parquet.writer import ParquetFormat

_HOMES = {
    "ParquetFormat": "formats.parquet.writer",
}

__all__ = ["ParquetFormat"]


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: a part of the package needs no other."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
