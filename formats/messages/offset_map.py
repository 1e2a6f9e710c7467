"""The offset map: which offsets a source partition's records have at the target, exactly. Records of a compacted topic.

    key     {destination, destination_id, incarnation, partition, region, start, topic}     JSON
    value   version (1 byte), position (8), runs (4), then their three columns, zstd

A page has the runs that one owner of the partition delivered one after the other; `start` is its first offset at the
target. The last page is written again, longer, with each transaction, until it is full; then the next one begins. A new
owner begins a page of its own. So the pages of a partition do not overlap at the target, and their order there is the
order of delivery. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from formats.errors import MalformedEvent
from formats.messages.map_key import MapKey, decode_page_key, encode_map_key
from formats.records.offset_runs import OffsetRuns

VERSION = 1
FULL_RUNS = 128  # a page with so many is not written again
MAX_RUNS = 4096  # of one page: a transaction with more runs fills several
_HEADER = struct.Struct(">BqI")


@dataclass(frozen=True, slots=True)
class MapPage:
    """`position`: source offset that the delivery stood at before the first run. Offsets from there on that are in no
    run have no record at the target."""

    key: MapKey
    position: int
    runs: OffsetRuns  # not empty

    @property
    def start(self) -> int:
        """First offset at the target."""
        return self.runs.target_start

    @property
    def is_full(self) -> bool:
        return len(self.runs) >= FULL_RUNS

    def extended(self, later: OffsetRuns) -> Iterator[MapPage]:
        """This page with runs after it, cut into as many pages as they need. Raises ValueError when they do not lie
        after it at the target."""
        return _pages(replace(self, runs=self.runs.extended(later)))


def pages(key: MapKey, position: int, runs: OffsetRuns) -> Iterator[MapPage]:
    """New pages; none without runs."""
    return _pages(MapPage(key, position, runs)) if len(runs) else iter(())


def _pages(page: MapPage) -> Iterator[MapPage]:
    position = page.position
    for first in range(0, len(page.runs), MAX_RUNS):
        part = page.runs.slice(first, MAX_RUNS)
        yield replace(page, runs=part, position=position)
        position = int(part.source[-1].as_py() + part.count[-1].as_py())


def encode_page_key(page: MapPage) -> bytes:
    return encode_map_key(page.key, page.start)


def encode_page(page: MapPage) -> bytes:
    """Each column as differences to what is most likely, so that it compresses to little: the gap since the end of the
    run before, at the source and at the target, and the count."""
    runs = page.runs
    columns = (_gaps(runs.source, runs.count), _gaps(runs.target, runs.count), runs.count)
    data = b"".join(memoryview(_little(column)) for column in columns)
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return _HEADER.pack(VERSION, page.position, len(runs)) + packed


def decode_page(key: bytes, value: bytes) -> MapPage:
    """Raises MalformedEvent, also for another version."""
    map_key, start = decode_page_key(key)
    try:
        version, position, length = _HEADER.unpack_from(value)
        if version != VERSION:
            raise ValueError(f"version {version}, this program reads {VERSION}")
        if not 0 < length <= MAX_RUNS:
            raise ValueError(f"{length} runs")
        data = pa.decompress(value[_HEADER.size :], decompressed_size=length * 24, codec="zstd")
        if len(data) != length * 24:
            raise ValueError(f"{len(data)} bytes for {length} runs")
        columns = [
            pa.Array.from_buffers(pa.int64(), length, [None, data.slice(n * length * 8, length * 8)]) for n in range(3)
        ]
        source_gaps, target_gaps, count = columns
        runs = OffsetRuns(_starts(source_gaps, count), _starts(target_gaps, count), count)
        pc.add_checked(runs.source, count)  # raises where an end is no offset
        pc.add_checked(runs.target, count)
        if pc.min(count).as_py() < 1 or pc.min(target_gaps).as_py() < 0 or runs.target_start != start:
            raise ValueError("its columns contradict each other")
        if min(position, runs.lowest_source) < 0:
            raise ValueError("a negative offset")
    except (struct.error, ValueError, OSError, pa.ArrowException) as error:
        raise MalformedEvent(f"not a page of the offset map: {map_key} from {start} ({error})") from error
    return MapPage(map_key, position, runs)


def _gaps(starts: pa.Int64Array, count: pa.Int64Array) -> pa.Int64Array:
    """The first start, then of each run how far it begins after the end of the one before."""
    ends = pc.add(starts, count)
    return pc.subtract(starts, pa.concat_arrays([pa.array([0], pa.int64()), ends.slice(0, len(ends) - 1)]))


def _starts(gaps: pa.Int64Array, count: pa.Int64Array) -> pa.Int64Array:
    """The inverse of `_gaps`. Raises ArrowInvalid where a sum overflows."""
    before = pa.concat_arrays([pa.array([0], pa.int64()), count.slice(0, len(count) - 1)])
    return pc.cumulative_sum_checked(pc.add_checked(gaps, before))


def _little(column: pa.Int64Array) -> pa.Buffer:
    """The values as bytes, little-endian, from the first row of a slice on."""
    return column.buffers()[1].slice(column.offset * 8, len(column) * 8)
