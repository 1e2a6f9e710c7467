"""The part of `replicator status` about values that carry ids of schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from formats.footer import MOST_IDS
from formats.segment import SegmentInfo
from infra.archive.last_good import schemas_in
from replicator.status.schemas import TopicSchemas, read_topic_schemas
from replicator.terminal.output import print_text

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.services.clients import Clients


def schemas_status(settings: Config, reach: Clients, newest: Iterable[SegmentInfo]) -> Sequence[TopicSchemas]:
    """`newest`: the last stored segment of each partition. Raises StoreUnavailable."""
    infos = list(newest)
    if not infos:
        return ()
    regions = {info.segment.source.region for info in infos}
    copies = schemas_in(reach.objects, settings.s3.prefix).refresh(sorted(regions))
    return read_topic_schemas(reach.archive, infos, copies, reach.pool)


def print_schemas(topics: Iterable[TopicSchemas]) -> None:
    for topic in topics:
        print_text(schemas_text(topic))


def schemas_text(topic: TopicSchemas) -> str:
    """The line about a topic whose values carry ids of schemas."""
    ids = ", ".join(map(str, topic.found.ids))
    text = f"{topic.region}/{topic.path}: {topic.share:.0%} of a sample look as if they carry ids of schemas ({ids}"
    text += ", …)" if len(topic.found.ids) == MOST_IDS else ")"
    if not topic.has_copy:
        return f"{text}; the bucket has no copy of their registry: set [schema_registry] at {topic.region}"
    if topic.unknown:
        return f"{text}; the copy of their registry has no {', '.join(map(str, topic.unknown))}"
    return f"{text}; the bucket has them"


def schemas_json(topics: Iterable[TopicSchemas]) -> Sequence[Mapping[str, object]]:
    return [
        {
            "topic": f"{topic.region}/{topic.path}",
            "share": topic.share,
            "ids": list(topic.found.ids),
            "has_copy": topic.has_copy,
            "unknown": list(topic.unknown),
        }
        for topic in topics
    ]
