"""Execution of a plan: turns, gaps, damage, failures and restarts, with an archive that changes meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import BinaryIO

import pytest

from formats.errors import CheckpointConflict
from formats.int_range import ANY_OFFSET, IntRange
from formats.messages.delivery_checkpoint import Author, Checkpoint
from formats.records.transform import load
from formats.segment import OffsetRange
from infra.archive.segments import SegmentStore
from infra.contracts.producer import FailureKind
from replicator.restore.executor import PATIENCE
from replicator.restore.progress import RestoreOutcome, RestoringPartition
from tests.fakes.surroundings import FailingStore, HandClock
from tests.ingress.world import STAMP, World, key, numbers
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

C, D = TARGETS[:2]
USER = "tests.formats.records.user_transforms"
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


def test_what_functions_leave_out_moves_the_position_and_is_counted_by_every_run() -> None:
    world = restorable()
    world.put(0, 9)
    world.put(10, 19)
    transform = load([f"{USER}:only_even"], [f"{USER}:masked"])
    first = Restoring(world, transform=transform)
    first.turn(2)
    assert not first.done
    again = Restoring(world, transform=transform)
    again.finish()
    assert again.done == {0}
    assert world.offsets(C) == list(range(0, 20, 2))
    assert {record.value for record in world.target.records(C)} == {b"***"}
    checkpoint = world.target.checkpoints[key()]
    assert (checkpoint.next_offset, checkpoint.dropped, again.partitions[0].dropped) == (20, 10, 10)


def test_a_function_that_fails_ends_its_partition_at_the_record() -> None:
    world = restorable()
    world.put(0, 9)
    world.put(0, 5, partition=1)
    restoring = Restoring(world, transform=load([f"{USER}:fails_for_7"], []), records=100)
    restoring.finish()
    assert restoring.done == {1}
    assert f"{USER}:fails_for_7, for a/t/0 offsets 7 to 7: ValueError: unlucky" in restoring.failed[0]
    assert world.offsets(C) == [0, 2, 4, 6]
    assert world.checkpoint() == 7


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
    shares: list[float] = []

    def tell(partitions: Sequence[RestoringPartition]) -> None:
        restoring.delivery.run_round()
        shares.append(partitions[0].share)
        if len(shares) == 4:
            restoring.stop.set()

    restoring.restorer.on_progress = tell
    [partition] = restoring.restorer.run()
    assert not partition.is_over
    assert shares == sorted(shares)
    assert 0 < shares[-1] < 1
    restoring = Restoring(world)
    restoring.finish()
    assert world.offsets(C) == numbers((0, 99))


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


class OpenedStore(FailingStore):
    """Records which objects were opened."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.opened: set[str] = set()

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.opened.add(key)
        return super().open(key, tail_bytes=tail_bytes)


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


def test_following_lists_once_more_within_seconds_for_a_segment_that_is_late() -> None:
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
