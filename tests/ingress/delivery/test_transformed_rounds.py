"""Delivery through a user's transform: what it leaves out still moves the position, and is counted exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.coverage import SegmentSlice, remaining
from formats.messages.delivery_checkpoint import Author
from formats.records.transform import Returns, Transform, TransformStep
from formats.segment import SourcePartition
from infra.contracts.producer import FailureKind
from ingress.delivery.events import DeliveryFailed, DeliveryTarget, Progressed
from tests.examples import property_examples
from tests.fakes.kafka_target import Crashed
from tests.formats.records.user_transforms import fails_for_7, masked_even
from tests.ingress.delivery.hand import C, Hand
from tests.ingress.process import Process, joined
from tests.ingress.world import World, key, numbers, source_settings

USER = "tests.formats.records.user_transforms"
LABELS = {"region": "a", "topic": "t", "partition": "0", "destination": "copy"}
AT_ONCE = source_settings(first_segment_delay=timedelta())


def transform(function: Callable[[pa.RecordBatch, SourcePartition], Any], name: str = "user:f") -> Transform:
    return Transform((TransformStep(name, function, Returns.EITHER),))


def keeping(wanted: set[int]) -> Transform:
    return transform(lambda batch, _: pc.is_in(batch.column("offset"), value_set=pa.array(sorted(wanted), pa.int64())))


def begin(hand: Hand, world: World, function: Transform, *, size: int = 10, count: int = 2) -> DeliveryTarget:
    """Deliver `count` segments of `size` offsets."""
    segments = [world.put(n * size, n * size + size - 1) for n in range(count)]
    given = DeliveryTarget(segments[0].source, C, "id", 1, clamp_timestamps=False, begun_at=0, transform=function)
    hand.delivery.begin(given, [SegmentSlice.rest(one, one.offsets.start) for one in segments])
    return given


@pytest.mark.parametrize("exactly_once", [True, False])
def test_records_are_masked_and_left_out_and_the_position_is_exact(exactly_once: bool) -> None:
    world = World()
    world.target.exactly_once = exactly_once
    hand = Hand(world)
    begin(hand, world, transform(masked_even))
    while hand.delivery.run_round():
        pass
    assert world.offsets(C) == list(range(0, 20, 2))
    assert {record.value for record in world.target.records(C)} == {b"***"}
    checkpoint = world.target.checkpoints[key()]
    assert (checkpoint.next_offset, checkpoint.dropped, checkpoint.begun_at) == (20, 10, 0)
    assert hand.metrics.by_label("record_count", **LABELS) == 10
    assert hand.metrics.by_label("dropped_records", **LABELS) == 10


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_run_of_which_nothing_is_left_still_writes_its_checkpoint(exactly_once: bool) -> None:
    world = World()
    world.target.exactly_once = exactly_once
    hand = Hand(world, records=4, round_records=4)
    given = begin(hand, world, keeping(set()))
    assert hand.delivery.run_round()
    assert world.target.checkpoints[key()].next_offset == 4, "a round is full by what it reads"
    while hand.delivery.run_round():
        pass
    assert world.target.records(C) == []
    checkpoint = world.target.checkpoints[key()]
    assert (checkpoint.next_offset, checkpoint.dropped) == (20, 20)
    assert hand.reports()[-1] == Progressed(given, 20, True)


@property_examples()
@example(wanted=set(), records=12, round_records=30, exactly_once=True, failures=["fail", "retry"])  # no record at all
@example(wanted=set(range(10, 20)), records=3, round_records=1, exactly_once=True, failures=["retry"])  # of a segment
@example(wanted=set(range(8)), records=3, round_records=30, exactly_once=False, failures=["fail"])  # the last of one
@given(
    wanted=st.sets(st.integers(0, 19)),
    records=st.integers(1, 12),
    round_records=st.integers(1, 30),
    exactly_once=st.booleans(),
    failures=st.lists(st.sampled_from(["fail", "retry", "refuse", ""]), max_size=6),
)
def test_whatever_is_left_out_and_whatever_fails_everything_else_arrives_once_and_in_order(
    wanted: set[int], records: int, round_records: int, exactly_once: bool, failures: list[str]
) -> None:
    """A failed delivery begins again at the last checkpoint, as the controller does it."""
    world = World()
    world.target.exactly_once = exactly_once
    hand = Hand(world, records=records, round_records=round_records)
    given = begin(hand, world, keeping(wanted))
    slices = [SegmentSlice.rest(info.segment, info.segment.offsets.start) for info in world.peek.list(given.source)]
    position, dropped, epoch = 0, 0, 1
    for _ in range(200):
        failure = failures.pop() if failures else ""
        world.target.refusing = "no right" if failure == "refuse" else ""
        if failure in {"fail", "retry"}:
            kind = FailureKind.RETRY_LATER if failure == "fail" else FailureKind.RETRY_NOW
            world.target.fail_next(C, kind=kind)
        hand.delivery.run_round()
        world.clock.advance(120)
        for report in hand.reports():
            if isinstance(report, Progressed):
                position, dropped = report.next_offset, report.dropped
            elif isinstance(report, DeliveryFailed):
                epoch += 1
                rest = remaining(slices, position)
                hand.delivery.begin(replace(given, epoch=epoch), rest, dropped=dropped)
        if position == 20:
            break
    found = world.target.checkpoints[key()]
    assert (found.next_offset, found.dropped) == (20, 20 - len(wanted)) == (position, dropped)
    assert hand.metrics.by_label("dropped_records", **LABELS) == 20 - len(wanted)
    assert world.offsets(C) == sorted(wanted)


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("records", [1, 3, 4, 50])
def test_a_function_that_fails_stops_its_partition_at_the_record(records: int, exactly_once: bool) -> None:
    """The record is found, as one that the target refuses is, and everything before it is delivered."""
    world = World()
    world.target.exactly_once = exactly_once
    hand = Hand(world, records=records)
    given = begin(hand, world, transform(fails_for_7))
    other = hand.begin(world.put(0, 9, partition=1), epoch=2)
    while hand.delivery.run_round():
        pass
    reports = hand.reports()
    [failed] = [report for report in reports if isinstance(report, DeliveryFailed)]
    assert (failed.delivery_target, failed.kind, failed.offset) == (given, FailureKind.REJECTED, 7)
    assert failed.reason == (
        "the record at offset 7 is refused: user:f, for a/t/0 offsets 7 to 7: ValueError: unlucky; correct the "
        "function, and start this process again"
    )
    assert world.offsets(C) == [0, 2, 4, 6]
    assert (world.checkpoint(), world.target.checkpoints[key()].dropped) == (7, 3)
    assert Progressed(other, 10, True) in reports, "the other partition goes on"


@property_examples()
@example(wanted={7}, poison={7}, records=50, exactly_once=True, sharing=False)
@example(wanted={0, 19}, poison={19}, records=50, exactly_once=True, sharing=True)
@given(
    wanted=st.sets(st.integers(0, 19)),
    poison=st.sets(st.integers(0, 19), max_size=3),
    records=st.integers(1, 50),
    exactly_once=st.booleans(),
    sharing=st.booleans(),
)
def test_a_record_that_the_target_refuses_is_where_the_position_stops(
    wanted: set[int], poison: set[int], records: int, exactly_once: bool, sharing: bool
) -> None:
    """Records that are left out before it are behind the position, and counted, however few are left: so one that gives
    it up begins after it with the right number. With another source of the same partition, too."""
    world = World()
    world.target.exactly_once = exactly_once
    world.target.poison[C] = poison
    hand = Hand(world, records=records)
    given = begin(hand, world, keeping(wanted))
    other = hand.begin(world.put(100, 109, partition=1), epoch=2, target=C) if sharing else None
    for _ in range(200):
        if not hand.delivery.run_round():
            break
    else:
        raise AssertionError("it goes on for ever")
    reports = hand.reports()
    refused = min(wanted & poison, default=None)
    end = 20 if refused is None else refused
    failed = [report for report in reports if isinstance(report, DeliveryFailed)]
    assert [(one.delivery_target, one.offset) for one in failed] == ([] if refused is None else [(given, refused)])
    if end:
        found = world.target.checkpoints[key()]
        assert (found.next_offset, found.dropped) == (end, end - len([o for o in wanted if o < end]))
    delivered = [one for one in world.offsets(C) if one < 100]
    assert list(dict.fromkeys(delivered)) == sorted(o for o in wanted if o < end)
    assert not exactly_once or len(delivered) == len(set(delivered))
    assert other is None or Progressed(other, 110, True) in reports


def test_a_timestamp_that_the_target_refuses_is_where_the_position_stops() -> None:
    world = World()
    hand = Hand(world, records=50)
    segments = [world.put(0, 9), world.put(10, 19, stamp=0)]
    given = DeliveryTarget(segments[0].source, C, "id", 1, clamp_timestamps=False, begun_at=0, transform=keeping({17}))
    hand.delivery.begin(given, [SegmentSlice.rest(one, one.offsets.start) for one in segments])
    while hand.delivery.run_round():
        pass
    [failed] = [report for report in hand.reports() if isinstance(report, DeliveryFailed)]
    checkpoint = world.target.checkpoints[key()]
    assert (failed.offset, checkpoint.next_offset, checkpoint.dropped) == (17, 17, 17)


def test_a_function_that_fails_for_many_records_together_only_is_called_with_fewer() -> None:
    def fails_for_many(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
        if batch.num_rows > 2:
            raise MemoryError("too much")
        return batch

    world = World()
    hand = Hand(world, records=10)
    begin(hand, world, transform(fails_for_many))
    while hand.delivery.run_round():
        pass
    assert world.offsets(C) == numbers((0, 19))
    assert not [report for report in hand.reports() if isinstance(report, DeliveryFailed)]


# --- through the whole process ----------------------------------------------------------------------------------------


def reload(process: Process, transform_name: str) -> None:
    process.current.replace(replace(process.current.value, sources=(replace(AT_ONCE, transform=transform_name),)))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_process_that_dies_leaves_the_count_to_its_successor(exactly_once: bool) -> None:
    world = World(replace(AT_ONCE, transform=f"{USER}:only_even"))
    world.target.exactly_once = exactly_once
    world.record_begin(0)
    world.put(0, 9)
    joined(world, run_records=4)
    assert world.target.checkpoints[key()].dropped == 5
    world.put(10, 19)
    world.target.crash_next()
    with pytest.raises(Crashed):
        joined(world, run_records=4)
    successor = joined(world, run_records=4)
    successor.turn(6)
    checkpoint = world.target.checkpoints[key()]
    assert (checkpoint.next_offset, checkpoint.dropped) == (20, 10)
    assert sorted(set(world.offsets(C))) == list(range(0, 20, 2))
    if exactly_once:
        assert world.offsets(C) == list(range(0, 20, 2))
        assert checkpoint.author is Author.EXACTLY_ONCE


def test_a_failing_function_parks_the_partition_and_a_corrected_one_goes_on() -> None:
    world = World(replace(AT_ONCE, transform=f"{USER}:fails_for_7"))
    world.record_begin(0)
    world.put(0, 9)
    process = joined(world)
    process.turn(20)
    [(where, reason)] = process.stopped.items()
    assert where == "a/t/0"
    assert f"{USER}:fails_for_7, for a/t/0 offsets 7 to 7: ValueError: unlucky" in reason
    rounds = len(world.target.rounds)
    process.later(10, turns=20)
    assert len(world.target.rounds) == rounds, "it waits, and is not tried in every turn"
    [partition] = [one for one in world.status().partitions if one.key == key()]
    assert partition.parked is not None
    assert partition.parked.next_offset == 7
    reload(process, f"{USER}:only_even")
    process.later(1, turns=12)
    assert process.stopped == {}
    assert world.offsets(C) == [0, 2, 4, 6, 8]
    assert world.target.checkpoints[key()].dropped == 5


def test_a_transform_that_is_changed_while_it_runs_holds_for_what_comes_later() -> None:
    world = World(AT_ONCE)
    world.record_begin(0)
    world.put(0, 3)
    process = joined(world)
    reload(process, f"{USER}:masked_even")
    process.turn(8)
    world.put(4, 7)
    process.turn(8)
    assert world.offsets(C) == [0, 1, 2, 3, 4, 6]
    assert [record.value for record in world.target.records(C)] == [b""] * 4 + [b"***"] * 2


def test_status_says_which_transform_applies_and_how_many_records_it_left_out() -> None:
    world = World(replace(AT_ONCE, transform=f"{USER}:nothing"))
    world.record_begin(0)
    world.put(0, 9)
    joined(world)
    [partition] = [one for one in world.status().partitions if one.key == key()]
    assert (partition.transform, partition.dropped) == (f"{USER}:nothing", 10)
    assert (partition.lag, partition.problems) == (0, ())
    world.settings = replace(world.settings, sources=(AT_ONCE,))
    [partition] = [one for one in world.status().partitions if one.key == key()]
    assert (partition.transform, partition.dropped) == ("", 10), "what was left out stays left out"
