"""The states of an assigned partition at ingress: position, listing and stop, each on its own."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.runtime.health import Health
from infra.runtime.lookups import Question
from ingress.assigned_partition import AssignedPartition, Listed, ListedSegments, NotListed, PendingListing
from ingress.assignment import Assignment
from ingress.delivery.events import DeliveryTarget
from ingress.sequencer import LatePolicy, Sequencer
from tests.examples import machine
from tests.fakes.surroundings import CountedMetrics, HandClock

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)
POLICY = LatePolicy(
    first_segment_delay=timedelta(seconds=60),
    late_retries=3,
    lost_timeout=timedelta(minutes=5),
    skip_lost=False,
)
INFO = SegmentInfo(Segment(SOURCE, 0, OffsetRange(0, 9)), 100, T0)

pauses = st.timedeltas(timedelta(), timedelta(minutes=2))


class NoNotes:
    """Parked records, which no test here reads."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


class AssignedPartitionMachine(RuleBasedStateMachine):
    """The model remembers for each of the three what happened to it last."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.health = Health()
        self.assignment = Assignment(NoNotes(), HandClock(), CountedMetrics(), self.health)  # type: ignore[arg-type]
        self.assigned = AssignedPartition(
            DeliveryTarget(SOURCE, TopicPartition("c", 0), "id", 1, clamp_timestamps=False), POLICY
        )
        self.sequencer: Sequencer | None = None
        self.ask_at: datetime | None = None
        self.forgotten = False
        self.under_way: PendingListing | None = None
        self.relist_at: datetime | None = None
        self.was_listed = False
        self.reason = ""

    @rule(pause=pauses)
    def wait(self, pause: timedelta) -> None:
        self.now += pause

    @rule()
    def read_checkpoint(self) -> None:
        if self.assigned.is_due(self.now):
            self.sequencer, self.forgotten = Sequencer(POLICY, self.assigned.view, 0), False
            self.assigned.deliver(self.sequencer)

    @rule(pause=pauses, is_forgotten=st.booleans())
    def refuse_checkpoint(self, pause: timedelta, is_forgotten: bool) -> None:
        if self.assigned.is_due(self.now):
            self.ask_at, self.forgotten = self.now + pause, is_forgotten
            self.assigned.refuse(self.ask_at, is_forgotten=is_forgotten)

    @rule(pause=pauses)
    def reposition(self, pause: timedelta) -> None:
        self.sequencer, self.ask_at = None, self.now + pause
        self.assigned.reposition(self.ask_at)

    @rule()
    @precondition(lambda self: self.sequencer is not None)
    def begin_listing(self) -> None:
        answer: Question[ListedSegments] = Question(Future())
        self.relist_at = self.now + timedelta(seconds=30)
        self.under_way = PendingListing(answer=answer, token=1, full=False, begun_at=self.now, relist_at=self.relist_at)
        self.assigned.listing_begun(self.under_way)

    @rule(soon=st.booleans())
    @precondition(lambda self: self.sequencer is not None and self.under_way is not None)
    def end_listing(self, soon: bool) -> None:
        """`soon`: it failed."""
        self.under_way = None
        self.relist_at = self.now + timedelta(seconds=1) if soon else self.relist_at
        if not soon:
            view = self.assigned.view
            self.was_listed = view.listed(view.listing_begun(), (), complete=False)
        assert self.relist_at is not None
        self.assigned.listing_ended(self.relist_at)

    @rule()
    def set_back(self) -> None:
        self.assigned.forget_view()
        self.under_way = self.relist_at = None
        self.was_listed = False
        assert len(self.assigned.view) == 0

    @rule()
    def see_event(self) -> None:
        self.assigned.view.created(INFO)

    @rule(reason=st.sampled_from(("refused", "corrupt")), by_failures=st.booleans())
    def stop(self, reason: str, by_failures: bool) -> None:
        self.assignment.stop(self.assigned, reason, by_failures=by_failures)
        self.reason = reason
        assert self.assigned.stop_reason is not None
        assert self.assigned.stop_reason.by_failures == by_failures
        assert self.health.snapshot().stopped == {str(SOURCE): reason}

    @rule()
    def resume(self) -> None:
        self.assignment.resume(self.assigned)
        self.reason = ""
        assert self.health.snapshot().stopped == {}

    @invariant()
    def the_position_is_its_own(self) -> None:
        assert self.assigned.sequencer is self.sequencer
        assert self.assigned.is_forgotten == (self.forgotten and self.sequencer is None)
        is_due = self.sequencer is None and (self.ask_at is None or self.now >= self.ask_at)
        assert self.assigned.is_due(self.now) == is_due

    @invariant()
    def the_listing_is_its_own(self) -> None:
        if self.under_way is not None:
            assert self.assigned.listing is self.under_way
        elif self.relist_at is not None:
            assert self.assigned.listing == Listed(self.relist_at)
        else:
            assert self.assigned.listing == NotListed()
        assert self.assigned.is_listed == (self.relist_at is not None)
        shows_nothing = self.sequencer is not None and self.under_way is None and self.was_listed
        assert self.assigned.is_seen == (len(self.assigned.view) > 0 or shows_nothing)

    @invariant()
    def the_stop_is_its_own(self) -> None:
        assert self.assigned.stopped == self.reason


TestAssignedPartition = AssignedPartitionMachine.TestCase
TestAssignedPartition.settings = machine(100)


def test_without_a_position_everything_that_is_stored_is_behind() -> None:
    assigned = AssignedPartition(
        DeliveryTarget(SOURCE, TopicPartition("c", 0), "id", 1, clamp_timestamps=False), POLICY
    )
    for seconds, start in enumerate((10, 20)):
        segment = Segment(SOURCE, 0, OffsetRange(start, start + 9))
        assigned.view.created(SegmentInfo(segment, 100, T0 + timedelta(seconds=seconds)))
    metrics = CountedMetrics()
    assigned.measure(metrics, T0 + timedelta(seconds=30))
    assert metrics.value("ingress_lag_records", **assigned.labels) == 20
    assert metrics.value("ingress_lag_seconds", **assigned.labels) == 30
