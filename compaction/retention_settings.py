"""The `[retention]` section: how long the archive keeps segments, and what it keeps whatever its age."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from formats.segment import OffsetRange
from formats.topic_selection import TopicRule
from infra.settings.field import Problem, enforce, region_name, setting

_HELD = re.compile(r"(?P<partition>\*|[0-9]{1,10}):(?P<start>[0-9]{1,19})-(?P<end>[0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """Offsets that are never removed: of one partition, or (None) of every partition."""

    partition: int | None
    offsets: OffsetRange

    @classmethod
    def parse(cls, text: str) -> HeldOffsets:
        """Inverse of `str`. Raises ValueError."""
        match = _HELD.fullmatch(text.strip())
        if match is None:
            raise ValueError(f'{text!r} must be partition:first-last, such as "3:1000-2000", or "*:0-99" for each')
        partition = None if match["partition"] == "*" else int(match["partition"])
        return cls(partition, OffsetRange(int(match["start"]), int(match["end"])))

    def __str__(self) -> str:
        partition = "*" if self.partition is None else self.partition
        return f"{partition}:{self.offsets.start}-{self.offsets.end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """What is kept of each partition of a topic. An unset limit removes nothing; with two limits, either does."""

    max_age: timedelta | None = field(
        default=None,
        metadata=setting(
            "segments stored longer ago are removed, by the store's clock; a merge restarts the age; default: no limit",
        ),
    )
    max_bytes: int | None = field(
        default=None,
        metadata=setting(
            "stored bytes kept of each partition, the newest that readers use; default: no limit", size=True, minimum=1
        ),
    )
    keep_segments: int = field(
        default=1, metadata=setting("number of newest segments that readers use, kept whatever the limits", minimum=1)
    )
    hold: tuple[HeldOffsets, ...] = field(
        default=(),
        metadata=setting('offsets kept whatever the limits: "3:1000-2000" of partition 3, "*:0-99" of each'),
    )

    def __post_init__(self) -> None:
        enforce(self)

    def held_offsets(self, partition: int) -> list[OffsetRange]:
        return [one.offsets for one in self.hold if one.partition in (None, partition)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """What `replicator gc` removes from the archive. A topic without a rule is kept for ever."""

    topics: tuple[TopicRule[RetentionRule], ...] = field(
        metadata=setting(
            'limits by topic, in file order: [retention.topics."name"] or [retention.topics."^expression"]'
        )
    )
    max_delete_percent: int = field(
        default=50,
        metadata=setting(
            "a run that would remove more of a topic's stored bytes leaves the topic alone, without --allow-large",
            minimum=1,
            maximum=100,
        ),
    )
    upload_grace: timedelta = field(
        default=timedelta(days=1),
        metadata=setting("uploads begun longer ago and never completed are aborted", minimum=timedelta(hours=1)),
    )
    delete_grace: timedelta = field(
        default=timedelta(hours=1),
        metadata=setting(
            "with --covered: how long a segment stays, for readers, after the one that holds its records is stored",
            minimum=timedelta(0),
        ),
    )
    region: str | None = field(
        default=None, metadata=setting("whose archive; default: this region's", check=region_name)
    )
    owner: bool = field(
        default=False,
        metadata=setting(
            "allow another region's archive: only for a copy that receives no deletions from its source, since two "
            "regions must never change the same objects"
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def _contradictions(self) -> Iterator[Problem]:
        if not self.topics:
            yield "topics", 'missing: without a [retention.topics."name"] nothing is removed'
