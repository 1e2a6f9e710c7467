"""What every EventLog does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from formats.messages.segment_events import Created, Removed, SegmentEvent
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.contracts.internal_topics import EventLog, LogReset
from infra.runtime.lifecycle import Deadline

AT = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
ROUNDING = timedelta(milliseconds=10)  # Kafka counts milliseconds
PATIENCE = timedelta(seconds=20)


def created(number: int, partition: int = 0) -> Created:
    segment = Segment(SourcePartition("eu-1", "orders", partition), 0, OffsetRange(number * 10, number * 10 + 9))
    return Created(SegmentInfo(segment, 1000 + number, AT))


def removed(event: Created) -> Removed:
    return Removed(event.segment, AT)


def read(log: EventLog, count: int) -> list[SegmentEvent | LogReset]:
    """Polls until `count` items came, or nothing more will."""
    items: list[SegmentEvent | LogReset] = []
    deadline = Deadline(PATIENCE)
    while len(items) < count and not deadline.expired:
        items += log.poll(timedelta(milliseconds=50))
    return items


class EventLogContract:
    """Every EventLog passes these. Subclasses give the fixture `open_log`, which opens further ones of one log."""

    def put(self, value: bytes) -> None:
        """Write a record past the log under test."""
        raise NotImplementedError

    def lose(self) -> None:
        """The log drops everything it holds, so much that no reader can have fetched all of it."""
        raise NotImplementedError

    def test_every_reader_reads_everything_after_its_start(self, open_log: Callable[[], EventLog]) -> None:
        one, two = open_log(), open_log()
        one.start()
        before: list[SegmentEvent] = [created(0), created(1)]
        after: list[SegmentEvent] = [created(2), removed(created(0)), created(3, partition=5)]
        one.publish(before)
        two.start()
        two.publish(after)
        assert read(one, 5) == [*before, *after]
        assert read(two, 3) == after

    def test_events_have_the_time_of_their_publication(self, open_log: Callable[[], EventLog]) -> None:
        log = open_log()
        log.start()
        before = datetime.now(UTC)
        log.publish([created(0)])
        after = datetime.now(UTC)
        [event] = read(log, 1)
        assert isinstance(event, Created)
        assert event.published_at is not None
        assert before - ROUNDING <= event.published_at <= after + ROUNDING

    def test_one_segment_keeps_its_order(self, open_log: Callable[[], EventLog]) -> None:
        log = open_log()
        log.start()
        story: list[SegmentEvent] = [created(0), removed(created(0)), created(0), removed(created(0))]
        for event in story:
            log.publish([event])
        assert read(log, 4) == story

    def test_starting_over_skips_what_was_not_read(self, open_log: Callable[[], EventLog]) -> None:
        log = open_log()
        log.start()
        log.publish([created(0)])
        log.start()
        log.publish([created(1)])
        assert read(log, 1) == [created(1)]

    def test_nothing_new_is_an_empty_answer(self, open_log: Callable[[], EventLog]) -> None:
        log = open_log()
        log.publish([created(0)])
        log.start()
        assert list(log.poll(timedelta(milliseconds=10))) == []
        log.publish([])
        assert list(log.poll(timedelta(milliseconds=10))) == []

    def test_foreign_records_are_skipped(self, open_log: Callable[[], EventLog]) -> None:
        log = open_log()
        log.start()
        log.publish([created(0)])
        for value in (b"not an event", b"", b'{"v": 99}'):
            self.put(value)
        log.publish([created(1)])
        assert read(log, 2) == [created(0), created(1)]

    def test_lost_records_are_reported_and_reading_goes_on(self, open_log: Callable[[], EventLog]) -> None:
        log, other = open_log(), open_log()
        log.start()
        log.publish([created(0)])
        assert read(log, 1) == [created(0)]
        other.start()
        other.publish([created(1)])
        self.lose()
        items = read(other, 1)
        if items == [created(1)]:  # read before it was dropped
            items = read(other, 1)
        assert [type(item) for item in items] == [LogReset]
        other.publish([created(2)])
        assert read(other, 1) == [created(2)]
