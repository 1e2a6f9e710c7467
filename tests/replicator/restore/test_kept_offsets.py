"""What a restore that keeps the source's offsets fills, and what stops it; against a list of single offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.footer import SegmentFooter
from formats.holes import time_to_fill
from formats.int_range import IntRange
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.contracts.cluster import TopicPartition, Watermarks
from replicator.restore.conflicts import Conflict, ConflictKind
from replicator.restore.kept_offsets import against_holes, against_taken, fill_warnings, holes, log_end, time_for
from replicator.restore.partition_plan import PartitionCut, PartitionPlan, plan_partition
from tests.formats.sample_records import ORIGIN

T0 = datetime(2026, 3, 4, 12, tzinfo=UTC)
SOURCE, TARGET = SourcePartition("a", "t", 0), TopicPartition("copy", 0)
ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=5).map(
    lambda some: [OffsetRange(start, start + length) for start, length in some]
)


def planned(
    stored: Sequence[OffsetRange],
    *,
    recorded: Sequence[OffsetRange] = (),
    wanted: IntRange | None = None,
    cut: PartitionCut | None = None,
    checkpoint: Checkpoint | None = None,
    begin: int | None = None,
) -> PartitionPlan:
    infos = [SegmentInfo(segment=Segment(SOURCE, 0, one), size_bytes=1, stored_at=T0) for one in stored]
    return plan_partition(
        source=SOURCE,
        target=TARGET,
        infos=infos,
        recorded=recorded,
        wanted=wanted or IntRange(0, 60),
        listed_at=T0,
        checkpoint=checkpoint,
        begin=begin,
        cut=cut,
    )


def offsets_of(found: Sequence[OffsetRange]) -> set[int]:
    return {offset for one in found for offset in range(one.start, one.next_offset)}


@given(
    stored=ranges,
    recorded=ranges,
    low=st.integers(0, 20),
    cut=st.none() | st.integers(0, 45),
    begin=st.none() | st.integers(0, 45),
    position=st.none() | st.integers(0, 45),
)
def test_every_offset_without_a_segment_up_to_the_end_is_filled(
    *,
    stored: Sequence[OffsetRange],
    recorded: Sequence[OffsetRange],
    low: int,
    cut: int | None,
    begin: int | None,
    position: int | None,
) -> None:
    begun = None if position is None else Checkpoint(position, "", T0)
    plan = planned(
        stored,
        recorded=recorded,
        wanted=IntRange(low, 60),
        cut=None if cut is None else PartitionCut(cut),
        begin=begin,
        checkpoint=begun,
    )
    end = log_end(plan)
    restored = 0 if plan.offsets is None else plan.offsets.end + 1
    assert end >= restored
    if cut is None:
        assert end == restored
    else:
        assert end <= max(cut, restored)
        assert end == max(min(cut, plan.stored_until), restored)
    held = offsets_of(stored) - offsets_of(recorded) if plan.offsets is not None else set()
    held = {o for o in held if plan.offsets is not None and o in plan.offsets}
    done = position or 0
    if plan.offsets is not None and done <= plan.offsets.start:
        done = 0
    assert offsets_of(holes(plan)) >= {o for o in range(end) if o not in held and o >= done} - offsets_of(recorded)
    assert offsets_of(holes(plan)) <= {o for o in range(end) if o >= done}
    assert not offsets_of(holes(plan)) & (held - offsets_of(recorded))


def test_the_end_is_no_further_than_what_was_selected() -> None:
    gap = [OffsetRange(10, 19)]
    whole = planned([OffsetRange(0, 9)], recorded=gap, cut=PartitionCut(15))
    part = planned([OffsetRange(0, 9)], recorded=gap, wanted=IntRange(0, 11), cut=PartitionCut(15))
    assert (log_end(whole), log_end(part)) == (15, 12)
    assert log_end(planned([OffsetRange(0, 9)], cut=PartitionCut(15))) == 10, "what is not here may still be copied"
    assert log_end(planned([OffsetRange(0, 9)], cut=PartitionCut(None))) == 10
    assert log_end(planned([], begin=7, cut=PartitionCut(7))) == 7
    assert log_end(planned([])) == 0


def test_long_holes_are_named_with_the_time_that_they_take() -> None:
    gap = [OffsetRange(110, 1_000_109)]
    plan = planned([OffsetRange(100, 109)], recorded=gap, wanted=IntRange(0, 10**9), cut=PartitionCut(1_000_110))
    assert holes(plan) == [OffsetRange(0, 99), OffsetRange(110, 1_000_109)]
    assert time_for([plan, plan]) == 2 * (time_to_fill(100) + time_to_fill(1_000_000))
    assert list(against_holes([plan], 1_000_000)) == []
    (found,) = against_holes([plan], 999_999)
    assert found.kind is ConflictKind.LONG_HOLES
    assert "more than 999,999 offsets in a row" in found.reason
    assert f"about 7 s: {SOURCE} [110,1000109]" in found.reason
    (found,) = against_holes([plan] * 4, 99)
    assert found.reason.endswith("and 5 more")


def kinds(plan: PartitionPlan, low: int, high: int) -> list[ConflictKind]:
    conflicts: list[Conflict] = list(against_taken({TARGET: Watermarks(low, high)}, [plan]))
    return [one.kind for one in conflicts]


def test_offsets_that_a_destination_has_given_are_taken() -> None:
    plan, taken = planned([OffsetRange(10, 19)]), [ConflictKind.OFFSETS_TAKEN]
    assert kinds(plan, 0, 0) == kinds(plan, 10, 10) == kinds(plan, 4, 4) == []
    assert kinds(plan, 11, 11) == kinds(plan, 0, 1) == kinds(plan, 9, 10) == taken
    begun = replace(plan, checkpoint=Checkpoint(12, "", T0))
    assert kinds(begun, 10, 12) == [], "an earlier run did that"
    empty = planned([], begin=7, cut=PartitionCut(7))
    assert kinds(empty, 7, 7) == []
    assert kinds(empty, 8, 8) == taken
    assert list(against_taken({}, [plan])) == []


@pytest.mark.parametrize(("count", "seconds"), [(1_000, ["0", "0"]), (0, ["0", "25"])])
def test_the_time_that_filling_takes_is_stated_when_it_is_long(count: int, seconds: list[str]) -> None:
    plan = planned([OffsetRange(0, 999)], wanted=IntRange(0, 10**6))
    footer = SegmentFooter(
        segment=plan.infos[0].segment,
        origin=ORIGIN,
        count=count,
        first_offset=None,
        last_offset=None,
        raw_bytes=0,
        largest_record_bytes=0,
        min_timestamp_ms=None,
        max_timestamp_ms=None,
        digest=None,
    )
    warnings = list(fill_warnings([plan], [footer]))
    if seconds[1] == "0":
        assert warnings == []
    else:
        (text,) = warnings
        assert f"about {seconds[0]} s for those before, between and after the segments" in text
        assert f"up to {seconds[1]} s for those within them" in text
    assert list(fill_warnings([plan], [])) == []
    done = replace(plan, checkpoint=Checkpoint(1_000, "", T0))
    assert list(fill_warnings([done], [footer])) == []
    assert timedelta() == time_for([done])
