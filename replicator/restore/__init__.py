"""Restores topics from the archive into a cluster: planned first, exactly once, resumable."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replicator.restore.conflicts import ConflictKind
    from replicator.restore.conflicts import ConflictKind as Objection
    from replicator.restore.request import Options, RestoreRequest
    from replicator.restore.restore import Restore, RestoreStopped
    from replicator.restore.target_options import TargetOptions
    from replicator.restore.target_options import TargetOptions as Wishes
    from replicator.selection import Renaming, Selection

_HOMES = {
    "ConflictKind": "replicator.restore.conflicts",
    "Options": "replicator.restore.request",
    "Renaming": "replicator.selection",
    "Restore": "replicator.restore.restore",
    "RestoreRequest": "replicator.restore.request",
    "RestoreStopped": "replicator.restore.restore",
    "Selection": "replicator.selection",
    "TargetOptions": "replicator.restore.target_options",
}
_EARLIER_NAMES = {"Objection": "ConflictKind", "Wishes": "TargetOptions"}

__all__ = [
    "ConflictKind",
    "Objection",
    "Options",
    "Renaming",
    "Restore",
    "RestoreRequest",
    "RestoreStopped",
    "Selection",
    "TargetOptions",
    "Wishes",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a module of the package does not load the others."""
    name_now = _EARLIER_NAMES.get(name, name)
    home = _HOMES.get(name_now)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name_now)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
