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
    """Imports a public name on first use, so that importing one module does not load the others."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
