"""The `[egress]` section: which topics are archived, and when their segments are sealed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from formats.group_selection import GroupPattern, group_rules
from formats.policies.filters import group_filter, topic_filter
from formats.policies.names import HEARTBEATS
from formats.topic_selection import DEFAULT_EXCLUDES, TopicPattern, TopicRule
from infra.settings.field import Problem, enforce, not_blank, setting
from infra.settings.units import MIB

REFRESH = timedelta(seconds=30)

StartPolicy = Literal["earliest", "latest"] | datetime


def _with_zone(value: object) -> str | None:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return 'must have a time zone, such as "2026-01-31T12:00:00Z"'
        if value < datetime(1970, 1, 1, tzinfo=UTC):
            return "must not be before 1970, where Kafka's time begins"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressTopicSettings:
    """When a segment of a topic is full, and where its archive begins. The first limit reached seals."""

    max_segment_messages: int = field(
        default=1_000_000, metadata=setting("a segment is sealed at this many records", minimum=1)
    )
    max_segment_size: int = field(
        default=100 * MIB,
        metadata=setting("a segment is sealed at this many bytes of keys, values and headers", size=True, minimum=1),
    )
    max_segment_age: timedelta = field(
        default=timedelta(minutes=5),
        metadata=setting(
            "a segment is sealed at this age: how far behind the archive may be; each segment costs requests",
            minimum=timedelta(milliseconds=100),
        ),
    )
    start: StartPolicy = field(
        default="earliest",
        metadata=setting(
            'where a partition that was never archived begins: "earliest", "latest", or a time with zone',
            check=_with_zone,
        ),
    )
    on_gap: Literal["stop", "record"] = field(
        default="stop",
        metadata=setting(
            "when the source dropped records before they were archived (retention, DeleteRecords): stop the partition, "
            "or record the missing offsets in the archive and continue after them"
        ),
    )

    compression_level: int | None = field(
        default=None,
        metadata=setting(
            "zstd level of this topic's segments; default: that of [format_options], else 1. Level 3 takes twice the "
            "processor time, and stores 1 to 6 % more of JSON, 7 to 9 % less of text and of binary rows such as Avro",
            minimum=1,
            maximum=22,
        ),
    )

    def __post_init__(self) -> None:
        enforce(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSettings:
    """Archiving of this region's topics."""

    topics: tuple[TopicRule[EgressTopicSettings], ...] = field(
        metadata=setting(
            'what is archived, in file order: [egress.topics."name"] or [egress.topics."^expression"]', reloads=True
        )
    )
    exclude: tuple[TopicPattern, ...] = field(
        default=(),
        metadata=setting(
            "topics that are not archived, whatever selects them: names or ^expressions. An expression selects nothing "
            "of MirrorMaker 2's default excludes, either: mm2*.internal, *.checkpoints.internal, *.replica, .*",
            reloads=True,
        ),
    )
    topic_filter: str | None = field(
        default=None,
        metadata=setting(
            '"package.module:Class", or an entry point of replicator.filters, that excludes topics, too, by '
            "should_replicate_topic(name)",
            reloads=True,
        ),
    )
    groups: tuple[GroupPattern, ...] = field(
        default=(),
        metadata=setting(
            "consumer groups whose committed offsets are stored beside the archive, every group_interval: names or "
            "^expressions. An expression selects nothing of MirrorMaker 2's default excludes: console-consumer-*, "
            "connect-*, __*",
            reloads=True,
        ),
    )
    groups_exclude: tuple[GroupPattern, ...] = field(
        default=(),
        metadata=setting("groups that are left out, whatever selects them: names or ^expressions", reloads=True),
    )
    group_filter: str | None = field(
        default=None,
        metadata=setting("as topic_filter, for groups, by should_replicate_group(name)", reloads=True),
    )
    processes: int = field(
        default=1,
        metadata=setting(
            "processes of this service on this machine, under one parent: each is a member of the group, with what the "
            "other settings limit for one; group.instance.id gets their number appended",
            minimum=1,
            maximum=64,
        ),
    )
    group_id: str = field(
        default="replicator.egress",
        metadata=setting("consumer group whose offsets record what is archived", check=not_blank),
    )
    memory_budget: int = field(
        default=192 * MIB,
        metadata=setting(
            "memory for records, over all partitions: half for raw ones, a quarter for what the Kafka client fetched, "
            "and a quarter for encoded segments, which go to spool_dir beyond that",
            size=True,
            minimum=16 * MIB,
        ),
    )
    upload_threads: int = field(default=4, metadata=setting("segments uploaded at once", minimum=1, maximum=256))
    spool_dir: Path | None = field(
        default=None,
        metadata=setting(
            "directory of encoded segments until they are stored, up to 4 × memory_budget; default: "
            "the system's temporary directory"
        ),
    )
    topic_refresh_interval: timedelta = field(
        default=REFRESH,
        metadata=setting(
            "how often new topics and partitions are searched for; 0 = an expression selects no topic that appears "
            "after the start, or after the last reload, and everything else is checked every 30 s",
            minimum=timedelta(0),
        ),
    )
    heartbeat_interval: timedelta = field(
        default=timedelta(seconds=5),
        metadata=setting(
            "how often the process that writes the catalogue stores a heartbeat: one small object each time; 0 = no "
            "heartbeats, no catalogue of topics, configs and ACLs, no watermarks, and no groups",
            minimum=timedelta(0),
        ),
    )
    write_heartbeats: bool = field(
        default=False,
        metadata=setting(
            "whether that process also writes each heartbeat to the topic `heartbeats` of this cluster, as MirrorMaker "
            "2 does it; needs WRITE there, and CREATE while the topic does not exist"
        ),
    )
    watermark_interval: timedelta = field(
        default=timedelta(seconds=30),
        metadata=setting(
            "how often that process stores the partitions' log ends and archived positions, if they changed; 0 = never",
            minimum=timedelta(0),
        ),
    )
    group_interval: timedelta = field(
        default=timedelta(seconds=60),
        metadata=setting(
            "how often that process stores what `groups` have committed, if it changed; 0 = never",
            minimum=timedelta(0),
            reloads=True,
        ),
    )
    group_calls_per_second: int = field(
        default=50,
        metadata=setting(
            "how many requests about groups that process makes in a second at most: two for each group",
            minimum=1,
            reloads=True,
        ),
    )
    lag_interval: timedelta = field(default=timedelta(seconds=10), metadata=setting("how often the lag is measured"))
    shutdown_timeout: timedelta = field(
        default=timedelta(seconds=10),
        metadata=setting("how long a stop may wait for uploads in flight", minimum=timedelta(0)),
    )
    on_archive_behind: Literal["stop", "continue"] = field(
        default="stop",
        metadata=setting(
            "when the group's offset lies beyond the archive's end (another bucket, lost objects): stop the partition, "
            "or continue and leave a gap"
        ),
    )

    stuck_transaction_after: timedelta = field(
        default=timedelta(minutes=15),
        metadata=setting(
            "a warning is logged when an open source transaction holds a partition's archive back for so long",
            minimum=timedelta(seconds=1),
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    @property
    def refresh_interval(self) -> timedelta:
        """Between two checks of what may change. They go on where no new topics are searched for."""
        return self.topic_refresh_interval or REFRESH

    @property
    def group_refresh_interval(self) -> timedelta:
        """Between two observations of the groups; 0: nothing is asked about groups."""
        return self.group_interval if self.groups else timedelta()

    @property
    def named_groups(self) -> Sequence[str]:
        """Groups that are selected by their ids."""
        return [one.text for one in self.groups if not one.is_expression]

    @property
    def finds_new_topics(self) -> bool:
        """Whether expressions select topics that appear while the process runs."""
        return bool(self.topic_refresh_interval)

    @property
    def rules(self) -> Sequence[TopicRule[EgressTopicSettings]]:
        """`topics` with what excludes some of theirs, for `formats.topic_selection.select`."""
        filters = () if self.topic_filter is None else (topic_filter(self.topic_filter),)
        exclude = (*self.exclude, *filters)
        own = (TopicPattern(HEARTBEATS),) if self.write_heartbeats else ()  # they cross through the bucket already
        return [TopicRule(rule.pattern, rule.settings, exclude, (*DEFAULT_EXCLUDES, *own)) for rule in self.topics]

    @property
    def group_rules(self) -> Sequence[TopicRule[None]]:
        """For `formats.group_selection.select_groups`."""
        filters = () if self.group_filter is None else (group_filter(self.group_filter),)
        return group_rules(self.groups, (*self.groups_exclude, *filters))

    def _contradictions(self) -> Iterator[Problem]:
        for name, value, load in (
            ("topic_filter", self.topic_filter, topic_filter),
            ("group_filter", self.group_filter, group_filter),
        ):
            if value is not None:
                try:
                    load(value)
                except ValueError as error:
                    yield name, str(error)
        if self.write_heartbeats and not self.heartbeat_interval:
            yield "write_heartbeats", 'must be false with heartbeat_interval = "0s": there are no heartbeats then'
        if self.groups and not self.heartbeat_interval:
            yield "groups", 'must be empty with heartbeat_interval = "0s": committed offsets are stored with heartbeats'
        if not self.topics:
            yield "topics", 'missing: without an [egress.topics."name"] nothing is archived'
