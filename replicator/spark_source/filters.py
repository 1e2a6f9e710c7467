"""Applies Spark's pushed filters to source partitions, offsets and timestamps.

They reduce what is read: the result may hold more records than match, never fewer. Of conditions that `is_exact`, it
holds those that match, so Spark need not apply them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

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
from formats.records.milliseconds import EPOCH
from formats.segment import SourcePartition

PLACE = frozenset({"topic", "partition", "incarnation"})  # constant for all records of a source partition

_COMPARED = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
_DECIDED = (*_COMPARED, In, IsNull, IsNotNull, StringStartsWith, StringEndsWith, StringContains)

_MICROS = 1_000  # microseconds in a millisecond


def admits(condition: Filter, source: SourcePartition) -> bool:
    """Whether `condition` may hold for a record of `source`. False only if it holds for none."""
    match condition:
        case Not(child):
            # The negation is exact for a column that is never null; of other columns nothing is known.
            return _column(child) not in PLACE or not admits(child, source)
        case _ if _column(condition) not in PLACE:
            return True
    here: Any = getattr(source, _column(condition))
    match condition:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return bool(here == value)
        case In(_, values):
            return here in values
        case LessThan(_, value):
            return bool(here < value)
        case LessThanOrEqual(_, value):
            return bool(here <= value)
        case GreaterThan(_, value):
            return bool(here > value)
        case GreaterThanOrEqual(_, value):
            return bool(here >= value)
        case StringStartsWith(_, value):
            return str(here).startswith(value)
        case StringEndsWith(_, value):
            return str(here).endswith(value)
        case StringContains(_, value):
            return value in str(here)
        case IsNull():
            return False
    return True


def is_exact(condition: Filter) -> bool:
    """Whether `admits` and `narrowed` leave out every record that does not match `condition`."""
    child = condition.child if isinstance(condition, Not) else condition
    column = _column(child)
    if column in PLACE:
        # a comparison with null holds for no record, neither does its negation
        return isinstance(child, _DECIDED) and None not in _values(child)
    return column == "offset" and child is condition and isinstance(child, _COMPARED) and None not in _values(child)


def narrowed(wanted: ArchiveQuery, conditions: Iterable[Filter]) -> ArchiveQuery:
    """`wanted`, restricted to where all of `conditions` may hold."""
    for condition in conditions:
        match _column(condition):
            case "offset":
                wanted = replace(wanted, offsets=wanted.offsets.intersection(_span(condition)))
            case "timestamp_ms":
                wanted = replace(wanted, timestamps=wanted.timestamps.intersection(_span(condition)))
            case "timestamp":
                micros = _span(condition)
                millis = IntRange(-(-micros.low // _MICROS), micros.high // _MICROS)  # rounded inwards
                wanted = replace(
                    wanted, timestamps=wanted.timestamps.intersection(millis if micros.is_bounded else IntRange())
                )
    return wanted


def _column(condition: Filter) -> str:
    """The column of a filter; empty for a negated filter or one on a nested field."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _values(condition: Filter) -> tuple[Any, ...]:
    """What it compares its column with."""
    value = getattr(condition, "value", ())
    return value if isinstance(value, tuple) else (value,)


def _span(condition: Filter) -> IntRange:
    """The range of numbers that fulfil the filter; times are microseconds."""
    match condition:
        case EqualTo(_, value) | EqualNullSafe(_, value) if value is not None:
            return IntRange(_number(value), _number(value))
        case In(_, values) if numbers := [_number(value) for value in values if value is not None]:
            return IntRange(min(numbers), max(numbers))
        case LessThan(_, value):
            return IntRange(high=_number(value) - 1)
        case LessThanOrEqual(_, value):
            return IntRange(high=_number(value))
        case GreaterThan(_, value):
            return IntRange(low=_number(value) + 1)
        case GreaterThanOrEqual(_, value):
            return IntRange(low=_number(value))
    return IntRange()


def _number(value: Any) -> int:
    """The value as a number. Raises TypeError if it is neither a whole number nor a time."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, int):
        return value
    raise TypeError(f"neither a whole number nor a time: {value!r}")
