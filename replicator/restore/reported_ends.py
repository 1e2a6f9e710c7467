"""How far each partition has to be stored, as its egress reported it.

Segments do not show that the last of them are lost, nor that all of a partition are. Egress stores first and commits
then, so the position that its watermarks have of a partition is not beyond what was stored. Reports of the last hour do
not count: between buckets, watermarks may be copied before the segments that they speak of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timedelta

from formats.control.restore_cut import Cut, cut_topics
from formats.control.watermarks import SourceWatermarks
from formats.errors import DataError
from formats.incarnation import Incarnation
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.archive.generation_history import watermark_generations
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.incarnations_at import IncarnationsAt
from replicator.selection import Selection

COPIED_WITHIN = timedelta(hours=1)


class ReportsUnreadable(DataError):
    """Watermarks that may be the report cannot be decoded."""


def reported_ends(
    archive: Archive, selection: Selection, now: datetime, pool: Executor
) -> Mapping[SourcePartition, int]:
    """Next offsets, above 0, of the selected partitions; of the incarnation and the path of each topic then. A topic
    that has neither a segment nor a claim is named as if it was never created again. Empty without watermarks that old.
    A GET for each incarnation of a selected topic. Raises StoreUnavailable, and ReportsUnreadable."""
    control, region = archive.control, selection.region
    found = watermark_generations(control.objects, control.prefix, region).at(now - COPIED_WITHIN)
    if found.problems:  # one of these may be the report: without it a lost end is not seen
        raise ReportsUnreadable(
            f"how far egress of {region} had archived is not known: {'; '.join(found.problems)}. Put the object back, "
            "from a copy of the bucket or its versions; `verify --as-stored` goes by what is stored alone"
        )
    if found.value is None:
        return {}
    topics = {name: one for name, one in found.value.topics.items() if selection.matches(name)}
    at = IncarnationsAt(_cut(region, found.number, found.value, selection))
    known: dict[str, list[ArchivedIncarnation]] = {}
    for one in sorted({*archive.segments.incarnations(region), *control.claims.incarnations(region)}):
        known.setdefault(one.topic, []).append(ArchivedIncarnation(incarnation=one))

    def then(topic: str) -> ArchivedIncarnation | None:
        if topic not in known:
            return ArchivedIncarnation(incarnation=Incarnation(topic, ""))
        return at.choose(control, region, topic, known[topic])

    return {
        chosen.source(region, number): position
        for topic, chosen in zip(topics, pool.map(then, topics), strict=True)
        if chosen is not None and selection.incarnation in {None, chosen.id}
        for number, position in enumerate(map(_archived, topics[topic].position, topics[topic].high))
        if position and selection.wants(topic, number)
    }


def lost_partitions(archive: Archive, ends: Mapping[SourcePartition, int], pool: Executor) -> Sequence[SourcePartition]:
    """Those of `ends` of which no segment is left, and one should be. Raises StoreUnavailable."""
    folders = sorted({(source.region, source.path) for source in ends})
    numbers = dict(zip(folders, pool.map(lambda folder: archive.segments.partitions(*folder), folders), strict=True))
    absent = [source for source in sorted(ends) if source.partition not in numbers[source.region, source.path]]
    begins = zip(absent, pool.map(archive.control.begins.of, absent), strict=True)
    return [source for source, begin in begins if begin is None or begin.offset < ends[source]]


def without_topics(selection: Selection, gone: Collection[str], there: Collection[str]) -> Selection:
    """`selection` without what names topics that are `gone`, and none that are `there`."""
    kept = [
        pattern
        for pattern in selection.topics
        if any(map(pattern.matches, there)) or not any(map(pattern.matches, gone))
    ]
    return replace(selection, topics=kept)


def _archived(position: int | None, high: int | None) -> int:
    """0: not known. A position is read before the end of the log, so one beyond it is of another log: that of a topic
    created again, or of a log that was cut."""
    return position if position is not None and high is not None and position <= high else 0


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
