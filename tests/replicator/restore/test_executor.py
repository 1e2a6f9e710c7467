"""Execution of a plan: turns, gaps, damage, failures and restarts, with an archive that changes meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import BinaryIO

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.errors import CheckpointConflict
from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.messages.delivery_checkpoint import Author, Checkpoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.producer import FailureKind
from replicator.restore.executor import PATIENCE
from replicator.restore.progress import RestoreOutcome, RestoringPartition
from tests.examples import machine
from tests.fakes.kafka_target import Crashed
from tests.fakes.surroundings import FailingStore, HandClock
from tests.ingress.world import REGION, STAMP, World, key, numbers
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

C, D = TARGETS[:2]
EVERY = timedelta(seconds=30)


def test_everything_is_delivered_once_and_in_order() -> None:
    world = restorable()
    for n in range(5):
        world.put(10 * n, 10 * n + 9, holes=(10 * n + 3,))
    world.put(0, 25, partition=1)
    restoring = Restoring(world)
    restoring.finish()
    assert (restoring.done, restoring.failed) == ({0, 1}, {})
    assert world.offsets(C) == [o for o in range(50) if o % 10 != 3]
    assert world.offsets(D) == numbers((0, 25))
    assert [restoring.partitions[p].records for p in (0, 1)] == [45, 26]
    assert [p.share for p in restoring.partitions.values()] == [1.0, 1.0]


def test_a_plan_without_work_is_done_at_once() -> None:
    world = restorable()
    world.put(0, 9)
    restoring = Restoring(world, offsets=IntRange(100))
    assert restoring.done == {0}
    restoring = Restoring(world)
    restoring.finish()
    again = Restoring(world)
    again.finish()
    assert again.done == {0}
    assert world.offsets(C) == numbers((0, 9))


# --- the destination --------------------------------------------------------------------------------------------------


def test_a_recreated_destination_fails_completed_partitions_too() -> None:
    """A producer continues into the new topic without an error."""
    world = restorable()
    world.put(0, 39)
    world.put(0, 3, partition=1)
    restoring = Restoring(world)
    restoring.turn(3, seconds=1)
    assert restoring.done == {1}
    world.broker.recreate("copy", partitions=len(TARGETS))
    delivered = len(world.offsets(C))
    assert delivered < 40
    restoring.turn(3, seconds=3)
    assert set(restoring.failed) == {0, 1}
    assert "copy was deleted and created again" in restoring.failed[0]
    restoring.turn(20, seconds=1)
    assert len(world.offsets(C)) - delivered <= 12, "nothing more goes there once it is known"
    assert [RestoreOutcome.of(p).records for p in restoring.partitions.values()] == [0, 0], "nothing of it is there"


def test_a_destination_that_cannot_be_described_is_not_gone() -> None:
    world = restorable()
    world.put(0, 39)
    restoring = Restoring(world)
    restoring.turn(1, seconds=1)
    world.admin.away = True
    restoring.turn(4, seconds=3)
    world.admin.away = False
    restoring.finish()
    assert (restoring.done, restoring.failed) == ({0}, {})
    world.broker.delete("copy")
    again = Restoring(world)
    again.turn(4, seconds=3)
    assert "copy was deleted while this restore wrote to it" in again.failed[0]


# --- turns ------------------------------------------------------------------------------------------------------------


def test_small_partitions_are_delivered_first() -> None:
    world = restorable()
    for partition, count in [(0, 9), (1, 3), (2, 6)]:
        for n in range(count):
            world.put(n, n, partition=partition)
    restoring = Restoring(world, width=1)
    begun: list[int] = []
    while not all(p.is_over for p in restoring.partitions.values()):
        restoring.turn()
        begun += [p for p in range(3) if world.offsets(TARGETS[p]) and p not in begun]
    assert begun == [1, 2, 0]


def test_no_more_than_the_width_are_in_flight() -> None:
    world = restorable()
    for p in range(4):
        world.put(0, 9, partition=p)
    restoring = Restoring(world, width=2)
    restoring.reading.holding = True
    restoring.turn(5)
    assert sum(p.is_under_way for p in restoring.partitions.values()) == 2
    restoring.reading.holding = False
    restoring.reading.run_all()
    while not all(p.is_over for p in restoring.partitions.values()):
        restoring.turn()
        assert sum(p.is_under_way for p in restoring.partitions.values()) <= 2
    assert all(world.offsets(target) == numbers((0, 9)) for target in TARGETS)


def test_the_share_of_a_range_counts_from_its_start() -> None:
    world = restorable()
    world.put(80, 99)
    restoring = Restoring(world, offsets=IntRange(80, 99))
    seen: set[tuple[int, float]] = set()
    restoring.restorer.on_progress = lambda partitions: seen.add((partitions[0].next_offset, partitions[0].share))
    restoring.finish()
    assert len(seen) > 2
    assert all(share == (next_offset - 80) / 20 for next_offset, share in seen)


def test_progress_is_reported_in_every_turn_and_stop_ends_the_restore() -> None:
    world = restorable()
    world.put(0, 99)
    restoring = Restoring(world)
    told: list[float] = []

    def tell(partitions: Sequence[RestoringPartition]) -> None:
        restoring.delivery.run_round()
        told.append(partitions[0].share)
        if len(told) == 4:
            restoring.stop.set()

    restoring.restorer.on_progress = tell
    [partition] = restoring.restorer.run()
    assert not partition.is_over
    assert told == sorted(told)
    assert 0 < told[-1] < 1
    restoring = Restoring(world)
    restoring.finish()
    assert world.offsets(C) == numbers((0, 99))


# --- patience ---------------------------------------------------------------------------------------------------------


def test_waiting_for_a_turn_does_not_count_as_a_stall() -> None:
    world = restorable()
    for n in range(2):
        world.put(n, n, partition=0)
    for n in range(12):
        world.put(n, n, partition=1)
    restoring = Restoring(world, width=1, records=1)
    restoring.finish(seconds=PATIENCE.total_seconds() * 0.9)
    assert (restoring.failed, restoring.done) == ({}, {0, 1})


def test_a_stalled_partition_fails_and_says_how_to_resume() -> None:
    world = restorable()
    world.put(0, 9)
    world.put(0, 9, partition=1)
    restoring = Restoring(world)
    for _ in range(int(PATIENCE.total_seconds())):
        world.target.fail_next(C, kind=FailureKind.STALLED)
        restoring.turn(seconds=2)
    assert restoring.done == {1}
    assert restoring.failed == {0: f"no progress for {PATIENCE}; run the restore again to resume it"}
    world.target._failing.clear()
    again = Restoring(world)
    again.finish()
    assert world.offsets(C) == numbers((0, 9))


def test_an_archive_that_is_unavailable_for_less_time_is_waited_for() -> None:
    world = restorable()
    world.put(0, 9)
    restoring = Restoring(world)
    world.objects.away = {"open", "list"}
    restoring.turn(100, seconds=PATIENCE.total_seconds() / 110)
    assert not restoring.failed
    world.objects.away = set()
    restoring.finish()
    assert world.offsets(C) == numbers((0, 9))


# --- gaps -------------------------------------------------------------------------------------------------------------


def gappy() -> World:
    """Partition 0 lacks offsets 10 to 19, partition 1 is complete."""
    world = restorable()
    world.put(0, 9)
    world.put(20, 29)
    world.put(0, 9, partition=1)
    return world


@pytest.mark.parametrize("offsets", [ANY_OFFSET, IntRange(0, 25), IntRange(5, 14)], ids=["all", "over it", "into it"])
def test_an_unrecorded_gap_fails_its_partition_only(offsets: IntRange) -> None:
    world = gappy()
    restoring = Restoring(world, offsets=offsets)
    restoring.finish()
    assert restoring.done == {1}
    assert restoring.failed[0].startswith("no segment holds the offsets [10,")
    assert world.offsets(C) == numbers((max(offsets.low, 0), 9))


@pytest.mark.parametrize(
    ("offsets", "passed", "behind"),
    [
        (ANY_OFFSET, OffsetRange(10, 19), (20, 29)),
        (IntRange(0, 25), OffsetRange(10, 19), (20, 25)),
        (IntRange(0, 14), OffsetRange(10, 14), (10, 9)),
        (IntRange(12, 29), OffsetRange(12, 19), (20, 29)),
    ],
    ids=["all", "over it", "into it", "out of it"],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_recorded_or_accepted_gap_is_passed_over_and_reported(
    offsets: IntRange, passed: OffsetRange, behind: tuple[int, int], recorded: bool
) -> None:
    world = gappy()
    if recorded:
        world.record_gap(10, 19)
    restoring = Restoring(world, offsets=offsets, skip_missing=not recorded)
    restoring.finish()
    assert restoring.failed == {}
    assert passed_over(restoring.partitions[0]) == (([passed], []) if recorded else ([], [passed]))
    assert passed_over(restoring.partitions[1]) == ([], [])
    assert world.offsets(C) == numbers((offsets.low, 9), behind)


def passed_over(partition: RestoringPartition) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Gaps that were passed over: recorded ones, and unrecorded ones."""
    return partition.recorded, partition.missing


def test_an_accepted_gap_is_recorded_with_the_position_behind_it() -> None:
    world = gappy()
    restoring = Restoring(world, skip_missing=True)
    while (world.checkpoint() or 0) <= 10:
        assert world.target.skipped == []
        restoring.turn(seconds=1)
    (skipped,) = world.target.skipped
    assert (skipped.key, skipped.offsets) == (key(), OffsetRange(10, 19))

    world.put(10, 19)  # stored again: too late for this restore, which has to report it
    again = Restoring(world)
    again.finish()
    assert again.failed == {}
    assert world.offsets(C) == numbers((0, 9), (20, 29))
    outcome = RestoreOutcome.of(again.partitions[0])
    assert (outcome.given_up, outcome.missing, outcome.is_whole) == (((10, 19),), (), False)
    assert RestoreOutcome.of(again.partitions[1]).is_whole


@pytest.mark.parametrize("keep", [0, 1], ids=["not committed", "committed"])
def test_a_gap_is_given_up_with_its_transaction_or_not_at_all(keep: int) -> None:
    world = gappy()
    restoring = Restoring(world, skip_missing=True)
    while (world.checkpoint() or 0) < 10:
        restoring.turn(seconds=1)
    world.target.stop_next(keep=keep)
    while world.target._stopping is not None:
        restoring.turn(seconds=1)
    assert bool(world.target.skipped) == bool(keep) == ((world.checkpoint() or 0) > 10)
    world.put(10, 19)
    Restoring(world).finish()
    assert world.offsets(C) == (numbers((0, 9), (20, 29)) if keep else numbers((0, 29)))


def test_a_gap_that_was_filled_since_the_plan_is_no_gap() -> None:
    world = gappy()
    restoring = Restoring(world)
    world.put(10, 19)
    restoring.finish()
    assert restoring.failed == {}
    assert world.offsets(C) == numbers((0, 29))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_segment_that_is_removed_meanwhile_is_missed(which: int) -> None:
    world = restorable()
    segments = [world.put(0, 9), world.put(10, 19), world.put(20, 29)]
    restoring = Restoring(world)
    world.remove(segments[which])
    restoring.finish()
    assert restoring.failed == {0: f"no segment holds the offsets {segments[which].offsets}"}
    assert world.offsets(C) == numbers((0, 10 * which - 1))


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("recorded", [True, False])
def test_segments_that_retention_removes_meanwhile_are_passed_over_and_reported(which: int, recorded: bool) -> None:
    world = restorable()
    segments = [world.put(0, 9), world.put(10, 19), world.put(20, 29)]
    restoring = Restoring(world, skip_missing=not recorded)
    gone = segments[which]
    if recorded:
        world.record_gap(gone.offsets.start, gone.offsets.end)
    world.remove(gone)
    restoring.finish()
    assert restoring.failed == {}
    assert passed_over(restoring.partitions[0]) == (([gone.offsets], []) if recorded else ([], [gone.offsets]))
    assert world.offsets(C) == [o for o in range(30) if o not in gone.offsets]


def test_segments_that_are_merged_meanwhile_are_not_missed() -> None:
    world = restorable()
    segments = [world.put(10 * n, 10 * n + 9) for n in range(4)]
    restoring = Restoring(world)
    restoring.turn(2)
    world.put(0, 39, level=1)
    world.remove(*segments)
    restoring.finish()
    assert restoring.failed == {}
    assert world.offsets(C) == numbers((0, 39))


# --- a part of it -----------------------------------------------------------------------------------------------------


class OpenedStore(FailingStore):
    """Records which objects were opened."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.opened: set[str] = set()

    def open(self, key: str) -> BinaryIO:
        self.opened.add(key)
        return super().open(key)


def test_segments_outside_the_range_are_not_opened() -> None:
    world = restorable()
    segments = [world.put(10 * n, 10 * n + 9) for n in range(6)]
    objects = OpenedStore(world.clock)
    objects.memory, world.objects = world.objects.memory, objects
    world.store = SegmentStore(objects, "data")
    restoring = Restoring(world, offsets=IntRange(15, 34))
    restoring.finish()
    assert restoring.done == {0}
    assert world.offsets(C) == numbers((15, 34))
    assert objects.opened == {f"data/{segment}" for segment in segments[1:4]}


def test_only_records_in_the_time_range_are_restored() -> None:
    world = restorable()
    for n in range(4):
        world.put(10 * n, 10 * n + 9)
    restoring = Restoring(world, timestamps=IntRange(STAMP + 15, STAMP + 22))
    restoring.finish()
    assert world.offsets(C) == numbers((15, 22))
    assert world.checkpoint() == 40


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_damaged_segment_fails_its_partition_only() -> None:
    world = restorable()
    segments = [world.put(10 * n, 10 * n + 9) for n in range(3)]
    world.put(0, 9, partition=1)
    world.damage(segments[1])
    restoring = Restoring(world)
    restoring.finish()
    assert restoring.done == {1}
    assert str(segments[1]) in restoring.failed[0]
    assert len(restoring.partitions[0].corrupt) == 1
    assert world.offsets(C) == numbers((0, 9))


def test_a_damaged_segment_is_not_passed_over_as_missing() -> None:
    world = restorable()
    segments = [world.put(10 * n, 10 * n + 9) for n in range(3)]
    world.damage(segments[1])
    restoring = Restoring(world, skip_missing=True)
    restoring.finish()
    assert "corrupt segment" in restoring.failed[0]


def test_another_segment_replaces_a_damaged_one() -> None:
    world = restorable()
    for n in range(4):
        world.put(10 * n, 10 * n + 9)
    world.damage(world.put(0, 39, level=1))
    restoring = Restoring(world)
    restoring.finish()
    assert restoring.failed == {}
    assert len(restoring.partitions[0].corrupt) == 1
    assert world.offsets(C) == numbers((0, 39))


def test_a_segment_stored_since_replaces_a_damaged_one_too() -> None:
    world = restorable()
    damaged = world.put(0, 9, level=1)
    other = world.put(0, 19)
    restoring = Restoring(world)
    world.damage(damaged)
    world.put(0, 19, level=2)
    world.remove(other)
    restoring.finish()
    assert restoring.failed == {}
    assert world.offsets(C) == numbers((0, 19))


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1], ids=["not committed", "committed"])
def test_an_unknown_commit_neither_repeats_nor_loses_records(keep: int) -> None:
    world = restorable()
    world.put(0, 19)
    restoring = Restoring(world)
    restoring.turn(2)
    world.target.stop_next(keep=keep)
    restoring.turn()
    world.objects.away = {"list"}
    restoring.turn(20, seconds=1)
    assert not restoring.done
    world.objects.away = set()
    restoring.finish()
    assert restoring.failed == {}
    assert world.offsets(C) == numbers((0, 19))


def test_a_position_that_cannot_be_read_is_requested_again() -> None:
    world = restorable()
    world.put(0, 9)
    restoring = Restoring(world)
    restoring.turn(1)
    world.target.away = True
    restoring.turn(10, seconds=1)
    assert not restoring.partitions[0].is_over
    world.target.away = False
    restoring.finish()
    assert world.offsets(C) == numbers((0, 9))


def test_positions_that_conflict_fail_the_partition() -> None:
    world = restorable()
    world.put(0, 9)
    restoring = Restoring(world)
    world.target.fail_next(C, kind=FailureKind.UNKNOWN)
    world.target.conflicts[key()] = CheckpointConflict("both cannot be true")
    restoring.finish()
    assert restoring.failed == {0: "both cannot be true"}


def test_a_rejected_record_fails_its_partition_after_the_records_before_it() -> None:
    world = restorable()
    for p in (0, 1):
        world.put(0, 19, partition=p)
    world.target.poison[C] = {13}
    restoring = Restoring(world)
    restoring.finish()
    assert restoring.done == {1}
    assert restoring.failed == {0: "the record at offset 13 is refused: POISON: planted by the test"}
    assert (world.offsets(C), world.offsets(D)) == (numbers((0, 12)), numbers((0, 19)))


def test_a_restore_resumes_from_its_checkpoints() -> None:
    world = restorable()
    world.put(0, 29)
    world.target.checkpoints[key()] = Checkpoint(12, "id-copy", world.clock.at, Author.EXACTLY_ONCE)
    Restoring(world).finish()
    assert world.offsets(C) == numbers((12, 29))


# --- following --------------------------------------------------------------------------------------------------------


def test_following_delivers_what_is_stored_later_and_never_ends() -> None:
    world = restorable()
    world.put(0, 9)
    restoring = Restoring(world, follow=EVERY)
    restoring.turn(20, seconds=1)
    assert world.offsets(C) == numbers((0, 9))
    for n in range(1, 4):
        world.put(10 * n, 10 * n + 9)
        restoring.turn(40, seconds=1)
        assert world.offsets(C) == numbers((0, 10 * n + 9))
    restoring.turn(5, seconds=10 * PATIENCE.total_seconds())
    assert not restoring.partitions[0].is_over


def test_following_begins_at_the_given_offset_before_anything_is_stored() -> None:
    world = restorable()
    world.put(0, 3)
    world.put(6, 9)  # a gap outside the selection
    restoring = Restoring(world, offsets=IntRange(15), follow=EVERY)
    restoring.turn(40, seconds=1)
    assert world.offsets(C) == []
    world.put(10, 19)
    restoring.turn(40, seconds=1)
    assert world.offsets(C) == numbers((15, 19))


def test_following_waits_for_a_segment_that_is_late() -> None:
    world = gappy()
    restoring = Restoring(world, follow=EVERY)
    restoring.turn(30, seconds=60)
    assert not restoring.partitions[0].is_over
    world.put(10, 19)
    restoring.turn(10, seconds=60)
    assert world.offsets(C) == numbers((0, 29))


def test_following_looks_once_more_within_seconds_for_a_segment_that_is_late() -> None:
    """Overtaken by its successor: it need not wait for the next listing by interval."""
    world = gappy()
    restoring = Restoring(world, follow=timedelta(minutes=30))
    restoring.turn(10)  # a listing has confirmed the gap
    assert world.offsets(C) == numbers((0, 9))
    world.put(10, 19)
    restoring.turn(10, seconds=1)
    assert world.offsets(C) == numbers((0, 29))


def test_following_lists_no_more_often_when_the_archive_is_unavailable() -> None:
    world = restorable()
    world.put(0, 9)
    restoring = Restoring(world, follow=EVERY)
    restoring.turn(40, seconds=1)
    world.objects.away = {"list"}
    before = world.objects.calls["list"]
    restoring.turn(2_000, seconds=0.05)
    assert world.objects.calls["list"] - before <= 15, "in 100 seconds; the pauses grow to ten"
    world.objects.away = set()
    world.put(10, 19)
    restoring.turn(50, seconds=1)
    assert world.offsets(C) == numbers((0, 19))


def test_following_reports_segments_stored_before_its_start() -> None:
    world = restorable()
    world.put(20, 29)
    restoring = Restoring(world, follow=EVERY)
    restoring.turn(20, seconds=1)
    assert world.offsets(C) == numbers((20, 29))
    world.put(10, 19)
    restoring.turn(40, seconds=1)
    assert restoring.partitions[0].missing == [OffsetRange(10, 19)]
    world.put(0, 9)
    world.put(30, 39)
    restoring.turn(40, seconds=1)
    assert restoring.partitions[0].missing == [OffsetRange(10, 19), OffsetRange(0, 9)]
    assert world.offsets(C) == numbers((20, 39))


def test_the_same_restore_reports_segments_stored_since() -> None:
    world = restorable()
    world.put(20, 29)
    Restoring(world).finish()
    world.put(0, 19)
    again = Restoring(world)
    again.finish()
    assert world.offsets(C) == numbers((20, 29))
    assert again.partitions[0].missing == [OffsetRange(0, 19)]


def test_offsets_outside_the_selection_are_not_reported() -> None:
    world = restorable()
    world.put(0, 29)
    restoring = Restoring(world, offsets=IntRange(20), follow=EVERY)
    restoring.turn(20, seconds=1)
    assert world.offsets(C) == numbers((20, 29))
    assert restoring.partitions[0].missing == []


def test_a_follower_without_partitions_keeps_waiting() -> None:
    world = restorable()
    world.put(0, 9)
    restorer = Restoring(world, follow=EVERY).restorer
    restorer._partitions = []
    turns = iter([False] * 3)
    restorer.until = lambda: next(turns, True)
    assert restorer.run() == []
    assert next(turns, None) is None, "it ended by itself"


# --- all of it at any moment ------------------------------------------------------------------------------------------

PARTITIONS, UNTOUCHED = (0, 1), 2
COUNT = 40
RUN = 3  # records
partitions = st.sampled_from(PARTITIONS)


def numbered(ranges: Iterable[OffsetRange]) -> set[int]:
    return {o for r in ranges for o in range(r.start, r.next_offset)}


class RestoreMachine(RuleBasedStateMachine):
    """An archive that is compacted, damaged and reduced while a restore of it fails, crashes and starts again.

    The records stored at the beginning are expected. Only those that retention or an accident removed may be missing.
    """

    @initialize(
        data=st.data(),
        skip=st.booleans(),
        offsets=st.just(ANY_OFFSET) | st.builds(IntRange, st.integers(0, COUNT), st.integers(COUNT // 2, COUNT)),
        timestamps=st.just(ANY_TIME) | st.builds(IntRange, st.integers(STAMP, STAMP + COUNT // 2)),
        width=st.integers(1, 3),
    )
    def begin(self, data: st.DataObject, skip: bool, offsets: IntRange, timestamps: IntRange, width: int) -> None:
        self.world = restorable()
        self.skip, self.offsets, self.timestamps, self.width = skip, offsets, timestamps, width
        self.stored: set[Segment] = set()
        self.garbage: list[Segment] = []  # merged, not deleted yet
        self.damaged: dict[Segment, bytes] = {}
        self.corrupted: set[Segment] = set()  # at any time
        self.removals = 0
        self.gone: dict[int, set[int]] = {p: set() for p in PARTITIONS}
        self.holes: dict[int, set[int]] = {}
        self.ever: dict[int, set[int]] = {p: set() for p in PARTITIONS}
        self.world.put(0, COUNT - 1, partition=UNTOUCHED)
        for p in PARTITIONS:
            self.holes[p] = data.draw(st.sets(st.integers(0, COUNT - 1), max_size=6))
            cuts = data.draw(st.sets(st.integers(1, COUNT - 1), max_size=8))
            edges = sorted({data.draw(st.integers(0, 3)), *cuts, COUNT})
            self.world.record_begin(edges[0], partition=p)
            for start, next_ in pairwise(edges):
                match data.draw(st.sampled_from(["stored", "stored", "stored", "stored", "recorded", "missing"])):
                    case "stored":
                        self.put(p, start, next_ - 1)
                    case "recorded":
                        self.world.record_gap(start, next_ - 1, partition=p)
            for _ in range(data.draw(st.integers(0, 2))):
                self.overlap(p, data.draw(st.integers(0, COUNT - 1)), data.draw(st.integers(1, 15)))
        self.restart()

    def put(self, p: int, start: int, end: int, level: int = 0) -> Segment:
        taken = [s for s in [*self.stored, *self.garbage] if s.source.partition == p]
        segment = next((s for s in taken if (s.offsets, s.level) == (OffsetRange(start, end), level)), None)
        if segment is None:
            segment = self.world.put(start, end, level=level, partition=p, holes=self.holes[p])
        self.stored.add(segment)
        self.ever[p].update(range(start, end + 1))
        return segment

    def overlap(self, p: int, start: int, length: int) -> None:
        """A segment of a late owner, over offsets of other segments."""
        covered, end = self.held(p), start
        while end + 1 in covered and end < start + length:
            end += 1
        if start in covered:
            self.put(p, start, end)

    def restart(self) -> None:
        """Another process resumes from the checkpoints. The earlier owner of the transactional id is fenced."""
        away, self.world.target.away = self.world.target.away, False  # else it does not begin
        self.running = Restoring(
            self.world,
            offsets=self.offsets,
            timestamps=self.timestamps,
            records=RUN,
            width=self.width,
            skip_missing=self.skip,
        )
        self.world.target.away = away

    # --- the archive ---

    @property
    def sound(self) -> list[Segment]:
        return sorted(self.stored - set(self.damaged))

    @precondition(lambda self: self.sound)
    @rule(data=st.data(), count=st.integers(1, 4), at_once=st.booleans())
    def merge(self, data: st.DataObject, count: int, at_once: bool) -> None:
        first = data.draw(st.sampled_from(self.sound))
        inputs, end = [first], first.offsets.end
        for segment in sorted((s for s in self.sound if s.source == first.source), key=lambda s: s.offsets):
            follows = first.offsets.start <= segment.offsets.start <= end + 1 and segment.offsets.end > end
            if len(inputs) < count and follows:
                inputs.append(segment)
                end = segment.offsets.end
        level = max(s.level for s in inputs) + 1
        output = self.put(first.source.partition, first.offsets.start, end, level)
        self.stored.difference_update(set(inputs) - {output})
        self.garbage += [s for s in inputs if s != output and s not in self.garbage]
        if at_once:
            self.collect()

    @rule()
    def collect(self) -> None:
        self.world.remove(*self.garbage)
        self.garbage.clear()

    @precondition(lambda self: self.sound)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(self.sound))
        with self.world.peek.open(segment) as body:
            self.damaged[segment] = body.read()
        self.world.damage(segment)
        self.corrupted.add(segment)

    @rule()
    def mend(self) -> None:
        for segment, data in self.damaged.items():
            self.world.damage(segment, data)
        self.damaged.clear()

    @precondition(lambda self: self.removals < 2 and self.stored)
    @rule(data=st.data(), recorded=st.sampled_from([True, True, False]))
    def remove(self, data: st.DataObject, recorded: bool) -> None:
        """Retention or an accident removes a segment."""
        segment = data.draw(st.sampled_from(sorted(self.stored)))
        p, offsets = segment.source.partition, segment.offsets
        self.removals += 1
        if recorded:
            self.world.record_gap(offsets.start, offsets.end, partition=p)
        self.world.remove(segment)
        self.stored.discard(segment)
        self.damaged.pop(segment, None)
        held = self.held(p)
        self.gone[p] |= {o for o in range(offsets.start, offsets.next_offset) if o not in held}

    def held(self, p: int) -> set[int]:
        segments = [s for s in self.stored if s.source.partition == p]
        return {o for s in segments for o in range(s.offsets.start, s.offsets.next_offset)}

    # --- the restore ---

    @rule(count=st.integers(1, 8), seconds=st.sampled_from([0, 0, 1, 15]))
    def turn(self, count: int, seconds: float) -> None:
        for _ in range(count):
            try:
                self.running.turn(seconds=seconds)
            except Crashed:
                self.restart()

    @rule()
    def go_on(self) -> None:
        self.turn(3, 1)

    @rule(seconds=st.sampled_from([1, 40, PATIENCE.total_seconds() + 1]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def crash(self) -> None:
        self.restart()

    @rule(pool=st.sampled_from(["pool", "reading"]))
    def hold(self, pool: str) -> None:
        """Listings or reads are delayed."""
        getattr(self.running, pool).holding = True

    @rule(pool=st.sampled_from(["pool", "reading"]), all_=st.booleans())
    def answer(self, pool: str, all_: bool) -> None:
        held = getattr(self.running, pool)
        if held.waiting and not all_:
            held.run_next()
            return
        held.holding = False
        held.run_all()

    @rule(p=partitions, kind=st.sampled_from(FailureKind))
    def fail_next(self, p: int, kind: FailureKind) -> None:
        self.world.target.fail_next(TARGETS[p], kind=kind)

    @rule(how=st.sampled_from(["committed", "not committed", "crashed"]))
    def stop_next(self, how: str) -> None:
        if how == "crashed":
            self.world.target.crash_next()
        else:
            self.world.target.stop_next(keep=how == "committed")

    @rule(target_=st.booleans(), store=st.sets(st.sampled_from(["list", "open"])))
    def away(self, target_: bool, store: set[str]) -> None:
        self.world.target.away, self.world.objects.away = target_, store

    # --- what must hold ---

    def wanted(self, p: int) -> list[int]:
        return self.within(sorted(self.ever[p] - self.holes[p]))

    def within(self, offsets: Iterable[int]) -> list[int]:
        span, timestamps = self.offsets, self.timestamps
        return [o for o in offsets if span.low <= o <= span.high and timestamps.low <= STAMP + o <= timestamps.high]

    @invariant()
    def once_and_in_order_and_nothing_is_left_out(self) -> None:
        for p in PARTITIONS if hasattr(self, "running") else ():
            found, wanted = self.world.offsets(TARGETS[p]), self.wanted(p)
            assert found == sorted(set(found)), "once and in order"
            assert set(found) <= set(wanted), "nothing that was not wanted"
            until = max([*found, (self.world.checkpoint(p) or 0) - 1])
            left_out = {o for o in wanted if o <= until} - set(found)
            assert left_out <= self.gone[p], "nothing was left out"
            assert left_out <= self.written_down(p), "every offset left out is recorded for later readers"

    def written_down(self, p: int) -> set[int]:
        """Offsets recorded as missing: by the process that lost them, or by the one that passed over them."""
        source, target = SourcePartition(REGION, "t", p), self.world.target
        recorded = ControlStore(self.world.objects.memory, "data").gap_ranges(source)
        return numbered([*recorded, *(s.offsets for s in target.skipped if s.key.source == source)])

    def teardown(self) -> None:
        """Without further faults every incomplete partition has a reason. After repair the next restore completes
        it."""
        if not hasattr(self, "running"):
            return
        target = self.world.target
        target._failing.clear()
        target._stopping, target._crashing, target.away = None, False, False
        self.world.objects.away = set()
        for pool in ("pool", "reading"):
            self.answer(pool, all_=True)
        self.running.finish()
        self.once_and_in_order_and_nothing_is_left_out()
        for p, partition in self.running.partitions.items():
            if p == UNTOUCHED:
                assert partition.is_done or "no progress" in partition.failed
            elif partition.failed:
                self.check_reason(p, partition)
            else:
                missed = set(self.wanted(p)) - set(self.world.offsets(TARGETS[p]))
                assert missed <= self.gone[p]
                assert not missed & self.planned(partition) - numbered([*partition.recorded, *partition.missing]), (
                    "it says what it passed over"
                )
        self.mend()
        self.skip = True
        self.restart()
        self.running.finish()
        self.once_and_in_order_and_nothing_is_left_out()
        assert not self.running.failed
        assert self.world.offsets(TARGETS[UNTOUCHED]) == self.within(range(COUNT))
        for p in PARTITIONS:
            assert set(self.wanted(p)) - set(self.world.offsets(TARGETS[p])) <= self.gone[p]

    def planned(self, partition: RestoringPartition) -> set[int]:
        begin, offsets = partition.plan.next_offset, partition.plan.offsets
        return set() if begin is None or offsets is None else set(range(begin, offsets.next_offset))

    def check_reason(self, p: int, partition: RestoringPartition) -> None:
        at, reason = partition.next_offset, partition.failed
        if reason.startswith("corrupt segment"):
            assert any(at in s.offsets and str(s) in reason for s in self.corrupted), reason
        elif reason.startswith("no segment holds"):
            assert not self.skip
        else:
            assert "no progress" in reason or "is refused" in reason or "injected by the test" in reason, reason


TestRestoreMachine = RestoreMachine.TestCase
TestRestoreMachine.settings = machine(100)


def test_a_restore_without_its_checkpoints_does_not_start_again() -> None:
    """The checkpoint topic was deleted and created again, and then an outcome is not known."""
    world = restorable()
    world.put(0, 39)
    restoring = Restoring(world)
    restoring.turn(4, seconds=1)
    begun = len(world.offsets(TARGETS[0]))
    assert begun
    world.target.checkpoints.clear()
    world.target.stop_next(keep=0)
    restoring.finish()
    assert len(world.offsets(TARGETS[0])) == begun
    assert "its checkpoint is gone" in restoring.failed[0]
