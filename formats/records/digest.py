"""Digests of records: one CRC-64/NVME and one byte length for each column stream of `formats.footer.STREAMS`.

Whole Arrow buffers are hashed, never single records, so the cost is that of reading memory. A digest does not depend on
how the records are split into batches, on a batch's offset inside its buffers, or on the bytes under a null.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from awscrt import checksums

from formats.footer import STREAMS, Digest, Stream

EMPTY = Digest(count=0, streams=tuple(Stream(0, 0) for _ in STREAMS))
"""Digest of no records; the neutral element of `combine`."""


class Digester:
    """Computes a digest incrementally, by batches in offset order. Not thread safe."""

    __slots__ = ("_count", "_crcs", "_lengths")

    def __init__(self) -> None:
        self._count = 0
        self._crcs = [0] * len(STREAMS)
        self._lengths = [0] * len(STREAMS)

    def update(self, batch: pa.RecordBatch) -> None:
        """Append the records of `batch`, whose columns are those of `formats.records.schema.SCHEMA`."""
        headers = batch.column("headers")
        pairs = headers.flatten()  # respects slices, and leaves out values under null lists
        header_keys, header_values = pairs.field(0), pairs.field(1)
        key, value = batch.column("key"), batch.column("value")
        self._count += batch.num_rows
        streams = (
            _fixed(batch.column("offset"), 8),
            _fixed(batch.column("timestamp"), 8),
            _fixed(batch.column("timestamp_type"), 1),
            lengths(key),
            data(key),
            lengths(value),
            data(value),
            counts(headers),
            lengths(header_keys),
            data(header_keys),
            lengths(header_values),
            data(header_values),
        )
        for i, stream in enumerate(streams):
            buffer = memoryview(stream)
            if buffer.nbytes:
                self._crcs[i] = checksums.crc64nvme(buffer, self._crcs[i])
                self._lengths[i] += buffer.nbytes

    def digest(self) -> Digest:
        """Digest of all records so far."""
        return Digest(count=self._count, streams=tuple(map(Stream, self._crcs, self._lengths)))


def digest_of(batches: Iterable[pa.RecordBatch]) -> Digest:
    """Digest of the records of all `batches`, in this order."""
    digester = Digester()
    for batch in batches:
        digester.update(batch)
    return digester.digest()


def combine(*digests: Digest) -> Digest:
    """Digest of adjoining runs, in order; equal to the digest computed over all their records."""
    total = EMPTY
    for digest in digests:
        streams = tuple(map(_join, total.streams, digest.streams))
        total = Digest(count=total.count + digest.count, streams=streams)
    return total


def _join(first: Stream, second: Stream) -> Stream:
    crc = checksums.combine_crc64nvme(first.crc, second.crc, second.length_bytes)
    return Stream(crc, first.length_bytes + second.length_bytes)


# --- column streams ---------------------------------------------------------------------------------------------------


def lengths(array: pa.Array) -> pa.Buffer:
    """int32 byte length of every element of a binary or string array, −1 for null."""
    return _fixed(_filled(pc.binary_length(array), -1), 4)


def counts(array: pa.Array) -> pa.Buffer:
    """int32 number of elements of every list, 0 for null."""
    return _fixed(_filled(pc.list_value_length(array), 0), 4)


def _filled(numbers: pa.Array, value: int) -> pa.Array:
    return pc.fill_null(numbers, value) if numbers.null_count else numbers  # most columns have no null


def data(array: pa.Array) -> pa.Buffer:
    """The concatenated bytes of all elements of a binary or string array, without those under nulls."""
    _, ends, content = array.buffers()
    if not len(array) or content is None:
        return pa.py_buffer(b"")
    first, last = _edges(ends, array.offset, len(array))
    if array.null_count and (pc.sum(pc.binary_length(array)).as_py() or 0) != last - first:
        return data(array.drop_null())  # bytes lie under a null; dropping makes a compact copy
    return content.slice(first, last - first)


def _edges(ends: pa.Buffer, offset: int, length: int) -> tuple[int, int]:
    view = memoryview(ends).cast("i")
    return view[offset], view[offset + length]


def _fixed(array: pa.Array, width_bytes: int) -> pa.Buffer:
    """The values of a fixed-width array without nulls, as stored in memory (little-endian)."""
    content = array.buffers()[1]
    if content is None or not len(array):
        return pa.py_buffer(b"")
    return content.slice(array.offset * width_bytes, len(array) * width_bytes)
