"""Filters exclude only records that cannot match: checked against every record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from formats.int_range import IntRange
from formats.read_splits import ArchiveQuery
from formats.segment import SourcePartition
from replicator.spark_source.filters import admits, is_exact, narrowed
from tests.examples import property_examples

SOURCE = SourcePartition("a", "orders", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL = ArchiveQuery(region="a")
NUMBERS = ("partition", "offset", "timestamp_ms")
COMPARED = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


def holds(condition: Filter, row: dict[str, object]) -> bool:
    """The result of a filter in Spark, for a row without nulls."""
    match condition:
        case Not(child):
            return not holds(child, row)
        case IsNull() | IsNotNull():
            return isinstance(condition, IsNotNull)
    value = row[condition.attribute[0]]  # type: ignore[attr-defined]
    match condition:
        case EqualTo(_, other) | EqualNullSafe(_, other):
            return bool(value == other)
        case In(_, others):
            return value in others
        case LessThan(_, other):
            return bool(value < other)
        case LessThanOrEqual(_, other):
            return bool(value <= other)
        case GreaterThan(_, other):
            return bool(value > other)
        case GreaterThanOrEqual(_, other):
            return bool(value >= other)
        case StringStartsWith(_, other):
            return str(value).startswith(other)
        case StringEndsWith(_, other):
            return str(value).endswith(other)
        case StringContains(_, other):
            return other in str(value)
    raise AssertionError(condition)


def _compared(column: str, values: st.SearchStrategy[object]) -> st.SearchStrategy[Filter]:
    one = st.sampled_from(COMPARED).flatmap(lambda kind: values.map(lambda value: kind((column,), value)))
    several = st.lists(values, min_size=1, max_size=3).map(lambda found: In((column,), tuple(found)))
    return one | several | st.sampled_from([IsNull((column,)), IsNotNull((column,))])


small = st.integers(-1, 6)
times = st.integers(-2_500, 6_500).map(lambda micros: EPOCH + timedelta(microseconds=micros))
words = st.sampled_from(["", "orders", "ord", "ers", "x"])
texts = st.sampled_from([StringStartsWith, StringEndsWith, StringContains]).flatmap(
    lambda kind: words.map(lambda word: kind(("topic",), word))
)
plain = st.one_of(
    *(_compared(c, small) for c in NUMBERS), _compared("timestamp", times), _compared("topic", words), texts
)


@property_examples()
@given(st.lists(plain | plain.map(Not), max_size=3), st.integers(0, 5), st.integers(-3, 6))
@example([Not(IsNull(("topic",)))], 0, 0)
def test_no_matching_record_is_left_out(conditions: list[Filter], offset: int, stamp_ms: int) -> None:
    stamp = EPOCH + timedelta(milliseconds=stamp_ms)
    row = {"topic": "orders", "partition": 3, "offset": offset, "timestamp_ms": stamp_ms, "timestamp": stamp}
    if all(holds(condition, row) for condition in conditions):
        assert all(admits(condition, SOURCE) for condition in conditions)
        wanted = narrowed(ALL, conditions)
        assert wanted.offsets.overlaps(offset, offset)
        assert wanted.timestamps.overlaps(stamp_ms, stamp_ms)


@property_examples()
@given(st.lists(plain | plain.map(Not), max_size=3), st.integers(0, 5))
@example([Not(IsNotNull(("topic",)))], 0)
@example([In(("offset",), (0, 2))], 1)
@example([Not(EqualTo(("offset",), 0))], 0)
def test_what_is_exact_leaves_out_every_other_record(conditions: list[Filter], offset: int) -> None:
    exact = [condition for condition in conditions if is_exact(condition)]
    row = {"topic": "orders", "partition": 3, "offset": offset}
    admitted = all(admits(condition, SOURCE) for condition in exact)
    read = admitted and narrowed(ALL, exact).offsets.overlaps(offset, offset)
    assert read == all(holds(condition, row) for condition in exact)


@pytest.mark.parametrize(
    "condition",
    [
        Not(EqualTo(("topic",), None)),
        Not(In(("partition",), (1, None))),
        EqualTo(("offset",), None),
        In(("offset",), (0, 2)),
        IsNull(("offset",)),
        EqualTo(("timestamp_ms",), 1),
        EqualTo(("key",), b"x"),
    ],
    ids=repr,
)
def test_spark_applies_again(condition: Filter) -> None:
    assert not is_exact(condition)


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("topic",), "other"),
        In(("partition",), (1, 2)),
        GreaterThan(("partition",), 3),
        StringStartsWith(("topic",), "x"),
        EqualTo(("incarnation",), "a1"),
        Not(EqualTo(("topic",), "orders")),
    ],
    ids=repr,
)
def test_a_partition_is_left_out(condition: Filter) -> None:
    assert not admits(condition, SOURCE)


def test_offsets_and_times_are_narrowed() -> None:
    at = EPOCH + timedelta(microseconds=2_500)
    wanted = narrowed(
        ALL, [GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9), GreaterThan(("timestamp",), at)]
    )
    assert wanted.offsets == IntRange(5, 8)
    assert wanted.timestamps.low == 3


def test_other_columns_are_ignored() -> None:
    others = [EqualTo(("key",), b"x"), EqualTo(("headers", "offset"), 1), IsNull(("timestamp",))]
    assert narrowed(ALL, others) == ALL
    assert all(admits(condition, SOURCE) for condition in others)
