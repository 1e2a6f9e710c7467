"""Reading the segments of the Go ancestor, so that an archive migrates in place.

The ancestor wrote timestamps in nanoseconds (which overflow in 2262), no digest and no timestamp type, and wrote null
keys, null values and null header values as empty. What it lost is not guessed: the footer has `fidelity="ancestor"`. Of
the facts that it did not write, `raw_bytes` is Parquet's uncompressed size of the data columns (a little more than the
raw bytes), `largest_record_bytes` is 0, and the timestamp bounds are None. Timestamps count as CreateTime: the ancestor
itself produced them that way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from formats.errors import CorruptSegment
from formats.footer import SegmentFooter, SegmentOrigin
from formats.parquet.guarded_file import DECODE_ERRORS, Watched
from formats.records.schema import CREATE_TIME, SCHEMA
from formats.records.statistics import after, edges, rises
from formats.segment import OffsetRange, Segment, SourcePartition

KEYS = frozenset(
    {"region", "topic", "partition", "level", "startOffset", "endOffset", "messageCount", "createdTimestamp"}
)
BATCH_RECORDS = 8_192  # the ancestor's row groups are as large as its segments, so they are read in parts
READ_BYTES = 1 << 20  # per column and read

_PAIR = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
_STORED = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),  # nanoseconds
        pa.field("headers", pa.list_(pa.field("element", _PAIR, nullable=False)), nullable=False),
    ]
)
_NANOS = 1_000_000
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


def open_ancestor(source: BinaryIO, segment: Segment) -> AncestorReader:
    """Raises CorruptSegment when `source` is not a segment of the ancestor."""
    return AncestorReader(source, segment)


class AncestorReader:
    """See `formats.registry.SegmentReader`; there is no digest to check. Holds one batch and one page per column."""

    def __init__(self, source: BinaryIO, segment: Segment) -> None:
        self._source = source
        self._name = str(segment)
        self._watched = Watched(source)
        try:
            self._parquet = pq.ParquetFile(self._watched, pre_buffer=False, buffer_size=READ_BYTES)
            metadata, schema = self._parquet.metadata, self._parquet.schema_arrow
            stored = {k.decode(): v.decode() for k, v in (metadata.metadata or {}).items()}
            raw_bytes = _raw_bytes(metadata)
            writer = f"ancestor ({metadata.created_by})"
        except DECODE_ERRORS as error:
            self._watched.raise_as(self._name, error, wanted="a segment of ours or the ancestor's")
        if stored.keys() != KEYS:
            raise CorruptSegment(self._name, found=f"footer keys {sorted(stored)}", wanted="ours or the ancestor's")
        if not schema.equals(_STORED):
            found = f"columns {schema.to_string(show_field_metadata=False, show_schema_metadata=False)}"
            raise CorruptSegment(self._name, found=found, wanted=_STORED)
        try:
            self.footer = _footer(stored, writer=writer, raw_bytes=raw_bytes)
        except ValueError as error:
            raise CorruptSegment(self._name, found=repr(error), wanted="the ancestor's footer") from error
        if self.footer.segment != segment:
            raise CorruptSegment(self._name, found=f"the footer of {self.footer.segment}", wanted=segment)
        if metadata.num_rows != self.footer.count or self.footer.count > segment.offsets.count:
            wanted = f"{self.footer.count} by its footer, in {segment.offsets}"
            raise CorruptSegment(self._name, found=f"{metadata.num_rows} records", wanted=wanted)

    def batches(self, from_offset: int = 0) -> Iterator[pa.RecordBatch]:
        offsets = self.footer.offsets
        reached, count = offsets.start - 1, 0
        batches = self._converted()
        for batch in batches:
            first, last = edges(batch)
            if first <= reached or last > offsets.end or not rises(batch) or (not count and first != offsets.start):
                found = f"offsets {first} to {last} after {reached}, or unordered"
                raise CorruptSegment(self._name, found=found, wanted=f"rising ones in {offsets}")
            reached, count = last, count + batch.num_rows
            wanted = after(batch, from_offset)
            if wanted.num_rows:
                yield wanted
        if count != self.footer.count or reached != offsets.end:
            found = f"{count} records up to {reached}"
            raise CorruptSegment(self._name, found=found, wanted=f"{self.footer.count} up to {offsets.end}")

    def _converted(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._parquet.iter_batches(BATCH_RECORDS, use_threads=False):
                if batch.num_rows:
                    yield _convert(batch)
        except DECODE_ERRORS as error:
            self._watched.raise_as(self._name, error, wanted="records of the ancestor")

    def close(self) -> None:
        self._source.close()


def _convert(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert to `SCHEMA`. Raises ArrowInvalid for an offset beyond int64 and for a header key that is not UTF-8."""
    columns = [
        batch.column("offset").cast(pa.int64()),
        _milliseconds(batch.column("timestamp")),
        pa.repeat(pa.scalar(CREATE_TIME, pa.int8()), batch.num_rows),
        batch.column("key"),
        batch.column("value"),
        batch.column("headers").cast(SCHEMA.field("headers").type),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def _milliseconds(nanoseconds: pa.Int64Array) -> pa.TimestampArray:
    """Rounded down, also before 1970, where Arrow's division rounds up."""
    quotient = pc.divide(nanoseconds, _NANOS)
    remainder = pc.subtract(nanoseconds, pc.multiply(quotient, _NANOS))
    return pc.subtract(quotient, pc.less(remainder, 0).cast(pa.int64())).view(SCHEMA.field("timestamp").type)


def _footer(stored: Mapping[str, str], *, writer: str, raw_bytes: int) -> SegmentFooter:
    source = SourcePartition(stored["region"], stored["topic"], _decimal(stored["partition"]))
    offsets = OffsetRange(_decimal(stored["startOffset"]), _decimal(stored["endOffset"]))
    return SegmentFooter(
        segment=Segment(source, _decimal(stored["level"]), offsets),
        origin=SegmentOrigin(
            isolation_level="",
            created_at=_instant(stored["createdTimestamp"]),
            writer=writer,
            fidelity="ancestor",
        ),
        count=_decimal(stored["messageCount"]),
        first_offset=offsets.start,
        last_offset=offsets.end,
        raw_bytes=raw_bytes,
        largest_record_bytes=0,
        min_timestamp_ms=None,
        max_timestamp_ms=None,
        digest=None,
    )


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"not a decimal number: {text!r}")
    return int(text)


def _instant(text: str) -> datetime:
    """Parse RFC 3339 in UTC; nanoseconds are truncated to microseconds."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 time in UTC: {text!r}")
    micros = (match[2] or "").ljust(6, "0")[:6]
    return datetime.fromisoformat(f"{match[1]}.{micros}").replace(tzinfo=UTC)


def _raw_bytes(metadata: pq.FileMetaData) -> int:
    data = [i for i in range(metadata.num_columns) if metadata.schema.column(i).physical_type == "BYTE_ARRAY"]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return sum(group.column(i).total_uncompressed_size for group in groups for i in data)
