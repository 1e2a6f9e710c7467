"""How far each partition has to be stored, as its egress reported it.

Segments do not show that the last of them are lost, nor that all of a partition are. Egress stores first and commits
then, so the position that its watermarks have of a partition is behind what was stored. Reports of the last hour do not
count: between buckets, watermarks may be copied before the segments that they speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from formats.control.restore_cut import Cut, cut_topics
from formats.control.watermarks import SourceWatermarks
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.archive.generation_history import watermark_generations
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.incarnations_at import IncarnationsAt
from replicator.selection import Selection

COPIED_WITHIN = timedelta(hours=1)


def reported_ends(archive: Archive, selection: Selection, now: datetime) -> Mapping[SourcePartition, int]:
    """Next offsets, above 0, of the selected partitions; of the incarnation and the path of each topic then. Empty
    without watermarks that old. One LIST, and a GET for each incarnation of a topic. Raises StoreUnavailable."""
    control, region = archive.control, selection.region
    found = watermark_generations(control.objects, control.prefix, region).at(now - COPIED_WITHIN)
    if found.value is None:
        return {}
    incarnations = IncarnationsAt(_cut(region, found.number, found.value, selection))
    stored: dict[str, list[ArchivedIncarnation]] = {}
    for one in sorted({*archive.segments.incarnations(region), *control.claimed(region)}):
        stored.setdefault(one.topic, []).append(ArchivedIncarnation(incarnation=one))
    ends = {}
    for topic, then in found.value.topics.items():
        chosen = incarnations.choose(control, region, topic, stored[topic]) if topic in stored else None
        if chosen is None or not selection.matches(topic) or selection.incarnation not in {None, chosen.id}:
            continue
        for number, position in enumerate(then.position):
            if position and selection.wants(topic, number):
                ends[chosen.source(region, number)] = position
    return ends


def _cut(region: str, number: int, value: SourceWatermarks, selection: Selection) -> Cut:
    return Cut(
        region=region,
        wanted_at=value.observed_at,
        generation=number,
        observed_at=value.observed_at,
        settled_at=None,
        next_observed_at=None,
        is_transactional=False,
        topics=cut_topics(value, selection.matches),
    )
