"""Concatenate small batches: work per batch costs as much for one record as for thousands.

A topic with low traffic arrives in batches of one or two records. Every Arrow call on such a batch costs more than its
records do, and releases the GIL, which a busy thread then holds for milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from formats.records.schema import SCHEMA

MIN_ROWS = 1_000  # a batch of this size outweighs the cost of its calls
MIN_BYTES = 1 << 20


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records in the same order, in batches of at least MIN_ROWS or MIN_BYTES except the last one; none
    is empty. Large batches are passed on unchanged; small ones are copied. Raises ValueError for another schema."""
    group: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.schema.equals(SCHEMA):
            raise ValueError(f"not the schema of records: {batch.schema}")
        if not batch.num_rows:
            continue
        group.append(batch)
        rows += batch.num_rows
        size_bytes += _size_bytes(batch)
        if rows >= MIN_ROWS or size_bytes >= MIN_BYTES:
            yield _concatenated(group)
            group, rows, size_bytes = [], 0, 0
    if group:
        yield _concatenated(group)


def _size_bytes(batch: pa.RecordBatch) -> int:
    """As `nbytes`, which costs more than all else here: of a batch that is no slice, its buffers are as large."""
    offsets = batch.column(0)
    is_slice = offsets.offset or offsets.buffers()[1].size > 8 * len(offsets)
    return int(batch.nbytes if is_slice else batch.get_total_buffer_size())


def _concatenated(group: list[pa.RecordBatch]) -> pa.RecordBatch:
    return group[0] if len(group) == 1 else pa.concat_batches(group)
