"""Copies of copies, by the ids of the clusters that a topic's records went through. Pure.

    orders of A ──> B ──> back to A      a cycle: the records are here already
    orders of A ──> B ──> D, and
    orders of A ──> C ──> D              one of the two is delivered

Names do not matter: this decides alone where topics keep their names, or get `.ingress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from formats.control.catalog import MERGED, Catalog
from ingress.catalog.desired import SourceTopic


def cycle_of(source: SourceTopic, catalogs: Mapping[str, Catalog], cluster_id: str) -> str:
    """Why the records of `source` are in the cluster `cluster_id` already; empty when they are not, or when it is not
    known."""
    if not cluster_id or cluster_id not in source.lineage(catalogs)[1:]:  # the first is the source's own cluster
        return ""
    return f"{source} is a copy whose records come from this cluster ({cluster_id}): they are not copied back"


def repeated(sources: Sequence[SourceTopic], catalogs: Mapping[str, Catalog]) -> Mapping[SourceTopic, str]:
    """Of `sources`, which have one destination, those that bring the same records as another one, and why they are not
    delivered. The one that went through the fewest clusters is, or else the first region's. Topics of different or
    unknown origin are never the same."""
    nearest: dict[tuple[str, str], SourceTopic] = {}
    reasons: dict[SourceTopic, str] = {}
    for source in sorted(sources, key=lambda one: (len(one.lineage(catalogs)), one.region)):
        lineage = source.lineage(catalogs)
        if not lineage or lineage[-1] == MERGED:
            continue
        chosen = nearest.setdefault((lineage[-1], source.name), source)
        if chosen.region != source.region:
            reasons[source] = f"the same records arrive from {chosen.region}, through as few clusters or fewer"
    return reasons
