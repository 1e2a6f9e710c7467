"""How many holes a second a source has, by the offsets and timestamps of some of its records. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_RECORDS = 100_000  # are enough
SHORTEST_MS = 1_000  # of a sample: records of one moment say nothing about a second


def holes_per_second(batches: Iterable[pa.RecordBatch]) -> float:
    """Of a sample of records, by their timestamps; 0 when the sample is too short to tell."""
    offsets, stamps, count = list[pa.Array](), list[pa.Array](), 0
    for batch in batches:
        offsets.append(batch.column("offset"))
        stamps.append(batch.column("timestamp").cast(pa.int64()))
        count += batch.num_rows
        if count >= SAMPLE_RECORDS:
            break
    if count < 2:
        return 0.0
    holes = pc.sum(pc.greater(pc.pairwise_diff(pa.concat_arrays(offsets)), 1)).as_py() or 0
    times = pc.min_max(pa.concat_arrays(stamps)).as_py()
    lasted_ms = times["max"] - times["min"]
    return 0.0 if lasted_ms < SHORTEST_MS else 1000.0 * holes / lasted_ms
