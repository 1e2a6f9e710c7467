"""The states of an assigned partition: whatever happens in whatever order, what was read is not forgotten before it is
stored or given up, and where to begin is asked neither too early nor never."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from egress.assigned_partition import (
    STOPPED_RETRY,
    Abandoned,
    AssignedPartition,
    Contested,
    Draining,
    Locating,
    Reading,
    Remainder,
    Stopped,
    Storing,
)
from egress.partition import Commit, Reason, Seal, Seek
from egress.read_session import ReadSession
from egress.start.choice import Start
from egress.start.commit_metadata import CommitMetadata
from egress.start.query import StartAt
from egress.topics.claims import ClaimedTopic
from egress.topics.log_identity import ForkEvidence
from formats.incarnation import Incarnation
from formats.segment import OffsetRange, Segment
from infra.contracts.cluster import TopicFacts, TopicPartition
from tests.egress.world import settings, source
from tests.examples import machine

P = TopicPartition("t", 0)
T0 = datetime(2026, 1, 1, tzinfo=UTC)
LONG = timedelta(days=1)  # more than any pause
TOPIC = ClaimedTopic(facts=TopicFacts("t", "id", 1), cluster_id="c", name="id", incarnation=Incarnation("t"))
IN_THE_WAY = (Segment(source(P), 0, OffsetRange(0, 9)),)
EVIDENCE = ForkEvidence(committed=0, agreed=None, leader_epoch=None, text="forked")

pauses = st.timedeltas(timedelta(), timedelta(minutes=2))


class AssignedPartitionMachine(RuleBasedStateMachine):
    """The model knows what was begun last and what was decided about it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.assigned = AssignedPartition(P, source(P))
        self.session: ReadSession | None = None
        self.remainder: type[Remainder] = Storing
        self.sealed: list[OffsetRange] = []
        self.next_offset = 0

    @rule(pause=pauses)
    def wait(self, pause: timedelta) -> None:
        self.now += pause

    @rule()
    def ask(self) -> None:
        """Where to begin: the answer comes at once, or nothing is known and it is asked a little later."""
        if not self.assigned.is_due(self.now):
            return
        start = Start(self.next_offset, CommitMetadata(0, 1), "test")
        self.session = self.assigned.begin(StartAt(TOPIC, source(P), start), settings())
        self.remainder, self.sealed = Storing, []
        for effect in self.session.core.begin():
            assert isinstance(effect, Seek)
            self.assigned.seek(effect)
        assert isinstance(self.assigned.state, Reading)
        assert self.assigned.stopped == ""
        assert not self.assigned.is_fetched

    @rule()
    def ask_in_vain(self) -> None:
        if self.assigned.is_due(self.now):
            self.assigned.ask_again(self.now + timedelta(seconds=1))
            assert not self.assigned.is_due(self.now)

    @rule()
    def seek(self) -> None:
        if not isinstance(self.assigned.state, Reading):
            return
        seek = self.assigned.state.due_seek(self.now)
        if seek is not None:
            self.assigned.seek_done()
            self.assigned.state.session.core.started(seek.epoch)
            assert self.assigned.is_fetched
            assert self.assigned.state.due_seek(self.now + LONG) is None

    @rule(until=pauses)
    def seek_in_vain(self, until: timedelta) -> None:
        if isinstance(self.assigned.state, Reading) and self.assigned.state.due_seek(self.now) is not None:
            self.assigned.postpone(self.now + until)
            assert self.assigned.state.due_seek(self.now + until) is not None
            if until:
                assert self.assigned.state.due_seek(self.now) is None

    @rule()
    def lose_what_was_fetched(self) -> None:
        if (session := self.assigned.reading) is not None:
            [seek] = session.core.disturbed()
            assert isinstance(seek, Seek)
            self.assigned.seek(seek)
            assert not self.assigned.is_fetched

    @rule(count=st.integers(1, 3))
    def read(self, count: int) -> None:
        """So many records, sealed at once."""
        session = self.assigned.reading
        if session is None or not self.assigned.is_fetched:
            return
        core = session.core
        core.consumed(core.next_offset, core.next_offset + count - 1, count, 1, self.now)
        self.sealed += [effect.offsets for effect in core.seal_early() if isinstance(effect, Seal)]

    @rule()
    @precondition(lambda self: self.sealed)
    def store(self) -> None:
        """The oldest segment, which is committed then whatever state the partition is in."""
        assert self.assigned.session is self.session
        assert self.session is not None
        offsets = self.sealed.pop(0)
        assert self.session.core.stored(offsets) == [Commit(offsets.next_offset)]
        self.next_offset = offsets.next_offset

    @rule(reason=st.sampled_from(("refused", "blocked")))
    def stop(self, reason: str) -> None:
        before, remainder = self.assigned.state, self.assigned.remainder
        self.assigned.stop(reason, remainder, self.now)
        assert self.assigned.remainder == remainder, "what becomes of what was read does not change"
        self.expect_pause(before, reason)

    def expect_pause(self, before: object, reason: str) -> None:
        state = self.assigned.state
        assert isinstance(state, Stopped)
        assert state.ask_at is not None
        pause = state.ask_at - self.now
        if isinstance(before, Stopped) and before.reason == reason:
            assert pause == min(STOPPED_RETRY.first * 2**before.times, STOPPED_RETRY.limit)
        else:
            assert pause == STOPPED_RETRY.first

    @rule()
    def find_a_contradiction(self) -> None:
        """Stored segments contradict the records: the partition stops until they are gone."""
        if self.session is not None and isinstance(self.assigned.remainder, Storing):
            before = self.assigned.state
            self.assigned.stop("contested", Contested(self.session, IN_THE_WAY), self.now)
            self.remainder, self.sealed = Contested, []
            self.expect_pause(before, "contested")

    @rule(pause=pauses)
    def end(self, pause: timedelta) -> None:
        was_stopped, remainder = self.assigned.stopped, self.assigned.remainder
        self.assigned.end(self.now + pause)
        assert self.assigned.reading is None
        assert (self.assigned.stopped, self.assigned.remainder) == (was_stopped, remainder)

    @rule(evidence=st.sampled_from((None, EVIDENCE)))
    def find_another_log(self, evidence: ForkEvidence | None) -> None:
        remainder, was_stopped = self.assigned.remainder, self.assigned.stopped
        if self.session is None or not isinstance(remainder, Storing):
            return
        self.assigned.give_up(self.session, evidence, self.now)
        self.remainder, self.sealed = Abandoned, []
        assert self.assigned.stopped == was_stopped
        assert self.assigned.remainder == Abandoned(self.session, evidence)
        assert not self.assigned.is_due(self.now + LONG), "what is being stored just now is waited for"

    @rule(are_under_way=st.booleans())
    def see_uploads(self, are_under_way: bool) -> None:
        before = self.assigned.is_storing
        self.assigned.set_uploads(are_under_way=are_under_way)
        is_waited_for = self.session is not None and self.remainder in (Abandoned, Contested)
        assert self.assigned.is_storing == (are_under_way if is_waited_for else before)

    @rule()
    def create_the_topic_again(self) -> None:
        was_stopped = self.assigned.stopped
        self.assigned.reopen()
        self.session, self.sealed = None, []
        assert self.assigned.stopped == was_stopped
        assert self.assigned.is_due(self.now)

    @invariant()
    def what_was_read_is_kept(self) -> None:
        assert self.assigned.session is self.session
        if self.session is not None:
            assert isinstance(self.assigned.remainder, self.remainder)

    @invariant()
    def it_is_read_or_asked_for(self) -> None:
        """Nothing is asked while it is read or stored; once nothing is, only time passes until it is asked."""
        match self.assigned.state:
            case Reading():
                assert not self.assigned.is_due(self.now + LONG)
            case Locating() | Draining() | Stopped():
                assert self.assigned.is_due(self.now + LONG) != self.assigned.is_storing

    @invariant()
    def what_is_stored_is_waited_for(self) -> None:
        if self.remainder is Storing:
            assert self.assigned.is_storing == bool(self.sealed)


TestAssignedPartition = AssignedPartitionMachine.TestCase
TestAssignedPartition.settings = machine(100)


def test_uploads_of_an_earlier_assignment_are_waited_for_before_the_start_is_looked_up() -> None:
    assigned = AssignedPartition(P, source(P), Locating(is_uploading=True))
    assert not assigned.is_due(T0)
    assert not assigned.is_storing, "a revocation does not wait for them"
    assigned.set_uploads(are_under_way=True)
    assert not assigned.is_due(T0)
    assigned.set_uploads(are_under_way=False)
    assert assigned.is_due(T0)


def test_a_seek_that_was_put_off_gives_way_to_the_next_and_keeps_its_time() -> None:
    assigned = AssignedPartition(P, source(P))
    session = assigned.begin(StartAt(TOPIC, source(P), Start(0, CommitMetadata(0, 1), "")), settings())
    assigned.postpone(T0 + timedelta(seconds=5))
    assigned.seek(Seek(7, 2))
    assert assigned.reading is session
    assert isinstance(assigned.state, Reading)
    assert assigned.state.due_seek(T0) is None
    assert assigned.state.due_seek(T0 + timedelta(seconds=5)) == Seek(7, 2)


def test_what_ends_is_drained_and_what_is_drained_is_not_read() -> None:
    assigned = AssignedPartition(P, source(P))
    session = assigned.begin(StartAt(TOPIC, source(P), Start(0, CommitMetadata(0, 1), "")), settings())
    session.core.begin()
    session.core.started(1)
    session.core.consumed(0, 2, 3, 1, T0)
    session.core.drain(Reason.MOVED)
    assigned.end(T0)
    assert assigned.state == Draining(remainder=Storing(session), ask_at=T0)
    assert not assigned.is_due(T0 + LONG)
    session.core.stored(OffsetRange(0, 2))
    assert assigned.is_due(T0)
    assigned.seek(Seek(7, 2))
    assert assigned.reading is None


def test_the_same_reason_again_is_asked_about_less_and_less_often() -> None:
    assigned = AssignedPartition(P, source(P))

    def delay(reason: str) -> timedelta:
        assigned.stop(reason, None, T0)
        assert isinstance(assigned.state, Stopped)
        assert assigned.state.ask_at is not None
        return assigned.state.ask_at - T0

    delays = [delay("refused") for _ in range(6)]
    assert delays == [STOPPED_RETRY.delay(times) for times in range(6)]
    assert delays[0] < delays[1] < delays[-1] == delays[-2], "up to a limit"
    assert delay("another reason") == delays[0]
