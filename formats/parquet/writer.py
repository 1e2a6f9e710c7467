"""Segments as Parquet files: the schema of `formats.records.schema`, a JSON footer, and checksums for each row group.

    PAR1 | row group | row group | … | seal, CRC of what follows | Parquet metadata (with our footer), its length, PAR1

Every byte is verified before a Parquet decoder reads it: row groups by a CRC in the footer, the metadata by the seal in
front of it. Other Parquet readers ignore the seal. `docs/decisions/0001` explains why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from awscrt import checksums

from formats.footer import SegmentFooter, SegmentOrigin
from formats.parquet import footer_json as footers
from formats.parquet.compression_level import FAST, level_by_sample
from formats.parquet.footer_json import RowGroup
from formats.parquet.reader import METADATA_LIMIT_BYTES, open_parquet, seal
from formats.records.digest import EMPTY, combine, digest_of
from formats.records.gather import gathered
from formats.records.schema import SCHEMA
from formats.records.schema_ids import SchemaIdSample
from formats.records.statistics import (
    SegmentStatistics,
    edges,
    first_offset,
    last_offset,
    record_bytes,
    rises,
    row_groups,
)
from formats.registry import SegmentReader
from formats.segment import Segment

_ENCODINGS = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "timestamp_type": "PLAIN",
    "key": "PLAIN",
    "value": "PLAIN",
    "headers.list.element.key": "PLAIN",
    "headers.list.element.value": "PLAIN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFormat:
    """The format `parquet`. Options concern writing only; all our segments and the ancestor's are readable."""

    compression: str = "zstd"
    # None: 1 for zstd, else the codec's default; "auto", of zstd only: by a sample of each segment's first records
    compression_level: int | Literal["auto"] | None = None
    row_group_bytes: int = 16 << 20  # raw; a reader holds one row group
    row_group_records: int = 250_000  # bounds memory when records are (nearly) empty
    page_bytes: int = 1 << 20
    name: str = "parquet"

    def __post_init__(self) -> None:
        for limit in ("row_group_bytes", "row_group_records", "page_bytes"):
            if getattr(self, limit) < 1:
                raise ValueError(f"{limit} must be at least 1")
        codec, level = self.compression, self.compression_level
        if level == "auto":
            if codec != "zstd":
                raise ValueError(f"compression_level 'auto' is of zstd, not of {codec!r}")
            level = FAST
        try:
            if codec != "none":
                pa.Codec(codec, compression_level=level)
            # Arrow does not check the bounds here: zstd would clamp, other codecs fail at the first page
            if level is not None:
                low, high = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
                if not low <= level <= high:
                    raise ValueError(f"levels are {low} to {high}")
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise ValueError(f"compression {codec!r}, compression_level {level!r}: {error}") from error

    def level(self, batches: Sequence[pa.RecordBatch]) -> int | None:
        """The level passed to the codec for a segment that begins with these batches."""
        if self.compression_level == "auto":
            return level_by_sample(batches)
        return FAST if self.compression_level is None and self.compression == "zstd" else self.compression_level

    def create(self, sink: BinaryIO) -> ParquetSegmentWriter:
        return ParquetSegmentWriter(sink, self)

    def open(self, source: BinaryIO, segment: Segment) -> SegmentReader:
        return open_parquet(source, segment)


class ParquetSegmentWriter:
    """See `formats.registry.SegmentWriter`. Holds about 13 KiB, 3 KiB more for every row group written, and the last
    column of the last row group until the next one."""

    def __init__(self, sink: BinaryIO, options: ParquetFormat) -> None:
        self._sink = _Sink(sink)
        self._options = options
        self._usable = True
        self._facts, self._schema_ids = SegmentStatistics(), SchemaIdSample()
        self._row_groups: list[bytes] = []  # packed: thousands of writers may be open
        self._digest = EMPTY
        self._encoder: pq.ParquetWriter | None = None  # from the first records on, which choose its level

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Raises ValueError when offsets do not rise, or when a batch has another schema. After any error only `abort`
        may be called."""
        self._start("write")
        reached = -1 if self._facts.last_offset is None else self._facts.last_offset
        measured = []
        for batch in gathered(batches):
            _check(batch)
            first, last = edges(batch)
            if first <= reached or not rises(batch):
                raise ValueError(f"offsets do not rise: {reached} before a batch from {first} to {last}")
            reached = last
            measured.append((batch, record_bytes(batch)))
        options = self._options
        for run in row_groups(measured, limit_bytes=options.row_group_bytes, limit_records=options.row_group_records):
            self._write_row_group(run)
        self._usable = True

    def _write_row_group(self, run: Sequence[tuple[pa.RecordBatch, pa.Int64Array]]) -> None:
        batches = [batch for batch, _ in run]
        table = pa.Table.from_batches(batches, SCHEMA)
        self._parquet(batches).write_table(table, row_group_size=table.num_rows)
        for batch, sizes in run:
            self._facts.update(batch, sizes)
            self._schema_ids.update(batch)
        stored_bytes, stored_crc = self._sink.take()
        group = RowGroup(
            first_offset=first_offset(batches[0]),
            last_offset=last_offset(batches[-1]),
            stored_bytes=stored_bytes,
            stored_crc=stored_crc,
            digest=digest_of(batches),
        )
        self._row_groups.append(group.pack())
        self._digest = combine(self._digest, group.digest)

    def close(self, segment: Segment, origin: SegmentOrigin) -> SegmentFooter:
        self._start("close")
        facts = self._facts
        for offset in (facts.first_offset, facts.last_offset):
            if offset is not None and offset not in segment.offsets:
                raise ValueError(f"record {offset} is outside of {segment}")
        footer = SegmentFooter(
            segment=segment,
            origin=origin,
            count=facts.count,
            first_offset=facts.first_offset,
            last_offset=facts.last_offset,
            raw_bytes=facts.raw_bytes,
            largest_record_bytes=facts.largest_record_bytes,
            min_timestamp_ms=facts.min_timestamp_ms,
            max_timestamp_ms=facts.max_timestamp_ms,
            digest=self._digest,
            keyless_count=facts.keyless_count,
            schema_ids=self._schema_ids.found,
        )
        encoder = self._parquet([])
        encoder.add_key_value_metadata({footers.KEY: footers.encode(footer, self._row_groups)})
        self._sink.hold()  # the seal goes in front of the metadata, and is a CRC of it
        encoder.close()
        tail = self._sink.release()
        if len(tail) > METADATA_LIMIT_BYTES:
            raise ValueError(
                f"{segment} has {len(self._row_groups)} row groups, whose metadata of {len(tail)} bytes no reader "
                "takes: raise row_group_bytes and row_group_records, or batch_size of the compaction job"
            )
        self._sink.write(seal(tail))
        self._sink.write(tail)
        return footer

    def _start(self, step: str) -> None:
        """Begin a step. The writer is unusable until the step succeeds, which makes it usable again."""
        if not self._usable:
            raise ValueError(f"cannot {step}: the writer is closed, or an earlier step failed")
        self._usable = False

    def abort(self) -> None:
        self._usable = False
        encoder = self._encoder
        if encoder is not None and encoder.is_open:
            self._sink.hold()  # discard what the encoder still writes
            with contextlib.suppress(pa.ArrowException, OSError):  # it may have failed before
                encoder.close()
            encoder.is_open = False
            self._sink.release()

    def _parquet(self, batches: Sequence[pa.RecordBatch]) -> pq.ParquetWriter:
        """The encoder; it begins the file. `batches`: the first records."""
        if self._encoder is None:
            options = self._options
            self._encoder = pq.ParquetWriter(
                self._sink,
                SCHEMA,
                compression=options.compression,
                compression_level=options.level(batches),
                data_page_size=options.page_bytes,
                use_dictionary=False,
                column_encoding=_ENCODINGS,
                write_statistics=["offset", "timestamp"],
                write_page_checksum=False,  # the CRC of the row group is checked first, and covers more
                store_schema=False,
            )
        return self._encoder


def _check(batch: pa.RecordBatch) -> None:
    """Raises ValueError for data that Parquet would reject late, or store as something else."""
    pairs = batch.column("headers").flatten()
    required = [*(batch.column(name) for name in ("offset", "timestamp", "timestamp_type")), pairs, pairs.field(0)]
    if any(column.null_count for column in required):
        raise ValueError("a null in a column, or in a header, that must not have any")


class _Sink:
    """The file that the Parquet encoder writes to: counts and hashes the bytes, and can buffer them."""

    closed = False

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._length = self._crc = 0  # of the bytes since the last `take`
        self._buffered: list[bytes] | None = None

    def write(self, data: bytes) -> int:
        self._length += len(data)
        if self._buffered is not None:
            self._buffered.append(data)
            return len(data)
        self._crc = checksums.crc64nvme(data, self._crc)
        written = self._target.write(data)
        while written < len(data):  # a raw file may write only a part
            written += self._target.write(memoryview(data)[written:])
        return len(data)

    def take(self) -> tuple[int, int]:
        """Length and CRC of the bytes written since the last call, or since the start."""
        taken = self._length, self._crc
        self._length = self._crc = 0
        return taken

    def hold(self) -> None:
        self._buffered = []

    def release(self) -> bytes:
        """Return the buffered bytes; later writes go through again."""
        buffered, self._buffered = b"".join(self._buffered or ()), None
        return buffered

    def flush(self) -> None: ...

    def close(self) -> None:
        """Does nothing: the caller owns the sink."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
