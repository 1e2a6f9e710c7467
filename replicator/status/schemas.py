"""Which topics have values with ids of schemas, and whether their registry is in the bucket.

By the footer of the last stored segment of each topic: one object is opened for each, of at most MOST_TOPICS topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.control.schemas import SchemaSnapshot
from formats.errors import CorruptSegment, SegmentNotFound
from formats.footer import SchemaIds
from formats.segment import Segment, SegmentInfo

if TYPE_CHECKING:  # it loads Arrow, which `status` needs for nothing else
    from infra.archive.archive import Archive

MOST_TOPICS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSchemas:
    """Of one archive path."""

    region: str
    path: str
    found: SchemaIds
    has_copy: bool  # the bucket has a copy of the region's registry
    unknown: tuple[int, ...]  # ids that are not in it

    @property
    def share(self) -> float:
        return self.found.carrying / self.found.sampled


def read_topic_schemas(
    archive: Archive, newest: Iterable[SegmentInfo], copies: Mapping[str, SchemaSnapshot], pool: Executor
) -> Sequence[TopicSchemas]:
    """`newest`: the last stored segment of each partition; `copies`: by region. A segment that cannot be read is left
    out: other parts of `status` and `verify` name it. Raises StoreUnavailable."""
    last: dict[tuple[str, str], SegmentInfo] = {}
    for info in newest:
        where = (info.segment.source.region, info.segment.source.path)
        if where not in last or info.stored_at > last[where].stored_at:
            last[where] = info
    chosen = [last[where].segment for where in sorted(last)[:MOST_TOPICS]]
    return [
        topic_schemas(segment, found, copies.get(segment.source.region))
        for segment, found in zip(chosen, pool.map(lambda one: _schema_ids(archive, one), chosen), strict=True)
        if found is not None
    ]


def topic_schemas(segment: Segment, found: SchemaIds, copy: SchemaSnapshot | None) -> TopicSchemas:
    return TopicSchemas(
        region=segment.source.region,
        path=segment.source.path,
        found=found,
        has_copy=copy is not None,
        unknown=() if copy is None else tuple(one for one in found.ids if one not in copy.schemas),
    )


def _schema_ids(archive: Archive, segment: Segment) -> SchemaIds | None:
    try:
        return archive.footer(segment).schema_ids
    except (SegmentNotFound, CorruptSegment):
        return None
