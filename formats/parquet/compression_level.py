"""Chooses a compression level by a sample of the records: the dense one where it pays. Pure.

zstd's level 9 takes four to eight times the processor time of level 1. What it saves depends on the records: of JSON
with random ids next to nothing, of text and of rows that resemble each other a fifth. So both compress a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from formats.records.digest import data

FAST, DENSE = 1, 9
WORTH = 0.95  # of the bytes at FAST: DENSE has to store fewer
PIECE_BYTES = 1 << 20  # of a column, at each of PIECES places; a page, which is what the codec sees at once
PIECES = 2


def level_by_sample(batches: Sequence[pa.RecordBatch]) -> int:
    """FAST or DENSE, by the binary columns of these batches. The same records in the same batches give the same
    answer. Costs what compressing a page of each column costs at both levels."""
    pieces = [piece for batch in _spread(batches) for piece in _pieces(batch, PIECES if len(batches) == 1 else 1)]
    fast, dense = (sum(_compressed(piece, level) for piece in pieces) for level in (FAST, DENSE))
    return DENSE if dense < WORTH * fast else FAST


def _spread(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """At most PIECES of the batches, evenly distributed."""
    return batches[:: max(len(batches) // PIECES, 1)][:PIECES]


def _pieces(batch: pa.RecordBatch, count: int) -> Iterator[pa.Buffer]:
    pairs = batch.column("headers").flatten()
    for column in (batch.column("key"), batch.column("value"), pairs.field(0), pairs.field(1)):
        content = data(column)
        step = max(content.size // count, PIECE_BYTES)
        for at in range(0, content.size, step):
            yield content.slice(at, min(PIECE_BYTES, content.size - at))


def _compressed(piece: pa.Buffer, level: int) -> int:
    return int(pa.Codec("zstd", compression_level=level).compress(piece).size)
