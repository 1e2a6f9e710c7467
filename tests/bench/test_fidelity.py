"""What a record's journey may not change is noticed: an order, a boundary, an absent key."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.data import GeneratedRecords, records
from bench.fidelity import ColumnDigest, of_files, of_records

Entries = list[bytes | None]
entries = st.lists(st.none() | st.binary(max_size=6), max_size=12)


def digest(*parts: Entries) -> ColumnDigest:
    found = ColumnDigest()
    for part in parts:
        found.add(part)
    return found


def of_columns(*parts: Entries) -> ColumnDigest:
    found = ColumnDigest()
    for part in parts:
        found.add_column(pa.array(part, pa.binary()))
    return found


@given(entries, entries)
def test_lists_and_columns_have_one_digest_however_they_are_cut(one: Entries, two: Entries) -> None:
    assert digest(one, two) == digest(one + two) == of_columns(one, two) == of_columns(one + two)


@given(entries, entries)
def test_a_slice_of_a_column_counts_alone(one: Entries, two: Entries) -> None:
    found = ColumnDigest()
    found.add_column(pa.array(one + two, pa.binary()).slice(len(one)))
    assert found == digest(two)


@pytest.mark.parametrize(
    "changed",
    [[b"b", b"a", None], [b"ab", b"", None], [b"a", b"b", b""], [b"a", b"b"], [b"a", b"b", None, None]],
    ids=["order", "boundary", "absent", "lost", "doubled"],
)
def test_every_change_is_noticed(changed: Entries) -> None:
    assert digest(changed) != digest([b"a", b"b", None])


def test_an_archive_is_compared_with_what_was_produced() -> None:
    made = records("json", 60, 3)
    assert of_files(_archive(made)) == of_records(made)
    assert of_files([*_archive(made), *_archive(made)]) == of_records(made, times=2)
    assert of_files(_archive(made)[1:]) != of_records(made)


def _archive(made: GeneratedRecords) -> Sequence[tuple[int, bytes]]:
    found = []
    for partition in sorted(set(made.partitions)):
        at = [number for number, one in enumerate(made.partitions) if one == partition]
        file = io.BytesIO()
        columns = {"key": [made.keys[number] for number in at], "value": [made.values[number] for number in at]}
        pq.write_table(pa.table({name: pa.array(column, pa.binary()) for name, column in columns.items()}), file)
        found.append((partition, file.getvalue()))
    return found
