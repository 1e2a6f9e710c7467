from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.records.compare import Comparison, compare
from formats.records.schema import SCHEMA
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of, cuts, rows, sample_rows, split

PROPERTY = property_examples()


def compared(
    first: list[Row], second: list[Row], at: list[int] | None = None, also: list[int] | None = None
) -> Comparison:
    return compare(iter(split(batch_of(first), at or [])), iter(split(batch_of(second), also or [])))


@PROPERTY
@given(records=rows(), at=cuts, also=cuts)
def test_equal_however_cut(records: list[Row], at: list[int], also: list[int]) -> None:
    result = compared(records, records, at, also)
    assert result == Comparison(both=len(records), only_first=0, only_second=0)
    assert result.equal
    assert not result.differs_in_presence_only


@PROPERTY
@given(records=rows(), at=cuts, also=cuts, data=st.data())
def test_offsets_are_counted_by_the_copies_that_hold_them(
    records: list[Row], at: list[int], also: list[int], data: st.DataObject
) -> None:
    where = data.draw(
        st.lists(st.sampled_from(["both", "first", "second"]), min_size=len(records), max_size=len(records))
    )
    first = [row for row, side in zip(records, where, strict=True) if side != "second"]
    second = [row for row, side in zip(records, where, strict=True) if side != "first"]
    result = compared(first, second, at, also)
    assert result == Comparison(
        both=where.count("both"), only_first=where.count("first"), only_second=where.count("second")
    )
    assert result.differs_in_presence_only == ("first" in where or "second" in where)
    assert result.equal != result.differs_in_presence_only


CHANGES: dict[str, Any] = {
    "timestamp": lambda row: (row["timestamp"] + 1) if row["timestamp"] < 2**63 - 1 else 0,
    "timestamp_type": lambda row: 1 - abs(row["timestamp_type"]),
    "key": lambda row: b"" if row["key"] is None else None,
    "value": lambda row: (row["value"] or b"") + b"!",
    "headers": lambda row: [*(row["headers"] or ()), ("more", None)],
}


@PROPERTY
@given(records=rows(min_size=1), at=cuts, also=cuts, data=st.data())
def test_the_first_difference_is_found(records: list[Row], at: list[int], also: list[int], data: st.DataObject) -> None:
    changed = data.draw(st.dictionaries(st.integers(0, len(records) - 1), st.sampled_from(sorted(CHANGES)), min_size=1))
    missing = data.draw(st.sets(st.integers(0, len(records) - 1).filter(lambda i: i not in changed)))
    second = [
        row | {changed[i]: CHANGES[changed[i]](row)} if i in changed else row
        for i, row in enumerate(records)
        if i not in missing
    ]
    for result in (compared(records, second, at, also), compared(second, records, also, at)):
        assert result.offset == records[min(changed)]["offset"]
        assert result.column == changed[min(changed)]
        assert result.column in result.detail
        assert not result.equal
        assert not result.differs_in_presence_only


@pytest.mark.parametrize("column", [name for name in SCHEMA.names if name != "offset"])
@pytest.mark.parametrize("position", [0, 500, 999])
def test_a_difference_deep_in_a_batch(column: str, position: int) -> None:
    records = sample_rows(1_000)
    second = [row | {column: CHANGES[column](row)} if row["offset"] == position else row for row in records]
    result = compared(records, second)
    assert (result.offset, result.column) == (position, column)


def test_null_headers_equal_empty_headers() -> None:
    first = [row | {"headers": None} for row in sample_rows(3)]
    second = [row | {"headers": []} for row in sample_rows(3)]
    assert compared(first, second).equal


def test_null_is_not_empty() -> None:
    first = [row | {"headers": [("a", None)]} for row in sample_rows(3)]
    second = [row | {"headers": [("a", b"")]} for row in sample_rows(3)]
    assert compared(first, second).column == "headers"


def test_the_order_of_headers_matters() -> None:
    first = [row | {"headers": [("a", b"1"), ("b", b"2")]} for row in sample_rows(1)]
    second = [row | {"headers": [("b", b"2"), ("a", b"1")]} for row in sample_rows(1)]
    assert compared(first, second).column == "headers"


def test_one_batch_of_each_is_in_memory() -> None:
    """Neither stream is read ahead of the other by more than a batch."""
    log: list[tuple[str, int]] = []

    def stream(name: str) -> Any:
        for i, batch in enumerate(split(batch_of(sample_rows(100)), list(range(10, 100, 10)))):
            log.append((name, i))
            yield batch

    assert compare(stream("a"), stream("b")).equal
    ahead = [dict(log[: i + 1]) for i in range(len(log))]
    assert all(abs(seen.get("a", -1) - seen.get("b", -1)) <= 1 for seen in ahead)
