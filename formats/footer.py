"""The segment footer: facts about the records, and the digest that proves them.

The digest of a run of records is one CRC-64/NVME and one byte length for each column stream. Digests of adjoining runs
combine, so the digest of a merged segment is provable from the digests of its inputs, and source, archive and target
can be compared column by column. `formats.records.digest` computes and combines digests.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from formats.segment import OffsetRange, Segment

STREAMS = (
    "offset",
    "timestamp",
    "timestamp_type",
    "key.length",
    "key.data",
    "value.length",
    "value.data",
    "headers.count",
    "headers.key.length",
    "headers.key.data",
    "headers.value.length",
    "headers.value.data",
)
"""Column streams in digest order. Numbers are little-endian; lengths are int32, −1 for null; headers.count is int32,
0 for none; nothing is hashed under a null."""

MOST_IDS = 16  # of schemas, in a footer


@dataclass(frozen=True, slots=True)
class Stream:
    crc: int  # CRC-64/NVME, unsigned
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Digest of zero or more records in offset order; `streams` are in the order of `STREAMS`."""

    count: int
    streams: tuple[Stream, ...]

    def __post_init__(self) -> None:
        if len(self.streams) != len(STREAMS):
            raise ValueError(f"a digest has {len(STREAMS)} streams, not {len(self.streams)}")

    @property
    def content(self) -> str:
        """One hex word over all streams except `offset`: equal for equal records at different offsets."""
        return _word(self.count, self.streams[1:])

    @property
    def whole(self) -> str:
        """One hex word over all streams, including `offset`."""
        return _word(self.count, self.streams)


def _word(count: int, streams: tuple[Stream, ...]) -> str:
    text = ";".join([str(count), *(f"{s.crc:016x}:{s.length_bytes}" for s in streams)])
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOrigin:
    """Facts known when a segment is opened or sealed that cannot be derived from its records."""

    topic_id: str = ""  # empty: the broker has none, or the writer did not know it
    cluster_id: str = ""
    source_partition_count: int | None = None
    isolation_level: str = "read_committed"
    last_leader_epoch: int | None = None
    catalog_generation: int | None = None
    created_at: datetime  # UTC; for a merged segment, that of its newest input
    writer: str  # name and version of the program
    role: str = ""  # what of the program wrote it; empty: its writer did not say so
    created_by: str = ""  # the operator's name for the installation; empty: none
    fidelity: str = "exact"  # or "ancestor", which wrote null keys, values and header values as empty


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaIds:
    """Of a sample of the values; `formats.records.schema_ids` takes it."""

    sampled: int  # values that are not null
    carrying: int  # of these, values that look as if they carry an id
    ids: tuple[int, ...]  # ascending; at most MOST_IDS, the first that were seen

    def __post_init__(self) -> None:
        if not 0 < self.carrying <= self.sampled or not self.ids or len(self.ids) > MOST_IDS:
            raise ValueError(f"{self.carrying} of {self.sampled} values with ids {self.ids}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFooter:
    """The content of a footer. `segment.offsets` is the covered range; the other fields describe its records."""

    segment: Segment
    origin: SegmentOrigin
    count: int
    first_offset: int | None  # of a record; None when the range holds no record
    last_offset: int | None
    raw_bytes: int  # keys, values, header keys and header values, before encoding
    largest_record_bytes: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    digest: Digest | None  # None: written by the ancestor, which has no digests
    keyless_count: int | None = None  # records without a key; None: its writer did not count them
    schema_ids: SchemaIds | None = None  # of a sample of its values; None: none was found, or searched for

    @property
    def offsets(self) -> OffsetRange:
        return self.segment.offsets
