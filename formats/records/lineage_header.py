"""The lineage header: a record header that says which record of which source cluster a delivered record is.

    cluster id/topic/partition/offset      UTF-8; the topic as its path in the archive, so `orders@id` for a later
                                           incarnation; the cluster id is empty where the segment does not know it

It comes last. A record that came down a chain has one of each hop, the nearest last. Built by columns.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from formats.records.schema import HEADER, SCHEMA
from formats.records.statistics import list_ends
from formats.segment import SourcePartition

_INDEX = SCHEMA.get_field_index("headers")
_FIELD = SCHEMA.field(_INDEX)


def with_lineage(batch: pa.RecordBatch, name: str, cluster_id: str, source: SourcePartition) -> pa.RecordBatch:
    """The records of `source`, each with one more header. The other columns are not copied."""
    count = batch.num_rows
    if not count:
        return batch
    values = _values(batch.column("offset"), f"{cluster_id}/{source.path}/{source.partition}/")
    ours = _headers(pa.repeat(pa.scalar(name), count), values)
    theirs = batch.column("headers").flatten()
    ends = list_ends(batch.column("headers"), len(theirs))
    rows = pa.array(range(count + 1), pa.int32())
    elements = ours
    if len(theirs):
        owners = pc.list_parent_indices(pa.ListArray.from_arrays(ends, theirs)).cast(pa.int32())
        order = pc.array_sort_indices(pa.concat_arrays([owners, rows.slice(0, count)]))  # stable: ours comes last
        elements = pa.concat_arrays([theirs, ours]).take(order)
    return _with_headers(batch, pc.add(ends, rows), elements)


def without_header(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The same records without their headers of this name. A record may have an empty list afterwards."""
    headers = batch.column("headers")
    elements = headers.flatten()
    kept = pc.not_equal(elements.field("key"), pa.scalar(name))
    if not len(elements) or pc.all(kept).as_py():
        return batch
    totals = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(kept.cast(pa.int32()))])
    return _with_headers(batch, totals.take(list_ends(headers, len(elements))), elements.filter(kept))


def _values(offsets: pa.Int64Array, before: str) -> pa.BinaryArray:
    return pc.binary_join_element_wise(pa.scalar(before), offsets.cast(pa.string()), "").cast(pa.binary())


def _headers(names: pa.StringArray, values: pa.BinaryArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([names, values], fields=list(HEADER))


def _with_headers(batch: pa.RecordBatch, ends: pa.Int32Array, elements: pa.StructArray) -> pa.RecordBatch:
    return batch.set_column(_INDEX, _FIELD, pa.ListArray.from_arrays(ends, elements, type=_FIELD.type))
