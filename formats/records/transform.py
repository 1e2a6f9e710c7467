"""What a user's own functions make of records on their way: some are left out, some are changed.

A function is named `package.module:function`, and is given the records of one source partition and which it is:

    def keep(batch: pyarrow.RecordBatch, source: SourcePartition) -> pyarrow.Array      # booleans, one for each record;
                                                                                        # null: it does not stay
    def change(batch: pyarrow.RecordBatch, source: SourcePartition) -> pyarrow.RecordBatch   # same schema, same records

Offsets are the archive's and stay as they are: they are the position, and a change of them is refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from formats.errors import ConfigError, TransformFailed
from formats.records.schema import SCHEMA
from formats.records.statistics import first_offset, last_offset
from formats.segment import SourcePartition

_TOLD = (ImportError, AttributeError, ValueError)  # which say enough

Function = Callable[[pa.RecordBatch, SourcePartition], Any]


@dataclass(frozen=True, slots=True)
class TransformStep:
    name: str
    function: Function
    keeps: bool  # it answers which records stay; else the records, changed


@dataclass(frozen=True, slots=True)
class Transform:
    """Steps in their order. As thread safe as the functions."""

    steps: Sequence[TransformStep] = ()

    def __call__(self, batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
        """May answer fewer records, or none. Raises TransformFailed, also for an answer that is no answer."""
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
            answer = step.function(batch, source)
        except Exception as error:  # a user's code may raise anything
            raise TransformFailed(f"{where}: {type(error).__name__}: {error}") from error
        if step.keeps:
            if not _are_booleans(answer) or len(answer) != batch.num_rows:
                raise TransformFailed(f"{where}: wanted {batch.num_rows} booleans, found {_shown(answer)}")
            return batch.filter(answer)
        if not isinstance(answer, pa.RecordBatch) or answer.schema != SCHEMA:
            raise TransformFailed(f"{where}: wanted a RecordBatch of the same schema, found {_shown(answer)}")
        if not answer.column("offset").equals(batch.column("offset")):
            raise TransformFailed(f"{where}: wanted the same records in the same order, found other offsets")
        if nulls := [f.name for f in SCHEMA if not f.nullable and answer.column(f.name).null_count]:
            raise TransformFailed(f"{where}: wanted a value in each record, found nulls in {', '.join(nulls)}")
        return answer


def load(keep: Sequence[str], change: Sequence[str]) -> Transform:
    """Records are left out first, then changed. Raises ConfigError that names every function there is not."""
    steps, problems = [], []
    for name, keeps in [*((name, True) for name in keep), *((name, False) for name in change)]:
        try:
            steps.append(TransformStep(name, _find(name), keeps))
        except Exception as error:  # a user's module may raise anything while it is imported
            problems.append(f"{name}: {error if isinstance(error, _TOLD) else f'{type(error).__name__}: {error}'}")
    if problems:
        raise ConfigError(problems, source="transforms")
    return Transform(tuple(steps))


def _find(name: str) -> Function:
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise ValueError("not package.module:function")
    found = getattr(importlib.import_module(module), function)
    if not callable(found):
        raise ValueError("is no function")
    return found  # type: ignore[no-any-return]


def _are_booleans(answer: object) -> bool:
    return isinstance(answer, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(answer.type)


def _shown(answer: object) -> str:
    length = f" of {len(answer)}" if isinstance(answer, Sized) else ""
    return f"{type(answer).__name__}{length}"
