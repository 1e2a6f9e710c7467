"""Seeds, skips and releases: what is refused, what is written, and what a crash between two writes leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable, CheckpointConflict, OtherGroup, TargetError
from formats.messages.delivery_checkpoint import Author, Checkpoint, Filled, Parked, Skipped, still_parked
from formats.messages.group_claim import GroupClaim
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import TopicPartition
from ingress.repair import CheckpointRepair
from tests.fakes.cluster_facts import FakeGroups
from tests.fakes.kafka_target import Crashed, FakeEditor, FakeTarget
from tests.fakes.surroundings import T0
from tests.ingress.world import World, key

GROUP = "g"
NOW = T0 + timedelta(hours=1)
ONE = OffsetRange(4, 4)


class Desk:
    def __init__(self, *, members: int = 0) -> None:
        self.world = World()
        self.world.broker.create("copy", partitions=2)
        for partition in range(2):
            self.world.put(0, 999, partition=partition)
        self.groups = FakeGroups(members={GROUP: members})
        self.claims: list[tuple[set[TopicPartition], int, int]] = []  # what, edits before, edits at its end
        self.came_first = False  # a worker that joined while seeds were planned

    @property
    def target(self) -> FakeTarget:
        return self.world.target

    def operator(self, editor: FakeEditor | None = None) -> CheckpointRepair:
        return CheckpointRepair(
            topic="checkpoints",
            checkpoints=self.target.checkpoint_store(),
            open_editor=lambda: editor or self.target.editor(),
            admin=self.world.admin,
            groups=self.groups,
            group_id=GROUP,
            claim=self.claim,
            store=self.world.store,
            control=self.world.control,
        )

    @contextmanager
    def claim(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        if self.came_first:
            raise TargetError("planned: somebody came first")
        before = len(self.target.edits)
        yield
        self.claims.append((set(partitions), before, len(self.target.edits)))

    def park(self, next_offset: int | None = 4, *, checkpoint: int | None = 4) -> None:
        self.target.parked[key()] = Parked(next_offset, "too large", T0)
        if checkpoint is not None:
            self.world.set_checkpoint(checkpoint)

    @property
    def is_parked(self) -> bool:
        parked = self.target.parked.get(key())
        return parked is not None and still_parked(parked, self.target.checkpoints.get(key()))


class DiesAfter(FakeEditor):
    """The process ends once so many records are acknowledged."""

    left = 0

    def _edit(self, what: str) -> None:
        if not self.left:
            raise Crashed
        self.left -= 1
        super()._edit(what)


def sources(*next_offsets: int) -> dict[SourcePartition, int]:
    return {SourcePartition("a", "t", p): n for p, n in enumerate(next_offsets)}


def position(before: Checkpoint | CheckpointConflict | None) -> int | None:
    assert not isinstance(before, CheckpointConflict)
    return None if before is None else before.next_offset


class TestSeed:
    def test_planning_writes_nothing(self) -> None:
        desk = Desk()
        desk.world.set_checkpoint(9)
        seeds = desk.operator().plan_seeds(sources(5, 6), "copy", NOW, force=False)
        assert desk.target.edits == []
        assert [(s.key, position(s.before), s.after) for s in seeds] == [
            (key(0), 9, Checkpoint(5, "id-copy", NOW, Author.SEED)),
            (key(1), None, Checkpoint(6, "id-copy", NOW, Author.SEED)),
        ]
        desk.operator().seed(seeds)
        assert desk.target.checkpoints == {s.key: s.after for s in seeds}

    def test_no_process_delivers_while_a_seed_is_written(self) -> None:
        desk = Desk()
        desk.operator().seed(desk.operator().plan_seeds(sources(5, 6), "copy", NOW, force=False))
        assert desk.claims == [({TopicPartition("copy", 0), TopicPartition("copy", 1)}, 0, 2)]

    def test_nothing_is_written_when_ingress_came_meanwhile(self) -> None:
        desk = Desk()
        seeds = desk.operator().plan_seeds(sources(5, 6), "copy", NOW, force=False)
        desk.came_first = True
        with pytest.raises(TargetError, match="came first"):
            desk.operator().seed(seeds)
        assert desk.target.edits == []

    def test_partitions_that_an_owner_may_have_are_not_claimed(self) -> None:
        parked, forced = Desk(members=1), Desk(members=1)
        parked.park()
        parked.operator().seed(parked.operator().plan_seeds(sources(5), "copy", NOW, force=False))
        forced.operator().seed(forced.operator().plan_seeds(sources(5), "copy", NOW, force=True))
        assert (parked.claims, forced.claims) == ([], [])
        assert parked.world.checkpoint() == forced.world.checkpoint() == 5

    def test_refused_while_ingress_runs(self) -> None:
        desk = Desk(members=2)
        with pytest.raises(TargetError, match="2 member"):
            desk.operator().plan_seeds(sources(5), "copy", NOW, force=False)
        assert desk.operator().plan_seeds(sources(5), "copy", NOW, force=True)

    def test_allowed_where_parked(self) -> None:
        desk = Desk(members=2)
        desk.park()
        (seed,) = desk.operator().plan_seeds(sources(5), "copy", NOW, force=False)
        assert seed.parked
        with pytest.raises(TargetError, match="a/t/1 is not parked"):
            desk.operator().plan_seeds(sources(5, 5), "copy", NOW, force=False)
        desk.world.set_checkpoint(9)  # beyond the parked record
        with pytest.raises(TargetError, match="a/t/0 is not parked"):
            desk.operator().plan_seeds(sources(5), "copy", NOW, force=False)

    def test_a_conflict_ends(self) -> None:
        desk = Desk()
        desk.target.conflicts[key()] = CheckpointConflict("both cannot be true")
        (seed,) = desk.operator().plan_seeds(sources(5), "copy", NOW, force=False)
        assert isinstance(seed.before, CheckpointConflict)
        desk.operator().seed([seed])
        assert desk.world.checkpoint() == 5

    def test_the_destination_must_be_there(self) -> None:
        desk = Desk()
        with pytest.raises(TargetError, match="no topic elsewhere"):
            desk.operator().plan_seeds(sources(5), "elsewhere", NOW, force=False)
        with pytest.raises(TargetError, match="none for a/t/2"):
            desk.operator().plan_seeds(sources(1, 2, 3), "copy", NOW, force=False)

    def test_not_beyond_the_end_of_the_archive(self) -> None:
        """Offsets archived below it later would be dropped silently."""
        desk = Desk(members=1)
        for force in (False, True):
            with pytest.raises(TargetError, match="a/t/1: offset 1001 lies beyond the end of its archive, 1000"):
                desk.operator().plan_seeds(sources(1000, 1001), "copy", NOW, force=force)
        assert [s.archive_end for s in desk.operator().plan_seeds(sources(1000), "copy", NOW, force=True)] == [1000]

    def test_a_recorded_gap_is_part_of_the_archive(self) -> None:
        desk = Desk()
        desk.world.record_gap(1000, 1009)
        (seed,) = desk.operator().plan_seeds(sources(1010), "copy", NOW, force=False)
        assert seed.archive_end == 1010
        with pytest.raises(TargetError, match="beyond the end of its archive, 1010"):
            desk.operator().plan_seeds(sources(1011), "copy", NOW, force=False)

    def test_not_where_nothing_is_archived(self) -> None:
        desk = Desk()
        elsewhere = SourcePartition("a", "typo", 0)
        with pytest.raises(TargetError, match="a/typo/0: nothing of it is archived yet"):
            desk.operator().plan_seeds({elsewhere: 1}, "copy", NOW, force=False)
        assert desk.operator().plan_seeds({elsewhere: 0}, "copy", NOW, force=False)

    def test_the_position_of_another_program_may_lead(self) -> None:
        desk = Desk()
        (seed,) = desk.operator().plan_seeds(sources(1001), "copy", NOW, force=False, may_lead=True)
        assert (seed.after.next_offset, seed.archive_end) == (1001, 1000)

    @pytest.mark.parametrize(
        ("before", "after", "passed_over"),
        [(None, 900, 0), (900, 900, 0), (900, 4, 0), (900, 950, 50), (990, 1020, 15)],
    )
    def test_what_it_passes_over_is_counted(self, before: int | None, after: int, passed_over: int) -> None:
        """What is archived of it: 1000 to 1014 are in no segment."""
        desk = Desk()
        desk.world.put(1015, 1020)
        if before is not None:
            desk.world.set_checkpoint(before)
        (seed,) = desk.operator().plan_seeds(sources(after), "copy", NOW, force=False)
        assert seed.passed_over == passed_over


class TestSkip:
    def test_the_record_is_given_up_and_recorded(self) -> None:
        desk = Desk(members=3)
        desk.park()
        operator = desk.operator()
        operator.skip(operator.plan_skip(key(), ONE, "poison", NOW))
        assert desk.target.skipped == [Skipped(key=key(), offsets=ONE, reason="poison", at=NOW)]
        assert desk.target.checkpoints[key()] == Checkpoint(5, "id-copy", NOW, Author.SEED, given_at=4)
        assert desk.target.parked == {}
        assert desk.target.edits == ["skip", "seed", "release"]

    def test_not_beyond_the_end_of_what_is_archived(self) -> None:
        """A typing error would drop, silently, whatever is archived up to there later."""
        desk = Desk()
        desk.target.parked[key()] = Parked(1_000, "rejected", NOW)
        with pytest.raises(TargetError, match=r"beyond the end of its archive, 1000: .* Skip up to 999"):
            desk.operator().plan_skip(key(), OffsetRange(1_000, 10_055), "rejected", NOW)
        desk.world.put(1_000, 1_005)
        skip = desk.operator().plan_skip(key(), OffsetRange(1_000, 1_005), "rejected", NOW)
        assert skip.after is not None
        assert skip.after.next_offset == 1_006
        with pytest.raises(TargetError, match="Skip up to 1005"):
            desk.operator().plan_skip(key(), OffsetRange(1_000, 1_006), "rejected", NOW)

    def test_a_range(self) -> None:
        desk = Desk()
        desk.park(checkpoint=None)
        plan = desk.operator().plan_skip(key(), OffsetRange(4, 9), "corrupt", NOW)
        assert plan.after is not None
        assert (plan.before, plan.after.next_offset, plan.after.begun_at) == (None, 10, 4)

    @pytest.mark.parametrize(
        ("next_offset", "checkpoint", "wanted"),
        [(5, 4, "parked at 5, not at 4"), (None, 4, "without a position"), (4, 5, "is not parked")],
    )
    def test_only_where_it_is_parked_at_exactly_that_offset(
        self, next_offset: int | None, checkpoint: int, wanted: str
    ) -> None:
        desk = Desk()
        desk.park(next_offset, checkpoint=checkpoint)
        if next_offset is None:
            desk.target.checkpoints[key()] = Checkpoint(4, "earlier", T0)
        with pytest.raises(TargetError, match=wanted):
            desk.operator().plan_skip(key(), ONE, "poison", NOW)
        with pytest.raises(TargetError, match="is not parked"):
            desk.operator().plan_skip(key(1), ONE, "poison", NOW)
        assert desk.target.edits == []

    @pytest.mark.parametrize("written", [0, 1, 2])
    def test_a_crash_in_between_loses_no_decision(self, written: int) -> None:
        """Whatever was written: a position beyond the record only with the loss recorded; no wrong parked record."""
        desk = Desk()
        desk.park()
        dying = DiesAfter(desk.target)
        dying.left = written
        operator = desk.operator(dying)
        with pytest.raises(Crashed):
            operator.skip(operator.plan_skip(key(), ONE, "poison", NOW))
        beyond = desk.world.checkpoint() == 5
        assert bool(desk.target.skipped) == (written > 0)
        assert beyond == (written > 1)
        assert desk.is_parked is not beyond
        if not beyond:  # repeated
            again = desk.operator()
            again.skip(again.plan_skip(key(), ONE, "poison", NOW))
        assert not desk.is_parked
        assert {s.offsets for s in desk.target.skipped} == {ONE}

    def test_an_owner_that_gets_past_the_record_by_itself_is_not_taken_back(self) -> None:
        """Between the read and the write: its delivered records would be delivered again."""
        desk = Desk()
        desk.park()
        operator = desk.operator()
        plan = operator.plan_skip(key(), ONE, "poison", NOW)
        desk.world.set_checkpoint(9)
        holds = operator.skip(plan)
        assert holds is not None
        assert holds.next_offset == 9
        assert desk.world.checkpoint() == 9
        assert not desk.is_parked

    def test_a_void_word_is_not_left_as_the_last_one(self) -> None:
        """Compaction keeps the last of a key, and a void one alone would be believed."""
        desk = Desk()
        desk.park()
        operator = desk.operator()
        plan = operator.plan_skip(key(), ONE, "poison", NOW)
        desk.world.set_checkpoint(9)
        operator.skip(plan)
        assert desk.target.last_put[key()].next_offset == 9

    def test_not_while_two_checkpoints_contradict_each_other(self) -> None:
        desk = Desk()
        desk.park()
        desk.target.conflicts[key()] = CheckpointConflict("both cannot be true")
        with pytest.raises(CheckpointConflict):
            desk.operator().plan_skip(key(), ONE, "poison", NOW)

    def test_what_waits_for_a_lost_segment_is_accepted_as_a_gap(self) -> None:
        desk = Desk()
        desk.world.put(1010, 1019)
        desk.world.set_checkpoint(1000)
        wanted = "is not parked: it waits for offsets .1000,1009., which are in no segment"
        with pytest.raises(TargetError, match=wanted) as caught:
            desk.operator().plan_skip(key(), OffsetRange(1000, 1009), "lost", NOW)
        assert "`replicator gaps accept a/t/0 1000-1009 --reason TEXT --yes`" in str(caught.value)
        desk.world.record_gap(1000, 1009)
        with pytest.raises(TargetError, match="is not parked: there is nothing to skip"):
            desk.operator().plan_skip(key(), OffsetRange(1000, 1009), "lost", NOW)

    def test_away(self) -> None:
        desk = Desk()
        desk.park()
        desk.target.away = True
        with pytest.raises(BrokerUnavailable):
            desk.operator().plan_skip(key(), ONE, "poison", NOW)


class TestLeftBehind:
    """Offsets that arrived where delivery does not come any more."""

    def begun(self, at: int, next_offset: int) -> Desk:
        desk = Desk(members=3)
        desk.target.checkpoints[key()] = Checkpoint(next_offset, "id-copy", T0, Author.EXACTLY_ONCE, begun_at=at)
        return desk

    def test_what_lies_before_the_begin_is_given_up_and_the_position_stays(self) -> None:
        desk = self.begun(100, 250)
        operator, offsets = desk.operator(), OffsetRange(0, 99)
        plan = operator.plan_skip(key(), offsets, "too late", NOW)
        assert operator.skip(plan) == plan.before
        assert desk.target.skipped == [Skipped(key=key(), offsets=offsets, reason="too late", at=NOW)]
        assert desk.target.edits == ["skip"]
        assert desk.world.checkpoint() == 250

    @pytest.mark.parametrize("offsets", [OffsetRange(99, 100), OffsetRange(100, 100), OffsetRange(300, 301)])
    def test_nothing_else_is(self, offsets: OffsetRange) -> None:
        desk = self.begun(100, 250)
        with pytest.raises(TargetError, match="is not parked"):
            desk.operator().plan_skip(key(), offsets, "too late", NOW)

    def test_what_came_after_the_next_incarnation_was_begun(self) -> None:
        desk = self.begun(0, 4)
        later = Checkpoint(2, "id-copy", T0 + timedelta(minutes=1), Author.EXACTLY_ONCE, begun_at=0)
        desk.target.checkpoints[key(incarnation="second")] = later
        operator = desk.operator()
        operator.skip(operator.plan_skip(key(), OffsetRange(4, 5), "too late", NOW))
        assert desk.target.edits == ["skip"]
        for where, offsets in ((key(), OffsetRange(3, 5)), (key(incarnation="second"), OffsetRange(2, 3))):
            with pytest.raises(TargetError, match="is not parked"):
                operator.plan_skip(where, offsets, "too late", NOW)

    @pytest.mark.parametrize(("next_offset", "wanted"), [(50, None), (99, None), (100, 100), (300, 100)])
    def test_a_seed_within_what_was_delivered_keeps_the_begin(self, next_offset: int, wanted: int | None) -> None:
        """One before it is a beginning of its own."""
        desk = self.begun(100, 250)
        desk.target.parked[key()] = Parked(None, "created again", NOW)
        desk.operator().seed(desk.operator().plan_seeds(sources(next_offset), "copy", NOW, force=True))
        assert desk.target.checkpoints[key()].begun_at == wanted

    def test_a_skip_keeps_the_begin(self) -> None:
        desk = self.begun(1, 4)
        desk.target.parked[key()] = Parked(4, "too large", NOW)
        desk.operator().skip(desk.operator().plan_skip(key(), ONE, "poison", NOW))
        assert desk.target.checkpoints[key()].begun_at == 1

    @pytest.mark.parametrize("preserved", [False, True])
    def test_both_keep_at_which_offsets_it_was_delivered(self, *, preserved: bool) -> None:
        desk = self.begun(1, 4)
        desk.target.checkpoints[key()] = replace(desk.target.checkpoints[key()], keeps_offsets=preserved)
        desk.target.parked[key()] = Parked(4, "too large", NOW)
        desk.operator().skip(desk.operator().plan_skip(key(), ONE, "poison", NOW))
        assert Filled.by(desk.target.checkpoints[key()]).is_mapped is not preserved
        desk.operator().seed(desk.operator().plan_seeds(sources(2), "copy", NOW, force=True))
        assert Filled.by(desk.target.checkpoints[key()]).is_mapped is not preserved

    def test_a_seed_after_the_first_checkpoint_follows_no_record(self) -> None:
        desk = self.begun(100, 100)
        desk.operator().seed(desk.operator().plan_seeds(sources(200), "copy", NOW, force=True))
        assert Filled.by(desk.target.checkpoints[key()]) == Filled()


class TestGroups:
    def test_a_file_of_another_group_writes_nothing(self) -> None:
        desk = Desk()
        desk.park()
        desk.target.claims.append(GroupClaim(id="1", number=1, group_id="theirs", at=T0))
        for ask in (
            lambda: desk.operator().plan_skip(key(), ONE, "poison", NOW),
            lambda: desk.operator().plan_release(key()),
            lambda: desk.operator().plan_seeds(sources(4), "copy", NOW, force=True),
        ):
            with pytest.raises(
                OtherGroup, match=f"checkpoints belongs to group theirs, and this file is of group {GROUP}"
            ):
                ask()
        desk.target.claims.append(GroupClaim(id="2", number=2, group_id=GROUP, over="theirs", at=T0))
        assert desk.operator().plan_release(key()) is not None


class TestRelease:
    def test_the_parked_record_is_removed_and_nothing_else(self) -> None:
        desk = Desk()
        desk.park()
        operator = desk.operator()
        assert operator.plan_release(key()) == Parked(4, "too large", T0)
        operator.release(key())
        assert (desk.target.parked, desk.world.checkpoint()) == ({}, 4)
        assert operator.plan_release(key()) is None

    def test_not_where_only_a_seed_helps(self) -> None:
        """The parked record would be gone, without which the seed is refused while ingress runs; the stop stays."""
        desk = Desk(members=1)
        desk.target.parked[key()] = Parked(None, "gone: `replicator checkpoints seed a/t/0 --offset N`", T0)
        with pytest.raises(TargetError, match="parked without a position, and a release gives it none"):
            desk.operator().plan_release(key())
        assert desk.operator().plan_release(key(), delivered=False), "only the parked record is left of it"
        desk.world.clock.advance(1)
        desk.world.set_checkpoint(4)  # since the parked record
        assert desk.operator().plan_release(key()) is not None

    def test_what_the_configuration_refuses_waits_for_no_seed(self) -> None:
        desk = Desk(members=1)
        desk.target.parked[key()] = Parked(None, "set allow_merge = true", T0)
        assert desk.operator().plan_release(key()) is not None
