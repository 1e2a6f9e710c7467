"""Source regions of which nothing has ever arrived in this bucket: most likely the name is mistyped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from formats.control.keys import catalog_prefix, claims_prefix, heartbeat_prefix, watermarks_prefix
from formats.errors import ReplicatorError
from formats.incarnation import CONTROL
from formats.segment import region_prefix
from infra.archive.segments import SegmentStore
from infra.settings.field import region_name, suggestion
from replicator.absent_topics import some_names

_REPORTS = (heartbeat_prefix, claims_prefix, watermarks_prefix, catalog_prefix)
"""What an egress puts before its first segment."""


def empty_sources(store: SegmentStore, regions: Collection[str], here: str) -> Mapping[str, str]:
    """What is wrong, by region. `here`: this region, whose archive may be in the same bucket. One LIST for each region,
    four more for one without a segment, and one when any is empty. Raises StoreUnavailable."""
    empty = [region for region in sorted(set(regions)) if not _has_arrived(store, region)]
    others = _others(store, here) if empty else ()
    return {region: _problem(region, others) for region in empty}


def _has_arrived(store: SegmentStore, region: str) -> bool:
    if any(name != CONTROL for name in store.objects.folders(region_prefix(store.prefix, region))):
        return True
    return any(any(store.objects.list(prefix(store.prefix, region), limit=1)) for prefix in _REPORTS)


def _others(store: SegmentStore, here: str) -> Sequence[str]:
    with suppress(ReplicatorError):  # a principal that may read the archives of the sources need not see the others
        return [one for one in store.regions() if one != here and region_name(one) is None]
    return ()


def _problem(region: str, others: Collection[str]) -> str:
    there = f"it has archives of {some_names(others)}" if others else "it has no archive of another region"
    return (
        f"nothing of source region {region} has ever arrived in this bucket, neither a heartbeat nor a claim nor a "
        f"segment{suggestion(region, others)}; {there}. Correct the name in [[ingress.sources]], or start egress in "
        "that region, and see that its archive is in this bucket and prefix or is copied to it (S3 replication, sync)"
    )
