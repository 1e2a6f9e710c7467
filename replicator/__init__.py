"""The library: services, restores and checks, built from a configuration."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replicator.backfill.backfill import Backfill
    from replicator.backfill.request import BackfillRequest
    from replicator.client import MirrorClient, lag
    from replicator.config import Config, load
    from replicator.drill import Drill
    from replicator.restore.restore import Restore
    from replicator.segment_repair import SegmentRepairs
    from replicator.selection import Selection
    from replicator.services.compaction import Compaction
    from replicator.services.egress import build_egress
    from replicator.services.ingress import build_ingress
    from replicator.services.retention import Retention
    from replicator.services.sync import build_sync
    from replicator.verify.verify import Verification

_HOMES = {
    "Backfill": "replicator.backfill.backfill",
    "BackfillRequest": "replicator.backfill.request",
    "Compaction": "replicator.services.compaction",
    "Config": "replicator.config",
    "Drill": "replicator.drill",
    "MirrorClient": "replicator.client",
    "Restore": "replicator.restore.restore",
    "Retention": "replicator.services.retention",
    "SegmentRepairs": "replicator.segment_repair",
    "Selection": "replicator.selection",
    "Verification": "replicator.verify.verify",
    "build_egress": "replicator.services.egress",
    "build_ingress": "replicator.services.ingress",
    "build_sync": "replicator.services.sync",
    "lag": "replicator.client",
    "load": "replicator.config",
}

__all__ = [
    "Backfill",
    "BackfillRequest",
    "Compaction",
    "Config",
    "Drill",
    "MirrorClient",
    "Restore",
    "Retention",
    "SegmentRepairs",
    "Selection",
    "Verification",
    "build_egress",
    "build_ingress",
    "build_sync",
    "lag",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a module of the package does not load the others."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
