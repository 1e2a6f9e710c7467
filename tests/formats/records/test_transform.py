"""User transform functions: valid results, and the errors for invalid ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from formats.errors import ConfigError, TransformFailed
from formats.records.schema import HEADER, SCHEMA
from formats.records.transform import Returns, Transform, TransformStep, load, transform_named
from formats.segment import SourcePartition
from infra.archive.run_reader import SegmentRun, SegmentRunReader
from tests.examples import property_examples
from tests.formats.records.user_transforms import masked, with_partition
from tests.formats.sample_records import Row, batch_of, rows, rows_of, sample_rows
from tests.ingress.world import World

PROPERTY = property_examples()
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
    return Transform((TransformStep("ours:keep", function, Returns.KEPT),))


def changing(function: Function) -> Transform:
    return Transform((TransformStep("ours:change", function, Returns.CHANGED),))


def test_without_steps_nothing_changes() -> None:
    assert not Transform()
    assert Transform()(BATCH, SOURCE) is BATCH


def test_records_are_dropped_and_changed() -> None:
    transform = Transform(
        (TransformStep("keep", even, Returns.KEPT), TransformStep("change", renumbered, Returns.CHANGED))
    )
    found = transform(BATCH, SOURCE)
    assert offsets(found) == [10, 12, 14]
    assert found.column("value").to_pylist() == [b"a/t/3"] * 3


def test_booleans_may_be_chunked_and_null_drops_the_record() -> None:
    chunks = pa.chunked_array([[True, None], [False, True, None, True]])
    assert offsets(keeping(lambda *_: chunks)(BATCH, SOURCE)) == [10, 13, 15]


def test_a_function_is_not_called_with_an_empty_batch() -> None:
    def fails(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
        raise AssertionError("called")

    transform = Transform(
        (TransformStep("nothing", nothing, Returns.KEPT), TransformStep("fails", fails, Returns.KEPT))
    )
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


# --- a function that may return either --------------------------------------------------------------------------------


def either(function: Function) -> Transform:
    return Transform((TransformStep("ours:either", function, Returns.EITHER),))


@PROPERTY
@given(rows=rows(min_size=1), keep=st.data(), is_masked=st.booleans())
def test_a_function_may_leave_records_out_and_change_the_others(
    rows: list[Row], keep: st.DataObject, is_masked: bool
) -> None:
    """Whatever it leaves out, and whether it says so by booleans or by records."""
    batch = batch_of(rows)
    kept = pa.array(keep.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), pa.bool_())

    def function(batch: pa.RecordBatch, source: SourcePartition) -> Any:
        return masked(batch.filter(kept), source) if is_masked else kept

    found = rows_of([either(function)(batch, SOURCE)])
    wanted = [row for row, stays in zip(rows_of([batch]), kept.to_pylist(), strict=True) if stays]
    assert found == [row | {"value": b"***"} if is_masked else row for row in wanted]


@PROPERTY
@given(picked=st.lists(st.integers(0, 5), max_size=8))
def test_records_that_are_reordered_or_repeated_are_refused(picked: list[int]) -> None:
    transform = either(lambda batch, _: batch.take(pa.array(picked, pa.int64())))
    if picked == sorted(set(picked)):
        assert offsets(transform(BATCH, SOURCE)) == [10 + n for n in picked]
    else:
        with pytest.raises(TransformFailed, match="records of the batch in the same order, each at most once"):
            transform(BATCH, SOURCE)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (broken, "KeyError: 'no such thing'"),
        (lambda *_: None, "wanted 6 booleans or a RecordBatch, found NoneType"),
        (lambda *_: pa.array([True] * 5), "wanted 6 booleans or a RecordBatch, found BooleanArray of 5"),
        (lambda b, _: pa.Table.from_batches([b]), "wanted 6 booleans or a RecordBatch, found Table of 6"),
        (with_partition, "wanted a RecordBatch of the same schema, found RecordBatch of 6"),
        (lambda b, _: with_column(b, "offset", pc.add(b.column("offset"), 5)).slice(0, 2), "found other offsets"),
        (lambda b, _: with_column(b, "timestamp", TIMELESS).slice(3), "found nulls in timestamp"),
    ],
)
def test_an_invalid_result_of_either_kind_says_how_many_records_it_was_called_with(
    function: Function, why: str
) -> None:
    with pytest.raises(TransformFailed) as raised:
        either(function)(BATCH, SOURCE)
    assert str(raised.value).startswith("ours:either, for a/t/3 offsets 10 to 15: ")
    assert why in str(raised.value)
    assert (raised.value.count, raised.value.last_offset) == (6, 15)


def with_headers(*names: bytes | None, is_null: bool = False) -> Function:
    """Gives each record one header, by names that may be null, or no UTF-8."""
    mask = pa.array([is_null] * len(names))
    keys = pa.array(names, pa.binary()).view(pa.string())
    elements = pa.StructArray.from_arrays([keys, pa.nulls(len(names), pa.binary())], fields=list(HEADER), mask=mask)
    column = pa.ListArray.from_arrays(range(len(names) + 1), elements, type=SCHEMA.field("headers").type)
    return lambda batch, _: with_column(batch, "headers", column)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (with_headers(*[b"a"] * 5, None), "wanted a name in each header, found nulls"),
        (with_headers(*[b"a"] * 6, is_null=True), "wanted a name in each header, found nulls"),
        (with_headers(*[b"a"] * 5, b"\xff"), "Invalid UTF8 sequence at string index 5"),
    ],
)
@pytest.mark.parametrize("kind", [either, changing])
def test_headers_that_no_client_can_send_are_the_functions_failure(
    kind: Callable[[Function], Transform], function: Function, why: str
) -> None:
    with pytest.raises(TransformFailed) as raised:
        kind(function)(BATCH, SOURCE)
    assert why in str(raised.value)


def test_headers_of_a_function_are_taken_as_they_are() -> None:
    headers = either(with_headers(*["äbcdef".encode()] * 6))(BATCH, SOURCE).column("headers")
    assert headers.to_pylist() == [[{"key": "äbcdef", "value": None}]] * 6


def test_a_function_that_exits_fails_like_any_other() -> None:
    with pytest.raises(TransformFailed, match="SystemExit: 3"):
        either(lambda *_: sys.exit(3))(BATCH, SOURCE)


def test_a_failure_of_a_later_step_counts_the_records_that_an_earlier_one_left_out() -> None:
    """Fewer are read until the record is alone: then those before it are delivered, or counted as left out."""
    steps = (TransformStep("keep", even, Returns.KEPT), TransformStep("change", broken, Returns.CHANGED))
    with pytest.raises(TransformFailed, match="change, for a/t/3 offsets 10 to 14: KeyError") as raised:
        Transform(steps)(BATCH, SOURCE)
    assert (raised.value.count, raised.value.last_offset) == (6, 14)


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
    assert [(step.name, step.returns) for step in transform.steps] == [
        (f"{module}:even", Returns.KEPT),
        (f"{module}:renumbered", Returns.CHANGED),
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


USER = "tests.formats.records.user_transforms"


def test_a_transform_of_ingress_is_one_name() -> None:
    assert not transform_named("")
    transform = transform_named(f"{USER}:masked_even")
    assert [(step.name, step.returns) for step in transform.steps] == [(f"{USER}:masked_even", Returns.EITHER)]
    assert transform == transform_named(f"{USER}:masked_even") != transform_named(f"{USER}:masked")
    assert offsets(transform(BATCH, SOURCE)) == [10, 12, 14]
    assert transform_named(f"{USER}:takes_any")(BATCH, SOURCE) is BATCH
    assert transform_named("builtins:divmod"), "what a function in C takes is not known before it is called"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent", "has no attribute 'absent'"),
        ("a_number", "is no function"),
        ("takes_one", "is called with a RecordBatch and a SourcePartition, but: too many positional arguments"),
    ],
)
def test_a_name_that_cannot_be_called_is_a_problem(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{USER}:{name}: ") as raised:
        transform_named(f"{USER}:{name}")
    assert why in str(raised.value)


def test_a_module_that_fails_while_it_is_imported_is_a_problem_too(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "does_not_compile.py").write_text("def keep(:\n")
    (tmp_path / "divides.py").write_text("1 / 0\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit('usage: exits')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as raised:
        load(["does_not_compile:keep", "divides:keep", "exits:keep"], [])
    first, second, third = raised.value.problems
    assert first.startswith("does_not_compile:keep: SyntaxError: ")
    assert second == "divides:keep: ZeroDivisionError: division by zero"
    assert third == "exits:keep: exits ends the process while it is imported: sys.exit('usage: exits')"


# --- through a reader of slices ---------------------------------------------------------------------------------------


def reader(world: World) -> SegmentRunReader:
    return SegmentRunReader(world.archive, 4, 1 << 20)


def test_dropped_records_still_advance_the_position() -> None:
    world = World()
    slices = [SegmentSlice.rest(world.put(0, 9), 0), SegmentSlice.rest(world.put(10, 19), 10)]
    runs = list(reader(world).runs(slices, transform=keeping(nothing)))
    assert [(run.batches, run.count) for run in runs] == [((), 0)] * len(runs)
    assert sum(run.dropped for run in runs) == 20
    assert [(run.next_offset, run.last) for run in runs] == [
        (4, False),
        (8, False),
        (14, False),
        (18, False),
        (20, True),
    ]


def test_records_changed_before_a_failure_are_yielded_first() -> None:
    def until_13(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
        if 13 in offsets(batch):
            raise ValueError("unlucky")
        return even(batch, source)

    world = World()
    slices = [SegmentSlice.rest(world.put(0, 9), 0), SegmentSlice.rest(world.put(10, 19), 10)]
    runs = reader(world).runs(slices, transform=keeping(until_13))
    found: list[SegmentRun] = []
    with pytest.raises(TransformFailed, match="ours:keep, for a/t/0 offsets 10 to 13: ValueError: unlucky"):
        found.extend(runs)  # a list that is extended by a generator that raises keeps what came before
    assert [o for run in found for batch in run.batches for o in offsets(batch)] == [0, 2, 4, 6, 8]
    assert found[-1].next_offset == 10
