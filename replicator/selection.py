"""The selection of a restore: which records of the archive, changed how, and into which topics. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b

from formats.incarnation import LEGAL_NAME, Incarnation
from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.segment import SourcePartition
from formats.topic_selection import TopicPattern, is_internal

TOPIC_SIGN = "{topic}"


@dataclass(frozen=True, slots=True)
class Renaming:
    """`names` take precedence over `template`, in which `{topic}` stands for the source's name. Raises ValueError."""

    names: Mapping[str, str] = field(default_factory=dict)
    template: str = TOPIC_SIGN

    def __post_init__(self) -> None:
        if TOPIC_SIGN not in self.template:
            raise ValueError(f"{self.template!r} gives every topic the same name: write {TOPIC_SIGN} into it")

    def decides(self, topic: str) -> bool:
        """Whether the renaming covers `topic`; otherwise it keeps its name."""
        return topic in self.names or self.template != TOPIC_SIGN

    def __call__(self, topic: str) -> str:
        """The target name of `topic`. Raises ValueError if it is not a legal topic name."""
        name = self.names.get(topic) or self.template.replace(TOPIC_SIGN, topic)
        if not LEGAL_NAME.fullmatch(name) or name in (".", "..") or is_internal(name, ()):
            raise ValueError(f"{topic} would be restored as {name!r}, which is no name for it")
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """An equal selection means the same restore, named by `digest`."""

    region: str
    topics: Sequence[TopicPattern]  # a topic matches any of them
    incarnation: str | None = None  # of each topic; empty: the plain path; None: the last one
    partitions: Collection[int] | None = None  # None: all
    only: Collection[tuple[str, int]] | None = None  # restricts them to these: topic and partition
    offsets: IntRange = ANY_OFFSET
    timestamps: IntRange = ANY_TIME  # in milliseconds
    renaming: Renaming = field(default_factory=Renaming)
    transforms: Sequence[str] = ()  # names of the functions that filter or change records, in order
    on_spark: bool = False
    at: datetime | None = None  # UTC; what the source held then; None: whatever is stored
    preserves_offsets: bool = False  # whether each record keeps its offset
    is_transactional: bool = False  # or at the nearest earlier moment that splits no transaction

    def __post_init__(self) -> None:
        if self.at is None and self.is_transactional:
            raise ValueError("an earlier moment than which? --transactional needs --at")
        if self.at is not None and self.timestamps.is_bounded:
            raise ValueError(
                "--at is about what the source held, whatever the timestamps: leave out --from and --until"
            )
        if self.preserves_offsets and self.transforms:
            raise ValueError(
                "--filter and --map may change records, and --preserve-offsets compares what a killed run left with "
                "the archive: use one of them"
            )

    def matches(self, topic: str) -> bool:
        return any(pattern.matches(topic) for pattern in self.topics)

    def wants(self, topic: str, partition: int) -> bool:
        """Whether a partition of a matching topic is selected."""
        by_number = self.partitions is None or partition in self.partitions
        return by_number and (self.only is None or (topic, partition) in self.only)

    @property
    def is_whole(self) -> bool:
        """Whether every partition of the matching topics is selected."""
        return self.partitions is None and self.only is None

    @property
    def digest(self) -> str:
        fields: dict[str, object] = {
            "incarnation": self.incarnation,
            "names": dict(self.renaming.names),
            "on_spark": self.on_spark,
            "offsets": [self.offsets.low, self.offsets.high],
            "only": None if self.only is None else sorted(self.only),
            "partitions": None if self.partitions is None else sorted(self.partitions),
            "region": self.region,
            "stamps": [self.timestamps.low, self.timestamps.high],
            "template": self.renaming.template,
            "topics": sorted(str(pattern) for pattern in self.topics),
            "transforms": list(self.transforms),
        }
        if self.at is not None:
            fields |= {"at": self.at.isoformat(), "transactional": self.is_transactional}
        if self.preserves_offsets:
            fields["preserves_offsets"] = True
        return blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=5).hexdigest()


CHECKPOINTS = "replicator.restore."
_OFFSET_MAP = ".offsetmap"
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def checkpoint_topic(selection: Selection, restore_id: str) -> str:
    """The topic with the checkpoints of a restore. Its name holds the restore's id and the digest of its selection.
    Raises ValueError."""
    if not _ID.fullmatch(restore_id):
        raise ValueError(f"{restore_id!r} is no name for a restore: 1 to 100 of A-Z a-z 0-9 _ -")
    return f"{CHECKPOINTS}{restore_id}.{selection.digest}"


def checkpoint_topics(restore_id: str, topics: Iterable[str]) -> Sequence[str]:
    """The checkpoint topics of the restore with this id, of any selection."""
    own = f"{CHECKPOINTS}{restore_id}."
    return [topic for topic in topics if topic.startswith(own) and not topic.endswith(_OFFSET_MAP)]


def restored_offset_map(checkpoints: str) -> str:
    """The topic with the offset map of the restore that has this checkpoint topic."""
    return f"{checkpoints}{_OFFSET_MAP}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceName:
    """An incarnation of a topic in the archive, or one partition of it."""

    region: str
    incarnation: Incarnation
    partition: int | None

    def at(self, partition: int) -> SourcePartition:
        return SourcePartition.of(self.region, self.incarnation, partition)

    @property
    def topic(self) -> str:
        return self.incarnation.topic

    @property
    def path(self) -> str:
        return self.incarnation.path

    def __contains__(self, source: SourcePartition) -> bool:
        return source == self.at(source.partition if self.partition is None else self.partition)

    def __str__(self) -> str:
        name = f"{self.region}/{self.path}"
        return name if self.partition is None else f"{name}/{self.partition}"
