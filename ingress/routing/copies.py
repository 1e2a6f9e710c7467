"""Copies of copies, by the ids of the clusters that a topic's records went through. Pure.

    orders of A ──> B ──> back to A      a cycle: the records are here already
    orders of A ──> B ──> D, and
    orders of A ──> C ──> D              two ways of the same records: one of them is delivered

The way that is delivered is the first of those that

  1. an operator gave a position here (`replicator checkpoints seed`),
  2. have a checkpoint here: delivery began with it, and another one would deliver everything again,
  3. have a topic that exists: what was removed at its source goes on nowhere,
  4. went through the fewest clusters,
  5. come from the first region.

Names do not matter: this decides alone where topics keep their names, or get `.ingress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from formats.control.catalog import MERGED, Catalog
from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import SEED, Author, Checkpoint, CheckpointKey
from ingress.catalog.desired import SourceTopic

Ways = Sequence[SourceTopic]  # of the same records to one destination, at least two, the preferred first
DeliveredWays = Mapping[tuple[str, str, str], "Delivered"]  # by region, topic and destination; no entry: never


class Delivered(IntEnum):
    """What the checkpoints at a destination say of a way, in the order of preference."""

    SEEDED = 0  # an operator gave it a position
    BEGUN = 1
    NEVER = 2


def cycle_of(source: SourceTopic, catalogs: Mapping[str, Catalog], cluster_id: str) -> str:
    """Why the records of `source` are in the cluster `cluster_id` already; empty when they are not, or when it is not
    known."""
    if not cluster_id or cluster_id not in source.lineage(catalogs)[1:]:  # the first is the source's own cluster
        return ""
    return f"{source} is a copy whose records come from this cluster ({cluster_id}): they are not copied back"


def ways_of(sources: Sequence[SourceTopic], catalogs: Mapping[str, Catalog]) -> Sequence[Ways]:
    """Those of `sources`, which have one destination, that bring the same records. Topics of different or unknown
    origin never do."""
    found: dict[tuple[str, str], dict[str, SourceTopic]] = {}
    for source in sorted(sources, key=lambda one: (one.was_removed(catalogs), len(one.lineage(catalogs)), one.region)):
        lineage = source.lineage(catalogs)
        if lineage and lineage[-1] != MERGED:
            found.setdefault((lineage[-1], source.name), {}).setdefault(source.region, source)
    return [tuple(by_region.values()) for by_region in found.values() if len(by_region) > 1]


def delivered_ways(positions: Mapping[CheckpointKey, Checkpoint | CheckpointConflict]) -> DeliveredWays:
    """A checkpoint of any partition counts, and of any incarnation."""
    found: dict[tuple[str, str, str], Delivered] = {}
    for key, position in positions.items():
        way = (key.source.region, key.source.topic, key.destination_topic)
        found[way] = min(found.get(way, Delivered.BEGUN), _delivered(position))
    return found


def _delivered(position: Checkpoint | CheckpointConflict) -> Delivered:
    """A seed shows after it, too: where a delivery began is not recorded when an operator set the position."""
    if isinstance(position, CheckpointConflict):
        return Delivered.BEGUN
    is_seeded = position.author is Author.SEED or position.begun_at is None
    return Delivered.SEEDED if is_seeded else Delivered.BEGUN


def repeated(ways: Ways, destination: str, known: DeliveredWays) -> Mapping[SourceTopic, str]:
    """Those of `ways` that are not delivered to `destination`, with the reason."""
    ranks = {way: known.get((way.region, way.name, destination), Delivered.NEVER) for way in ways}
    chosen = min(ways, key=ranks.__getitem__)  # of equal ones the first, which is preferred
    return {way: _why(chosen, ranks[chosen], way, ranks[way]) for way in ways if way != chosen}


def _why(chosen: SourceTopic, its_rank: Delivered, way: SourceTopic, rank: Delivered) -> str:
    if its_rank == rank:
        return f"the same records arrive from {chosen.region}, the nearest of the ways whose topic exists, or of all"
    decided = "an operator gave them a position" if its_rank is Delivered.SEEDED else "their delivery began"
    return (
        f"the same records arrive from {chosen.region}, where {decided}. To deliver them from {way.region} instead, "
        f"exclude {chosen.name} from the source of {chosen.region}, and then give {way} a position with `{SEED}`"
    )
