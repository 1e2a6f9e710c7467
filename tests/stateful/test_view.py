"""The segment view against a store whose events and listings race."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from formats.messages.segment_events import Created, Removed, SegmentEvent
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from ingress.segment_view import SegmentView
from tests.examples import machine

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)


def info(start: int, length: int = 5, level: int = 0) -> SegmentInfo:
    return SegmentInfo(Segment(SOURCE, level, OffsetRange(start, start + length - 1)), 1, T0)


class ViewMachine(RuleBasedStateMachine):
    """Keys are written once and may be removed; the log has both in order, late, twice, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.view = SegmentView(limit=100)
        self.store: dict[Segment, SegmentInfo] = {}
        self.log: list[SegmentEvent] = []
        self.read = 0
        self.listing: tuple[int, list[SegmentInfo]] | None = None
        self.used: set[Segment] = set()
        self.lost: set[Segment] = set()  # their event never reached the log, and no listing was begun since

    @rule(start=st.integers(0, 8), length=st.integers(1, 4), level=st.integers(0, 1), notify=st.booleans())
    def create(self, start: int, length: int, level: int, notify: bool) -> None:
        new = info(start * 5, length * 5, level)
        if new.segment in self.used:
            return
        self.used.add(new.segment)
        self.store[new.segment] = new
        if notify:
            self.log.append(Created(new))
        else:
            self.lost.add(new.segment)

    @precondition(lambda self: self.store)
    @rule(data=st.data(), notify=st.booleans())
    def remove(self, data: st.DataObject, notify: bool) -> None:
        segment = data.draw(st.sampled_from(sorted(self.store)))
        del self.store[segment]
        if notify:
            self.log.append(Removed(segment, T0))
        else:
            self.lost.add(segment)

    @precondition(lambda self: self.read < len(self.log))
    @rule()
    def event_arrives(self) -> None:
        match self.log[self.read]:
            case Created(info=new):
                self.view.created(new)
            case Removed(segment=segment):
                self.view.removed(segment)
        self.read += 1

    @precondition(lambda self: self.listing is None)
    @rule()
    def begin_listing(self) -> None:
        self.listing = (self.view.listing_begun(), [])
        self.unlisted = sorted({s.offsets.start for s in self.store} | set(range(0, 60, 5)))
        self.lost_then = set(self.lost)

    @precondition(lambda self: self.listing is not None and self.unlisted)
    @rule()
    def page(self) -> None:
        """A listing is not one moment: pages are read one after another, while the store changes."""
        assert self.listing
        start = self.unlisted.pop(0)
        self.listing[1].extend(i for s, i in self.store.items() if s.offsets.start == start)

    @precondition(lambda self: self.listing is not None and not self.unlisted)
    @rule(fails=st.booleans())
    def end_listing(self, fails: bool) -> None:
        assert self.listing
        token, infos = self.listing
        self.listing = None
        if fails:
            self.view.listing_failed(token)
            return
        assert self.view.listed(token, infos)
        self.lost -= self.lost_then

    @rule()
    def stale_listing_is_ignored(self) -> None:
        before = set(self.view.segments)
        assert not self.view.listed(-1, [info(0)])
        assert set(self.view.segments) == before

    @rule(to=st.integers(0, 3))
    def apply(self, to: int) -> None:
        self.view.applied(self.view.next_offset + to)

    @invariant()
    def when_all_is_read_the_view_is_the_store(self) -> None:
        if self.read == len(self.log) and self.listing is None:
            wanted = {s for s in self.store if s.offsets.end >= self.view.next_offset}
            known = set(self.view.segments)
            assert wanted - self.lost <= known, "something stored and reported is not known"

    @invariant()
    def nothing_applied_is_kept(self) -> None:
        assert all(s.offsets.end >= self.view.next_offset for s in self.view.segments)

    def teardown(self) -> None:
        while self.read < len(self.log):
            self.event_arrives()
        token = self.view.listing_begun()
        assert self.view.listed(token, list(self.store.values()))
        assert set(self.view.segments) == {s for s in self.store if s.offsets.end >= self.view.next_offset}


TestSegmentView = ViewMachine.TestCase
TestSegmentView.settings = machine(100)


def test_removal_during_a_listing_beats_the_listing() -> None:
    view = SegmentView()
    token = view.listing_begun()
    view.removed(info(0).segment)
    view.listed(token, [info(0), info(5)])
    assert set(view.segments) == {info(5).segment}


def test_creation_during_a_listing_is_kept() -> None:
    view = SegmentView()
    token = view.listing_begun()
    view.created(info(5))
    view.listed(token, [info(0)])
    assert set(view.segments) == {info(0).segment, info(5).segment}


def test_listing_begun_later_beats_an_earlier_creation() -> None:
    view = SegmentView()
    view.created(info(0))
    view.listed(view.listing_begun(), [])
    assert not len(view)


def test_partial_listing_only_adds() -> None:
    view = SegmentView()
    view.created(info(0))
    view.listed(view.listing_begun(), [info(5)], complete=False)
    assert len(view) == 2


def test_cap_keeps_the_nearest_and_says_so() -> None:
    view = SegmentView(limit=10)
    for start in reversed(range(0, 100, 5)):
        view.created(info(start))
    assert view.truncated
    assert info(0).segment in view
    assert len(view) <= 11
    view.listed(view.listing_begun(), [info(0)])
    assert not view.truncated


def test_a_view_within_its_limit_is_not_truncated() -> None:
    """A truncated view is listed again, which costs requests."""
    view = SegmentView(limit=10)
    for start in range(0, 50, 5):
        assert view.created(info(start))
    assert (len(view), view.truncated) == (10, False)


def test_the_entries_furthest_ahead_are_dropped_first() -> None:
    view = SegmentView(limit=10)
    for start in range(55, -5, -5):
        view.created(info(start))
    assert sorted(segment.offsets.start for segment in view.segments) == [*range(0, 50, 5)]
    assert view.truncated
