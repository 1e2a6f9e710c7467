"""Ids of schemas in values: a zero byte, then four bytes of a number, as serializers of a schema registry write them.

Only a sample is read, by columns. Other data may look like it: an eight byte integer begins with a zero, too.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from formats.footer import MOST_IDS, SchemaIds

SAMPLE_RECORDS = 1_000  # of a segment
SAMPLE_OF_BATCH = 100
HEAD_BYTES = 5


class SchemaIdSample:
    """Computed incrementally. Not thread safe."""

    __slots__ = ("_carrying", "_ids", "_sampled", "_seen")

    def __init__(self) -> None:
        self._seen = self._sampled = self._carrying = 0
        self._ids: set[int] = set()

    def update(self, batch: pa.RecordBatch) -> None:
        """Read the first records of a batch, while the sample has room. At most SAMPLE_OF_BATCH records."""
        count = min(SAMPLE_OF_BATCH, SAMPLE_RECORDS - self._seen, batch.num_rows)
        if count <= 0:
            return
        self._seen += count
        values = batch.column("value").slice(0, count)
        self._sampled += count - values.null_count
        begins_with_zero = pc.starts_with(values, "\0")
        if not pc.any(begins_with_zero).as_py():
            return
        values = values.filter(begins_with_zero)
        heads = pc.binary_slice(values.filter(pc.greater(pc.binary_length(values), HEAD_BYTES)), 0, HEAD_BYTES)
        counts = pc.value_counts(heads)
        for head, times in zip(counts.field(0), counts.field(1), strict=True):  # of different ids, not of records
            number = int.from_bytes(head.as_py()[1:])
            if number:
                self._carrying += times.as_py()
                if len(self._ids) < MOST_IDS:
                    self._ids.add(number)

    @property
    def found(self) -> SchemaIds | None:
        """None when no value carries an id."""
        if not self._carrying:
            return None
        return SchemaIds(sampled=self._sampled, carrying=self._carrying, ids=tuple(sorted(self._ids)))
