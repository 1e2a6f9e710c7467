"""The three proofs of a merge, each against the fault that no other check sees.

1. skipped + used = footer of the input     a decoder that loses a record of a trimmed input
2. output = inputs, before the put          a decoder that loses a record of an input that is used whole
3. stored = inputs, after the put           a store that files another valid object under the key

Every reader below has passed the checks of its own format, so only the merge can tell.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from compaction.planner import MergePlan, plan_partition
from compaction.run import JobSelection
from compaction.task_rows import PlanOutcome
from formats.footer import SegmentFooter
from formats.parquet.writer import ParquetFormat
from formats.registry import SegmentReader, SegmentWriter
from formats.segment import Segment, format_key
from tests.compaction.archive import PREFIX, T0, Archive, job
from tests.formats.sample_records import ORIGIN, SOURCE, Row, batch_of, sample_rows, segment

ROWS = sample_rows(25, step=2)  # offsets 0, 2, 4 … 48
LEFT, RIGHT = segment(0, 29), segment(20, 49)  # the right one is trimmed: it is used from 30 on
MERGED = segment(0, 49, 1)

Fault = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyDecoder:
    """Parquet whose decoded batches of one segment are changed behind the checks of its reader."""

    segment: Segment
    fault: Fault
    name: str = "parquet"

    def create(self, sink: BinaryIO) -> SegmentWriter:
        return ParquetFormat().create(sink)

    def open(self, source: BinaryIO, segment: Segment) -> SegmentReader:
        reader = ParquetFormat().open(source, segment)
        return _FaultyReader(reader, self.fault) if segment == self.segment else reader


@dataclass(frozen=True, slots=True)
class _FaultyReader:
    inner: SegmentReader
    fault: Fault

    @property
    def footer(self) -> SegmentFooter:
        return self.inner.footer

    def batches(self, from_offset: int = 0) -> Iterator[pa.RecordBatch]:
        return map(self.fault, self.inner.batches(from_offset))

    def close(self) -> None:
        self.inner.close()


def loses(offset: int) -> Fault:
    return lambda batch: batch.filter(pc.not_equal(batch.column("offset"), offset))


def alters(offset: int) -> Fault:
    def altered(batch: pa.RecordBatch) -> pa.RecordBatch:
        hit = pc.equal(batch.column("offset"), offset)
        keys = pc.if_else(hit, pa.scalar(b"another"), batch.column("key"))
        return batch.set_column(batch.schema.get_field_index("key"), batch.schema.field("key"), keys)

    return altered


class SwappingStore:
    """An object store that files another body under one key: a mixed-up buffer, or somebody else's object."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.swapped: dict[str, bytes] = {}  # by key

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        data = self.swapped.get(key)
        if data is None:
            self.inner.put_new(key, body, size_bytes)
        else:
            self.inner.put_new(key, io.BytesIO(data), len(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def fill(archive: Archive, *names: Segment) -> MergePlan:
    """Stores the segments and returns the plan that merges them."""
    for name in names:
        archive.write(name, [row for row in ROWS if row["offset"] in name.offsets])
    [plan] = plan_partition(archive.store.list(SOURCE), job(), T0)
    assert isinstance(plan, MergePlan)
    return plan


def merge(archive: Archive, plan: MergePlan) -> PlanOutcome:
    return archive.worker().execute(plan)


def encoded(name: Segment, rows: list[Row]) -> bytes:
    body = io.BytesIO()
    writer = ParquetFormat().create(body)
    writer.write([batch_of(rows)])
    writer.close(name, ORIGIN)
    return body.getvalue()


@pytest.mark.parametrize("offset", [24, 36], ids=["skipped", "used"])
@pytest.mark.parametrize("fault", [loses, alters])
def test_a_trimmed_input_that_is_misread_is_named_and_nothing_is_stored(
    fault: Callable[[int], Fault], offset: int
) -> None:
    archive = Archive(FaultyDecoder(segment=RIGHT, fault=fault(offset)))
    plan = fill(archive, LEFT, RIGHT)
    assert [one.offsets.start for one in plan.inputs] == [0, 30]
    outcome = merge(archive, plan)
    assert list(outcome.bad) == [str(RIGHT)]
    assert "records with digest" in outcome.bad[str(RIGHT)]
    assert archive.segments() == [LEFT, RIGHT]


@pytest.mark.parametrize("fault", [loses, alters])
def test_a_whole_input_that_is_misread_is_not_stored(fault: Callable[[int], Fault]) -> None:
    archive = Archive(FaultyDecoder(segment=LEFT, fault=fault(4)))
    outcome = merge(archive, fill(archive, LEFT, RIGHT))
    assert outcome.error.startswith("(not stored): found records with digest")
    assert archive.segments() == [LEFT, RIGHT]


def test_a_merged_segment_that_fails_its_proof_is_quarantined_by_this_run_and_the_next() -> None:
    """Readers would prefer it to its inputs, which are whole; no listing has its time."""
    archive = Archive(around=SwappingStore)
    fill(archive, LEFT, RIGHT)
    others = [row for row in ROWS if row["offset"] != 36]
    archive.objects.swapped[format_key(PREFIX, MERGED)] = encoded(MERGED, others)  # type: ignore[attr-defined]
    for _ in range(2):
        report = archive.compactor().run(job(), JobSelection())
        assert list(report.quarantined) == [str(MERGED)]
    assert set(archive.segments()) >= {RIGHT, MERGED}


def test_a_merge_that_is_refused_before_it_is_stored_fails_the_run() -> None:
    """There is no object to quarantine, so the exit code has to come from the failure itself."""
    archive = Archive(FaultyDecoder(segment=LEFT, fault=loses(4)))
    fill(archive, LEFT, RIGHT)
    report = archive.compactor().run(job(), JobSelection())
    assert (bool(report.failed), dict(report.quarantined)) == (True, {})
    assert archive.segments() == [LEFT, RIGHT]


@pytest.mark.parametrize(("lost", "holder"), [(4, LEFT), (36, RIGHT)])
def test_an_output_that_is_stored_as_another_is_named_and_its_inputs_stay(lost: int, holder: Segment) -> None:
    archive = Archive(around=SwappingStore)
    plan = fill(archive, LEFT, RIGHT)
    others = [row for row in ROWS if row["offset"] != lost]
    archive.objects.swapped[format_key(PREFIX, MERGED)] = encoded(MERGED, others)  # type: ignore[attr-defined]
    outcome = merge(archive, plan)
    assert list(outcome.bad) == [str(MERGED)]
    assert "that of its inputs, which stay" in outcome.error
    archive.compactor().run(job(), JobSelection())
    assert holder in archive.segments()


def test_an_output_that_another_merge_stored_may_hold_less() -> None:
    """Another scheduler merged copies of a log that was compacted in between: its output stands, and is no damage."""
    archive = Archive()
    plan = fill(archive, LEFT, RIGHT)
    archive.write(MERGED, [row for row in ROWS if row["offset"] != 36])
    outcome = merge(archive, plan)
    assert (outcome.error, outcome.bad, outcome.merged) == ("", {}, 2)
