"""Which destinations may be deleted because their source topics are gone: `removals = "mirror"`.

    the catalogue lists the removal of each incarnation that was delivered, by its topic id: an absence says nothing
    everything that is stored of them is delivered, `first_segment_delay` after the removal was observed
    where it was a copy, no other region has the same records as near: a way that was left out since this one had begun
    of one source region not more than half of what we created goes at a time, nor more than one of a few

Topic ids never come back, so a catalogue that is out of date deletes nothing that its source still has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.control.catalog import MERGED, Catalog
from formats.errors import OF_ONE_OBJECT
from formats.messages.delivery_checkpoint import SEED, CheckpointKey
from formats.messages.ledger import OwnedTopic
from ingress.catalog.desired import KeptTopic, SourceTopic
from ingress.catalog.first_copy import CopiedTopic, FirstCopies, Goals, are_reached

LIST_AGAIN = timedelta(minutes=5)  # what is stored of one that is not delivered whole
Removals = Mapping[tuple[str, str], datetime]  # by name and id of a topic: when it was observed


@dataclass(slots=True)
class RemovedSources:
    """Use from one thread at a time. Raises StoreUnavailable."""

    copies: FirstCopies
    _ends: dict[tuple[str, str], tuple[datetime, Goals]] = field(default_factory=dict)  # by name and topic id

    def obstacles(
        self,
        gone: Collection[str],
        kept: Mapping[str, KeptTopic],
        owned: Mapping[str, OwnedTopic],
        *,
        catalogs: Mapping[str, Catalog],
        positions: Mapping[CheckpointKey, object],
        now: datetime,
    ) -> Mapping[str, str]:
        """For each destination of ours in `gone`, whose sources are: why it may not be deleted; empty when it may."""
        asked = [name for name in gone if name in owned]
        if not asked:
            return {}
        removals = {
            region: {(one.name, one.topic_id): one.removed_at for one in catalog.removed}
            for region, catalog in catalogs.items()
        }
        left = {name: _too_many(kept[name], asked, kept, owned) or _still_there(kept[name], catalogs) for name in asked}
        return {name: left[name] or self._obstacle(kept[name], owned[name], removals, positions, now) for name in asked}

    def _obstacle(
        self,
        kept: KeptTopic,
        owned: OwnedTopic,
        removals: Mapping[str, Removals],
        positions: Mapping[CheckpointKey, object],
        now: datetime,
    ) -> str:
        for region, incarnation in kept.archived:
            try:
                claim = self.copies.control.claims.of(region, incarnation.path)
            except OF_ONE_OBJECT as error:
                return str(error)
            if claim is None or not claim.topic_id:
                return f"the archive of {region}/{incarnation.path} does not say which topic of that name it has"
            removed_at = removals.get(region, {}).get((incarnation.topic, claim.topic_id))
            if removed_at is None:
                return f"the removal of {region}/{incarnation.path} with the topic id {claim.topic_id} is not known"
            if now < removed_at + kept.first_segment_delay:
                return "segments of it may still arrive: first_segment_delay has not passed since it was removed"
        key = (owned.name, owned.topic_id)
        listed_at, ends = self._ends.get(key, (None, {}))
        if listed_at is None or now >= listed_at + LIST_AGAIN:
            copied = CopiedTopic(owned=owned, sources=kept.archived, delay=kept.first_segment_delay)
            ends = self.copies.stored_ends(copied)
            self._ends[key] = now, ends
        if not ends or not are_reached(ends, positions, owned.topic_id):
            return "not everything that is stored of it is delivered"
        del self._ends[key]  # listed again, if it is not deleted
        return ""


def _still_there(one: KeptTopic, catalogs: Mapping[str, Catalog]) -> str:
    for source in one.sources:
        own = source.lineage(catalogs)
        for region in sorted(catalogs.keys() - {source.region}) if own and own[-1] != MERGED else ():
            other = SourceTopic(region=region, name=source.name)
            lineage = other.lineage(catalogs)
            if other.found_in(catalogs) is not None and lineage[-1] == own[-1] and len(lineage) <= len(own):
                return (
                    f"the same records are still in {other}. To deliver them from there, exclude {source.name} from "
                    f"the source of {source.region}, and then give {other} a position with `{SEED}`"
                )
    return ""


def _too_many(
    one: KeptTopic, gone: Collection[str], kept: Mapping[str, KeptTopic], owned: Mapping[str, OwnedTopic]
) -> str:
    for region in sorted({source.region for source in one.sources}):
        of_region = {name for name in owned if any(source.region == region for source in kept[name].sources)}
        going = of_region.intersection(gone)
        if len(going) > max(1, len(of_region) // 2):
            return (
                f"{len(going)} of the {len(of_region)} topics that this process keeps like those of {region} are gone "
                "at once, and more than half are never deleted: delete them by hand, if that is right"
            )
    return ""
