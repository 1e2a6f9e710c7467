"""Verifies that the archive is whole, and that it equals the topics."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replicator.selection import Selection
    from replicator.verify.proven import ProvenObjects
    from replicator.verify.report import Report
    from replicator.verify.scope import VerifyScope
    from replicator.verify.verify import Verification

_HOMES = {
    "ProvenObjects": "replicator.verify.proven",
    "Report": "replicator.verify.report",
    "Selection": "replicator.selection",
    "Verification": "replicator.verify.verify",
    "VerifyScope": "replicator.verify.scope",
}

__all__ = ["ProvenObjects", "Report", "Selection", "Verification", "VerifyScope"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a module of the package does not load the others."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
