"""User transform functions: valid results, and the errors for invalid ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from formats.coverage import SegmentSlice
from formats.errors import ConfigError, TransformFailed
from formats.records.schema import SCHEMA
from formats.records.transform import Transform, TransformStep, load
from formats.segment import SourcePartition
from infra.archive.run_reader import SegmentRun, SegmentRunReader
from tests.formats.sample_records import batch_of, sample_rows
from tests.ingress.world import World

SOURCE = SourcePartition("a", "t", 3)
ROWS = sample_rows(6, first_offset=10)
BATCH = batch_of(ROWS)
Function = Callable[[pa.RecordBatch, SourcePartition], Any]


def offsets(batch: pa.RecordBatch) -> list[int]:
    return batch.column("offset").to_pylist()  # type: ignore[no-any-return]


def even(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
    return pa.array([offset % 2 == 0 for offset in offsets(batch)])


def nothing(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
    return pa.array([False] * batch.num_rows)


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    columns = [column if field.name == name else batch.column(field.name) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def renumbered(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    """Every value contains its source."""
    return with_column(batch, "value", pa.array([str(source).encode()] * batch.num_rows, pa.binary()))


def keeping(function: Function) -> Transform:
    return Transform((TransformStep("ours:keep", function, True),))


def changing(function: Function) -> Transform:
    return Transform((TransformStep("ours:change", function, False),))


def test_without_steps_nothing_changes() -> None:
    assert not Transform()
    assert Transform()(BATCH, SOURCE) is BATCH


def test_records_are_dropped_and_changed() -> None:
    transform = Transform((TransformStep("keep", even, True), TransformStep("change", renumbered, False)))
    found = transform(BATCH, SOURCE)
    assert offsets(found) == [10, 12, 14]
    assert found.column("value").to_pylist() == [b"a/t/3"] * 3


def test_booleans_may_be_chunked_and_null_drops_the_record() -> None:
    chunks = pa.chunked_array([[True, None], [False, True, None, True]])
    assert offsets(keeping(lambda *_: chunks)(BATCH, SOURCE)) == [10, 13, 15]


def test_a_function_is_not_called_with_an_empty_batch() -> None:
    def fails(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
        raise AssertionError("called")

    transform = Transform((TransformStep("nothing", nothing, True), TransformStep("fails", fails, True)))
    assert transform(BATCH, SOURCE).num_rows == 0
    assert transform(BATCH.slice(0, 0), SOURCE).num_rows == 0


def broken(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
    raise KeyError("no such thing")


TIMELESS = pa.nulls(6, SCHEMA.field("timestamp").type)


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (keeping(broken), "KeyError: 'no such thing'"),
        (keeping(lambda *_: [True] * 6), "wanted 6 booleans, found list of 6"),
        (keeping(lambda *_: None), "wanted 6 booleans, found NoneType"),
        (keeping(lambda *_: list), "wanted 6 booleans, found type"),
        (keeping(lambda *_: pa.array([1] * 6)), "wanted 6 booleans, found Int64Array of 6"),
        (keeping(lambda *_: pa.chunked_array([[1] * 6])), "wanted 6 booleans, found ChunkedArray of 6"),
        (keeping(lambda *_: pa.array([True] * 5)), "wanted 6 booleans, found BooleanArray of 5"),
        (changing(broken), "KeyError: 'no such thing'"),
        (changing(lambda *_: None), "wanted a RecordBatch of the same schema, found NoneType"),
        (changing(lambda b, _: pa.Table.from_batches([b])), "of the same schema, found Table of 6"),
        (changing(lambda b, _: b.select(["offset", "value"])), "of the same schema, found RecordBatch of 6"),
        (changing(lambda b, _: b.slice(1)), "wanted the same records in the same order, found other offsets"),
        (
            changing(lambda b, _: with_column(b, "offset", pc.add(b.column("offset"), 1))),
            "wanted the same records in the same order, found other offsets",
        ),
        (
            changing(lambda b, _: b.take(pa.array([5, 4, 3, 2, 1, 0]))),
            "wanted the same records in the same order, found other offsets",
        ),
        (changing(lambda b, _: with_column(b, "timestamp", TIMELESS)), "found nulls in timestamp"),
    ],
)
def test_an_invalid_result_names_function_partition_and_offsets(transform: Transform, why: str) -> None:
    with pytest.raises(TransformFailed) as raised:
        transform(BATCH, SOURCE)
    assert str(raised.value).startswith(f"{transform.steps[0].name}, for a/t/3 offsets 10 to 15: ")
    assert why in str(raised.value)


# --- by name ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def module() -> Iterator[str]:
    """A module of a user."""
    found = ModuleType("functions_of_a_user")
    vars(found).update(even=even, renumbered=renumbered, number=5)
    sys.modules[found.__name__] = found
    yield found.__name__
    del sys.modules[found.__name__]


def test_functions_are_found_by_name_and_filters_come_first(module: str) -> None:
    transform = load([f"{module}:even"], [f"{module}:renumbered"])
    assert [(step.name, step.keeps) for step in transform.steps] == [
        (f"{module}:even", True),
        (f"{module}:renumbered", False),
    ]
    assert offsets(transform(BATCH, SOURCE)) == [10, 12, 14]


def test_every_missing_function_is_named(module: str) -> None:
    keep = [f"{module}:absent", f"{module}:even", "no_such_module:keep", "nonsense", ":keep", "module:"]
    change = [f"{module}:number", "..relative:change", "no_such_package.module:change"]
    with pytest.raises(ConfigError) as raised:
        load(keep, change)
    assert [problem.partition(": ")[0] for problem in raised.value.problems] == [
        name for name in [*keep, *change] if name != f"{module}:even"
    ]
    assert f"{module}:number: is no function" in raised.value.problems
    assert "nonsense: not package.module:function" in raised.value.problems


def test_a_module_that_fails_while_it_is_imported_is_a_problem_too(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "does_not_compile.py").write_text("def keep(:\n")
    (tmp_path / "divides.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as raised:
        load(["does_not_compile:keep", "divides:keep"], [])
    first, second = raised.value.problems
    assert first.startswith("does_not_compile:keep: SyntaxError: ")
    assert second == "divides:keep: ZeroDivisionError: division by zero"


# --- through a reader of slices ---------------------------------------------------------------------------------------


def reader(world: World, transform: Transform) -> SegmentRunReader:
    return SegmentRunReader(world.archive, 4, 1 << 20, change=transform)


def test_dropped_records_still_advance_the_position() -> None:
    world = World()
    slices = [SegmentSlice.rest(world.put(0, 9), 0), SegmentSlice.rest(world.put(10, 19), 10)]
    [run] = reader(world, keeping(nothing)).runs(slices)
    assert (run.batches, run.count, run.next_offset, run.last) == ((), 0, 20, True)


def test_records_changed_before_a_failure_are_yielded_first() -> None:
    def until_13(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
        if 13 in offsets(batch):
            raise ValueError("unlucky")
        return even(batch, source)

    world = World()
    runs = reader(world, keeping(until_13)).runs(
        [SegmentSlice.rest(world.put(0, 9), 0), SegmentSlice.rest(world.put(10, 19), 10)]
    )
    found: list[SegmentRun] = []
    with pytest.raises(TransformFailed, match="ours:keep, for a/t/0 offsets 10 to 13: ValueError: unlucky"):
        found.extend(runs)  # a list that is extended by a generator that raises keeps what came before
    assert [o for run in found for batch in run.batches for o in offsets(batch)] == [0, 2, 4, 6, 8]
    assert found[-1].next_offset == 10
