"""Segments: the records of one source partition for one closed offset range, stored as one immutable object."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from formats.errors import MalformedKey
from formats.incarnation import Incarnation, parse_incarnation

LEVEL_STREAMING = 0  # written by egress; every compaction adds one

_REGION = re.compile(r"[A-Za-z0-9._-]{1,64}")


PARTITIONS = 2**31  # the most that a topic of Kafka may have


def partition_number(name: str) -> int | None:
    """Of the name of a partition's folder, as keys of ours have it: without leading zeros. None: another folder."""
    if not name.isdecimal() or len(name) > len(str(PARTITIONS)):
        return None
    number = int(name)
    return number if name == str(number) and number < PARTITIONS else None


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """The source partition of records: the identity that segments, checkpoints and workers share. `incarnation` is the
    id of `formats.incarnation.Incarnation`."""

    region: str
    topic: str
    partition: int
    incarnation: str = ""

    def __post_init__(self) -> None:
        if not _REGION.fullmatch(self.region):
            raise ValueError(f"not a region name: {self.region!r}")
        Incarnation(self.topic, self.incarnation)  # validates both
        if not 0 <= self.partition < PARTITIONS:
            raise ValueError(f"not a partition number: {self.partition}")

    @classmethod
    def of(cls, region: str, incarnation: Incarnation, partition: int) -> SourcePartition:
        return cls(region, incarnation.topic, partition, incarnation.id)

    @property
    def path(self) -> str:
        """The topic's folder name in the archive."""
        return Incarnation(self.topic, self.incarnation).path

    def __str__(self) -> str:
        return f"{self.region}/{self.path}/{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Kafka offsets `start..end`, both inclusive, `start <= end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end < 2**63:
            raise ValueError(f"not an offset range: {self.start}-{self.end}")

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset <= self.end

    @property
    def next_offset(self) -> int:
        """First offset after the range."""
        return self.end + 1

    @property
    def count(self) -> int:
        """How many offsets it has, at least 1."""
        return self.next_offset - self.start

    def overlaps(self, other: OffsetRange) -> bool:
        return self.start <= other.end and other.start <= self.end

    def __str__(self) -> str:
        return f"[{self.start},{self.end}]"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Name of a segment. `offsets` is the covered range; an offset inside it without a record is known to be empty."""

    source: SourcePartition
    level: int
    offsets: OffsetRange

    def __hash__(self) -> int:
        """Listings are dicts keyed by segment, nearly all of one source; leaving the source out halves the cost."""
        return hash((self.offsets.start, self.offsets.end, self.level))

    def __str__(self) -> str:
        return f"{self.source}/{self.level}/{self.offsets.start:020d}-{self.offsets.end:020d}"


FROZEN_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A stored segment, as reported by a listing or an event."""

    segment: Segment
    size_bytes: int
    stored_at: datetime  # UTC, by the object store's clock
    storage_class: str = field(default="", compare=False)  # as reported by a listing

    @property
    def is_frozen(self) -> bool:
        """Whether the object must be restored before it can be read, which takes hours."""
        return self.storage_class in FROZEN_CLASSES


_KEY = re.compile(
    r"(?P<region>[^/]+)/(?P<path>[^/]+)/(?P<partition>0|[1-9][0-9]{0,9})/"
    r"(?P<level>0|[1-9][0-9]{0,3})/(?P<start>[0-9]{20})-(?P<end>[0-9]{20})"
)


_OFFSETS = re.compile(r"(?P<start>[0-9]{20})-(?P<end>[0-9]{20})")


def parse_offsets(name: str) -> OffsetRange:
    """Parse the offset range in a key's last part. Raises `MalformedKey`."""
    match = _OFFSETS.fullmatch(name)
    try:
        if match is None:
            raise ValueError("expected start-end, of 20 digits each")
        return OffsetRange(int(match["start"]), int(match["end"]))
    except ValueError as error:
        raise MalformedKey(f"not a range of offsets: {name!r} ({error})") from error


def format_key(prefix: str, segment: Segment) -> str:
    """`prefix/region/topic/partition/level/start-end`; offsets have 20 digits, so keys list in offset order."""
    return f"{prefix}/{segment}" if prefix else str(segment)


def partition_prefix(prefix: str, source: SourcePartition, level: int | None = None) -> str:
    """Key prefix of everything stored for `source`, or for one level of it; ends with a slash."""
    base = f"{prefix}/{source}/" if prefix else f"{source}/"
    return base if level is None else f"{base}{level}/"


def parse_source(text: str) -> SourcePartition:
    """Inverse of `str(source)`. Raises `MalformedKey`."""
    return parse_key("", f"{text}/0/{0:020d}-{0:020d}").source


def region_prefix(prefix: str, region: str) -> str:
    """Key prefix of everything below `region`; ends with a slash."""
    return f"{prefix}/{region}/" if prefix else f"{region}/"


@lru_cache(maxsize=1024)  # the keys of a listing name the same few partitions
def _source(region: str, path: str, partition: int) -> SourcePartition:
    return SourcePartition.of(region, parse_incarnation(path), partition)


def parse_key(prefix: str, key: str) -> Segment:
    """Inverse of `format_key`. Raises `MalformedKey` on anything else."""
    head = f"{prefix}/" if prefix else ""
    match = _KEY.fullmatch(key[len(head) :]) if key.startswith(head) else None
    if match is None:
        raise MalformedKey(f"not a segment key below {head!r}: {key!r}")
    try:
        return Segment(
            _source(match["region"], match["path"], int(match["partition"])),
            int(match["level"]),
            OffsetRange(int(match["start"]), int(match["end"])),
        )
    except ValueError as error:
        raise MalformedKey(f"not a segment key: {key!r} ({error})") from error
