"""Reading Parquet segments: bytes are verified before they are decoded, and records before they are yielded.

    tail ── seal matches? ── metadata ── schema, footer and key agree?
    row group ── stored CRC matches? ── decode ── digest, offsets match? ── yield

Reads of the source: one for the tail, one for each row group, and a second for the tail if the metadata exceeds 64 KiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from awscrt import checksums

from formats.errors import CorruptSegment
from formats.footer import SegmentFooter
from formats.parquet import ancestor
from formats.parquet import footer_json as footers
from formats.parquet.footer_json import RowGroup
from formats.parquet.guarded_file import DECODE_ERRORS, Window, read_range, size_of
from formats.records.digest import digest_of
from formats.records.schema import SCHEMA
from formats.records.statistics import after, first_offset, last_offset, rises
from formats.registry import SegmentReader
from formats.segment import Segment

MAGIC = b"PAR1"
TAIL_BYTES = 64 << 10  # what pyarrow asks for first, too
METADATA_LIMIT_BYTES = 64 << 20  # some 40,000 row groups; more is a damaged length
# Decoded at a time, about. Arrow's buffers grow by copying to new memory, whose page faults cost as much as decoding
# itself when a whole row group is one batch; buffers of this size are used again. Measured on 1 kB records: 1.1 instead
# of 1.9 CPU-seconds per million.
BATCH_BYTES = 1 << 20

_SEAL = struct.Struct("<8sQ")  # in front of the metadata: a mark, and the CRC-64/NVME of everything after the seal
_MARK = b"KSRSEAL1"


def seal(tail: bytes) -> bytes:
    """The seal for `tail`, which is the Parquet metadata, its length and the magic."""
    return _SEAL.pack(_MARK, checksums.crc64nvme(tail))


def open_parquet(source: BinaryIO, segment: Segment) -> SegmentReader:
    """A reader of our segment or of the ancestor's. It owns `source`, which is closed if this raises."""
    try:
        name = str(segment)
        size = size_of(source)
        start, tail = _read_tail(source, name, size)
        length = _metadata_bytes(name, tail, size) + 8
        at = size - length - _SEAL.size
        if at < start and at >= 0:
            start, tail = at, read_range(source, name, at, size - at)
        mark, crc = _SEAL.unpack_from(tail, at - start) if at >= 0 else (b"", 0)
        if mark != _MARK:
            # not sealed, so not ours; the ancestor's metadata has no checksum and is recognised by its keys
            return ancestor.open_ancestor(source, segment)
        found = checksums.crc64nvme(memoryview(tail)[at - start + _SEAL.size :])
        if found != crc:
            raise CorruptSegment(name, found=f"metadata with CRC {found:016x}", wanted=f"{crc:016x}")
        return ParquetSegmentReader(source, segment, _Sealed(size=size, at=at, start=start, tail=tail))
    except BaseException:
        source.close()
        raise


def batch_rows(row_group: pq.RowGroupMetaData) -> int:
    """Records that are decoded at a time."""
    return max(int(row_group.num_rows) * BATCH_BYTES // max(int(row_group.total_byte_size), 1), 1)


def _from(batches: list[pa.RecordBatch], offset: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        wanted = after(batch, offset)
        if wanted.num_rows:
            yield wanted


def _read_tail(source: BinaryIO, name: str, size: int) -> tuple[int, bytes]:
    if size < 12:
        raise CorruptSegment(name, found=f"{size} bytes", wanted="a Parquet file")
    start = max(size - TAIL_BYTES, 0)
    return start, read_range(source, name, start, size - start)


def _metadata_bytes(name: str, tail: bytes, size: int) -> int:
    length, magic = struct.unpack("<I4s", tail[-8:])
    if magic != MAGIC:
        raise CorruptSegment(name, found=f"{magic!r} at its end", wanted=MAGIC)
    if length > min(size - 12, METADATA_LIMIT_BYTES):
        raise CorruptSegment(name, found=f"metadata of {length} bytes", wanted=f"less, in an object of {size}")
    return int(length)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sealed:
    """An object whose tail is verified."""

    size: int
    at: int  # position of the seal: row groups end here
    start: int  # position of `tail`
    tail: bytes


class ParquetSegmentReader:
    """See `formats.registry.SegmentReader`. Holds one row group, stored and decoded."""

    def __init__(self, source: BinaryIO, segment: Segment, sealed: _Sealed) -> None:
        self._source = source
        self._name = name = str(segment)
        self._window = Window(sealed.size)
        self._window.show(sealed.start, sealed.tail)
        try:
            self._parquet = pq.ParquetFile(self._window, page_checksum_verification=True, pre_buffer=False)
            metadata, schema = self._parquet.metadata, self._parquet.schema_arrow
            stored = metadata.metadata or {}
            self._window.show(0, b"")  # parsed: free its memory
        except DECODE_ERRORS as error:
            raise CorruptSegment(name, found=repr(error), wanted="Parquet metadata") from error
        if footers.KEY.encode() not in stored:
            versions = sorted(k.decode(errors="replace") for k in stored if k.startswith(footers.KEY_PREFIX.encode()))
            raise CorruptSegment(name, found=f"footer {versions or 'of another kind'}", wanted=footers.KEY)
        decoded = footers.decode(name, stored[footers.KEY.encode()])
        self.footer: SegmentFooter = decoded.footer
        self._row_groups = decoded.row_groups
        if self.footer.segment != segment:
            raise CorruptSegment(name, found=f"the footer of {self.footer.segment}", wanted=name)
        if not schema.equals(SCHEMA):
            raise CorruptSegment(name, found=f"columns {schema.to_string(show_schema_metadata=False)}", wanted=SCHEMA)
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        counts = [group.count for group in self._row_groups]
        if rows != counts or metadata.num_rows != self.footer.count:
            raise CorruptSegment(name, found=f"row groups of {rows}", wanted=f"{counts}, {self.footer.count} in all")
        ends = list(accumulate((group.stored_bytes for group in self._row_groups), initial=0))
        self._starts = ends[:-1]
        if sealed.at != (ends[-1] or len(MAGIC)):
            raise CorruptSegment(name, found=f"a seal at byte {sealed.at}", wanted=ends[-1])

    def batches(self, from_offset: int = 0) -> Iterator[pa.RecordBatch]:
        for index, (group, start) in enumerate(zip(self._row_groups, self._starts, strict=True)):
            if group.last_offset >= from_offset:
                # in a separate generator, so that no variable here holds a row group while the next one is read
                yield from _from(self._read(index, group, start), from_offset)

    def _read(self, index: int, group: RowGroup, start: int) -> list[pa.RecordBatch]:
        name = f"{self._name} row group {index}"
        stored = read_range(self._source, name, start, group.stored_bytes)
        crc = checksums.crc64nvme(stored)
        if crc != group.stored_crc:
            raise CorruptSegment(name, found=f"stored bytes with CRC {crc:016x}", wanted=f"{group.stored_crc:016x}")
        self._window.show(start, stored)
        try:
            # no threads here: our pools provide the parallelism, one segment each
            rows = batch_rows(self._parquet.metadata.row_group(index))
            found = self._parquet.iter_batches(batch_size=rows, row_groups=[index], use_threads=False)
            batches: list[pa.RecordBatch] = list(found)
            digest = digest_of(batches)
        except MemoryError:
            raise  # the bytes are verified, so the process is short of memory
        except DECODE_ERRORS as error:
            raise CorruptSegment(name, found=repr(error), wanted="records") from error
        finally:
            self._window.show(0, b"")
        if digest != group.digest:
            raise CorruptSegment(name, found=f"records with digest {digest.whole}", wanted=group.digest.whole)
        span = first_offset(batches[0]), last_offset(batches[-1])
        if span != (group.first_offset, group.last_offset) or not all(map(rises, batches)):
            raise CorruptSegment(
                name, found=f"offsets {span} or unordered", wanted=(group.first_offset, group.last_offset)
            )
        return batches

    def close(self) -> None:
        self._window.close()
        self._source.close()
