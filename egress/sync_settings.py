"""The `[sync]` section: copying segments from bucket to bucket."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from formats.topic_selection import TopicPattern
from infra.settings.field import enforce, setting
from infra.settings.storage import S3Settings, SqsSettings


def _levels(levels: tuple[int, ...]) -> str | None:
    return None if all(0 <= level <= 9999 for level in levels) else "each level must be 0 to 9999"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """Copying of this region's segments from `[s3]` to another bucket, where S3 replication is not available."""

    destination: S3Settings = field(metadata=setting("[sync.destination]: the bucket copied to"))
    queue: SqsSettings | None = field(
        default=None, metadata=setting("[sync.queue]: notifications of the bucket copied from; default: listing only")
    )
    interval: timedelta = field(
        default=timedelta(minutes=1),
        metadata=setting("how often both buckets are listed", minimum=timedelta(seconds=1)),
    )
    topics: tuple[TopicPattern, ...] = field(default=(), metadata=setting("names or expressions; empty = all"))
    levels: tuple[int, ...] = field(default=(), metadata=setting("levels copied; empty = all", check=_levels))

    def __post_init__(self) -> None:
        enforce(self)
