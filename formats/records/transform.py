"""Transforms: user functions that leave out or change records on their way, in ingress and in a restore.

A function is named `package.module:function`, and takes records of one source partition and that partition:

    def keep(batch: pyarrow.RecordBatch, source: SourcePartition) -> pyarrow.Array      # one boolean a record;
                                                                                        # null: leave it out
    def change(batch: pyarrow.RecordBatch, source: SourcePartition) -> pyarrow.RecordBatch   # same schema, same records

A `transform` of ingress may return either, and its RecordBatch may leave records out, too. Offsets are those of the
archive. They are the position, so a function must not change them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from formats.errors import ConfigError, TransformFailed
from formats.plugins import imported
from formats.records.schema import SCHEMA
from formats.records.statistics import edges
from formats.segment import SourcePartition

_CLEAR = (ImportError, AttributeError, ValueError)  # their messages are clear without the type

Function = Callable[[pa.RecordBatch, SourcePartition], Any]


class Returns(Enum):
    """What a function may return."""

    KEPT = "one boolean a record"
    CHANGED = "the same records"
    EITHER = "one boolean a record, or the records to deliver"


@dataclass(frozen=True, slots=True)
class TransformStep:
    name: str
    function: Function
    returns: Returns


@dataclass(frozen=True, slots=True)
class Transform:
    """Steps, applied in order. As thread safe as the functions."""

    steps: Sequence[TransformStep] = ()

    def __call__(self, batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
        """May return fewer records, or none. Raises TransformFailed, also when a function returns an invalid result."""
        given = batch.num_rows
        for step in self.steps:
            if not batch.num_rows:
                break
            try:
                batch = _applied(step, batch, source)
            except TransformFailed as error:  # of what it was called with: earlier steps may have left out records
                raise TransformFailed(str(error), count=given, last_offset=error.last_offset) from error
        return batch

    def __bool__(self) -> bool:
        return bool(self.steps)


NO_TRANSFORM = Transform()


def load(keep: Sequence[str], change: Sequence[str]) -> Transform:
    """Functions in `keep` are applied before those in `change`. Raises ConfigError naming every missing function."""
    wanted = [*((name, Returns.KEPT) for name in keep), *((name, Returns.CHANGED) for name in change)]
    steps, problems = [], []
    for name, returns in wanted:
        try:
            steps.append(_step(name, returns))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems, source="transforms")
    return Transform(tuple(steps))


@lru_cache(maxsize=1024)  # a routing table asks for each of its partitions; Python keeps the module, too
def transform_named(name: str) -> Transform:
    """The one function `name`, which may return either kind of result; without a name, nothing is changed. Raises
    ValueError."""
    return Transform((_step(name, Returns.EITHER),)) if name else NO_TRANSFORM


def _step(name: str, returns: Returns) -> TransformStep:
    """Raises ValueError: it is not found, no function, or takes other arguments."""
    try:
        found = imported(name, "function")
    except Exception as error:  # a user's module may raise anything while it is imported
        text = str(error) if isinstance(error, _CLEAR) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{name}: {text}") from error
    if not callable(found):
        raise ValueError(f"{name}: is no function")
    try:
        parameters = inspect.signature(found)
    except (TypeError, ValueError):  # of a function in C: its first call shows
        return TransformStep(name, found, returns)
    try:
        parameters.bind(None, None)
    except TypeError as error:
        raise ValueError(f"{name}: is called with a RecordBatch and a SourcePartition, but: {error}") from error
    return TransformStep(name, found, returns)


def _applied(step: TransformStep, batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    first, last = edges(batch)

    def failed(why: str) -> TransformFailed:
        what = f"{step.name}, for {source} offsets {first} to {last}: {why}"
        return TransformFailed(what, count=batch.num_rows, last_offset=last)

    try:
        result = step.function(batch, source)
    except (Exception, SystemExit) as error:  # user code may raise anything; an exit would end only this thread
        raise failed(f"{type(error).__name__}: {error}") from error
    if step.returns is Returns.KEPT or (step.returns is Returns.EITHER and not isinstance(result, pa.RecordBatch)):
        if not _are_booleans(result) or len(result) != batch.num_rows:
            or_batch = " or a RecordBatch" if step.returns is Returns.EITHER else ""
            raise failed(f"wanted {batch.num_rows} booleans{or_batch}, found {_described(result)}")
        return batch.filter(result)
    if not isinstance(result, pa.RecordBatch) or result.schema != SCHEMA:
        raise failed(f"wanted a RecordBatch of the same schema, found {_described(result)}")
    try:
        result.validate(full=True)
    except pa.ArrowInvalid as error:  # names of headers that are no UTF-8, lists that end before they begin
        raise failed(f"wanted valid columns, found: {error}") from error
    offsets, given = result.column("offset"), batch.column("offset")
    if step.returns is Returns.EITHER and not _are_some_of(offsets, given):
        raise failed("wanted records of the batch in the same order, each at most once, found other offsets")
    if step.returns is Returns.CHANGED and not offsets.equals(given):
        raise failed("wanted the same records in the same order, found other offsets")
    if nulls := [f.name for f in SCHEMA if not f.nullable and result.column(f.name).null_count]:
        raise failed(f"wanted a value in each record, found nulls in {', '.join(nulls)}")
    elements = result.column("headers").flatten()
    if elements.null_count or elements.field("key").null_count:
        raise failed("wanted a name in each header, found nulls")
    return result


def _are_some_of(offsets: pa.Array, given: pa.Array) -> bool:
    """Whether `offsets` are some of `given`, which increase, in the same order and without repeats."""
    if offsets.equals(given):
        return True
    if offsets.null_count:
        return False
    in_order = pc.all(pc.less(offsets.slice(0, max(len(offsets) - 1, 0)), offsets.slice(1)), min_count=0)
    return bool(in_order.as_py() and pc.all(pc.is_in(offsets, value_set=given), min_count=0).as_py())


def _are_booleans(result: object) -> bool:
    return isinstance(result, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(result.type)


def _described(result: object) -> str:
    length = f" of {len(result)}" if isinstance(result, Sized) else ""
    return f"{type(result).__name__}{length}"
