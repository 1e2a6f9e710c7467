"""Transforms: user functions that drop or change records before delivery.

A function is named `package.module:function`, and takes records of one source partition and that partition:

    def keep(batch: pyarrow.RecordBatch, source: SourcePartition) -> pyarrow.Array      # one boolean a record;
                                                                                        # null: drop it
    def change(batch: pyarrow.RecordBatch, source: SourcePartition) -> pyarrow.RecordBatch   # same schema, same records

Offsets are those of the archive. They are the position, so a function must not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from formats.errors import ConfigError, TransformFailed
from formats.plugins import imported
from formats.records.schema import SCHEMA
from formats.records.statistics import first_offset, last_offset
from formats.segment import SourcePartition

_CLEAR = (ImportError, AttributeError, ValueError)  # their messages are clear without the type

Function = Callable[[pa.RecordBatch, SourcePartition], Any]


@dataclass(frozen=True, slots=True)
class TransformStep:
    name: str
    function: Function
    keeps: bool  # the function returns which records to keep; else the changed records


@dataclass(frozen=True, slots=True)
class Transform:
    """Steps, applied in order. As thread safe as the functions."""

    steps: Sequence[TransformStep] = ()

    def __call__(self, batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
        """May return fewer records, or none. Raises TransformFailed, also when a function returns an invalid result."""
        for step in self.steps:
            if not batch.num_rows:
                break
            batch = self._step(step, batch, source)
        return batch

    def __bool__(self) -> bool:
        return bool(self.steps)

    def _step(self, step: TransformStep, batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
        where = f"{step.name}, for {source} offsets {first_offset(batch)} to {last_offset(batch)}"
        try:
            result = step.function(batch, source)
        except Exception as error:  # user code may raise anything
            raise TransformFailed(f"{where}: {type(error).__name__}: {error}") from error
        if step.keeps:
            if not _are_booleans(result) or len(result) != batch.num_rows:
                raise TransformFailed(f"{where}: wanted {batch.num_rows} booleans, found {_described(result)}")
            return batch.filter(result)
        if not isinstance(result, pa.RecordBatch) or result.schema != SCHEMA:
            raise TransformFailed(f"{where}: wanted a RecordBatch of the same schema, found {_described(result)}")
        if not result.column("offset").equals(batch.column("offset")):
            raise TransformFailed(f"{where}: wanted the same records in the same order, found other offsets")
        if nulls := [f.name for f in SCHEMA if not f.nullable and result.column(f.name).null_count]:
            raise TransformFailed(f"{where}: wanted a value in each record, found nulls in {', '.join(nulls)}")
        return result


def load(keep: Sequence[str], change: Sequence[str]) -> Transform:
    """Functions in `keep` are applied before those in `change`. Raises ConfigError naming every missing function."""
    steps, problems = [], []
    for name, keeps in [*((name, True) for name in keep), *((name, False) for name in change)]:
        try:
            steps.append(TransformStep(name, _find(name), keeps))
        except Exception as error:  # a user's module may raise anything while it is imported
            text = str(error) if isinstance(error, _CLEAR) else f"{type(error).__name__}: {error}"
            problems.append(f"{name}: {text}")
    if problems:
        raise ConfigError(problems, source="transforms")
    return Transform(tuple(steps))


def _find(name: str) -> Function:
    found = imported(name, "function")
    if not callable(found):
        raise ValueError("is no function")
    return found


def _are_booleans(result: object) -> bool:
    return isinstance(result, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(result.type)


def _described(result: object) -> str:
    length = f" of {len(result)}" if isinstance(result, Sized) else ""
    return f"{type(result).__name__}{length}"
