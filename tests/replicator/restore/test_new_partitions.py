"""Partitions and topics that are stored after a following restore was planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from formats.errors import StoreUnavailable
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import TopicPartition, Watermarks
from replicator.restore.conflicts import Conflict, ConflictKind
from replicator.restore.new_partitions import AFTER_REFUSAL, NewPartitions, Settling
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.purge import Purge
from tests.fakes.executors import HandExecutor
from tests.fakes.surroundings import T0, HandClock
from tests.replicator.restore.test_restore_plan import at, info, planned, topic_plan

INTERVAL = timedelta(seconds=30)
REFUSED = Conflict(kind=ConflictKind.FOREIGN_DATA, reason="it holds something")


def topic(*partitions: int, name: str = "copy", refused: bool = False, count: int = 9) -> TopicPlan:
    parts = [planned([info(0, 9)], partition=p) for p in partitions]
    return replace(
        topic_plan(*([REFUSED] if refused else []), partitions=parts), destination=name, partition_count=count
    )


def plan_of(*topics: TopicPlan) -> RestorePlan:
    return RestorePlan(id="x", checkpoint_topic="x", topics=list(topics))


class Follower:
    """NewPartitions with an archive and a next plan chosen by the test."""

    def __init__(self, plan: RestorePlan) -> None:
        self.clock = HandClock()
        self.stored: Sequence[SourcePartition] = [p.source for p in plan.partitions]
        self.next_plan, self.planned = plan, 0
        self.trouble: Callable[[], None] = lambda: None
        self.newcomers = NewPartitions(
            plan=plan,
            stored=self._stored,
            make_plan=self._make_plan,
            pool=HandExecutor(),
            clock=self.clock,
            interval=INTERVAL,
        )

    def comes(self, plan: RestorePlan) -> None:
        self.next_plan, self.stored = plan, [p.source for p in plan.partitions]

    def after(self, intervals: float) -> RestorePlan | None:
        self.newcomers.turn()
        self.clock.advance(INTERVAL.total_seconds() * intervals)
        self.newcomers.turn()
        self.newcomers.turn()
        return self.newcomers.found

    def _stored(self) -> Sequence[SourcePartition]:
        self.trouble()
        return self.stored

    def _make_plan(self) -> RestorePlan:
        self.planned += 1
        return self.next_plan


def test_no_plan_is_made_without_new_partitions() -> None:
    follower = Follower(plan_of(topic(0, 1)))
    assert follower.after(1) is None
    assert follower.after(1) is None
    assert follower.planned == 0


def test_new_partitions_are_listed_on_schedule_and_found() -> None:
    follower = Follower(plan_of(topic(0)))
    follower.comes(plan_of(topic(0, 1)))
    assert follower.after(0.9) is None
    assert follower.after(0.2) == plan_of(topic(0, 1))


def test_a_conflict_is_logged_once_and_planned_less_often(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(plan_of(topic(0)))
    follower.comes(plan_of(topic(0, 1, refused=True)))
    assert follower.after(1) is None
    assert follower.after(AFTER_REFUSAL - 2) is None
    assert follower.planned == 1
    assert follower.after(2) is None
    assert follower.planned == 2
    assert caplog.text.count("newcomers_not_restored") == 1
    follower.comes(plan_of(topic(0, 1)))
    assert follower.after(AFTER_REFUSAL) == plan_of(topic(0, 1))


def test_a_started_topic_continues_beside_a_new_one() -> None:
    follower = Follower(plan_of(topic(0)))
    new = topic(1, name="another")
    follower.comes(plan_of(topic(0, 2, refused=True), new))
    assert follower.after(1) == plan_of(topic(0), new)


def test_only_what_the_first_plan_named_is_emptied(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(plan_of(topic(0)))
    full = replace(topic(1, name="full"), purge=Purge({TopicPartition("full", 0): Watermarks(0, 9)}))
    follower.comes(plan_of(topic(0), full))
    assert follower.after(1) is None
    assert [record.__dict__["reason"] for record in caplog.records] == [
        "full: it holds records, and was not named to be emptied: restore it by itself"
    ]
    new = topic(1, name="another")
    follower.comes(plan_of(topic(0), full, new))
    assert follower.after(AFTER_REFUSAL) == plan_of(topic(0), new)


def test_a_partition_that_the_destination_lacks_is_not_new() -> None:
    follower = Follower(plan_of(topic(0, count=1)))
    follower.comes(plan_of(topic(0, 1, count=1)))
    assert follower.after(1) is None


def test_another_incarnation_of_the_source_does_not_replace_the_followed_one() -> None:
    follower = Follower(plan_of(topic(0)))
    later = [replace(p, source=replace(p.source, incarnation="later")) for p in topic(0).partitions]
    new = topic(1, name="another")
    follower.comes(plan_of(replace(topic(0), partitions=later), new))
    assert follower.after(1) == plan_of(topic(0), new)


def partition(
    start: int, *, recorded: Sequence[OffsetRange] = (), begin: int | None = None, wanted: int = 0
) -> RestorePlan:
    """A partition stored from `start` on, in objects that are three days old."""
    stored = replace(info(start, 19), stored_at=T0 - timedelta(days=3))
    one = replace(planned([stored]), recorded=list(recorded), archive_begin=begin, wanted_from=wanted)
    return plan_of(replace(topic(0), partitions=[one]))


@pytest.mark.parametrize(
    ("plan", "begins"),
    [
        (partition(0), True),
        (partition(10), False),
        (partition(10, recorded=[OffsetRange(0, 9)]), True),
        (partition(10, wanted=10), True),
        (partition(10, begin=10), True),
        (partition(10, begin=5), False),
        (partition(10, begin=5, recorded=[OffsetRange(5, 9)]), True),
        (partition(10, begin=5, recorded=[OffsetRange(6, 9)]), False),
    ],
)
def test_a_segment_that_may_not_be_the_first_is_held_back(plan: RestorePlan, begins: bool) -> None:
    assert Settling().settled(plan, T0) == (plan if begins else plan_of())
    begun = replace(plan.partitions[0], checkpoint=at(5))
    plan = plan_of(replace(topic(0), partitions=[begun]))
    assert Settling().settled(plan, T0) == plan


def test_the_wait_counts_from_the_first_listing(caplog: pytest.LogCaptureFixture) -> None:
    settling, ten = Settling(), partition(10)
    assert settling.settled(ten, T0) == plan_of()
    assert settling.settled(ten, T0 + timedelta(minutes=29)) == plan_of()
    assert settling.settled(partition(5), T0 + timedelta(minutes=30)) == plan_of(), "another one is the first now"
    assert settling.settled(partition(5), T0 + timedelta(minutes=61)) == partition(5)
    assert caplog.text.count("partition_waits") == 2
    assert "--offsets 10-" in caplog.records[0].next  # type: ignore[attr-defined]


def test_a_recorded_start_of_the_archive_is_waited_for_without_limit() -> None:
    settling = Settling()
    for days in range(3):
        assert settling.settled(partition(10, begin=0), T0 + timedelta(days=days)) == plan_of()


def test_an_unavailable_archive_is_listed_again(caplog: pytest.LogCaptureFixture) -> None:
    def away() -> None:
        raise StoreUnavailable("as the test says")

    follower = Follower(plan_of(topic(0)))
    follower.comes(plan_of(topic(0, 1)))
    follower.trouble = away
    assert follower.after(1) is None
    assert "as the test says" in caplog.records[-1].reason  # type: ignore[attr-defined]
    follower.trouble = lambda: None
    assert follower.after(AFTER_REFUSAL) is not None
