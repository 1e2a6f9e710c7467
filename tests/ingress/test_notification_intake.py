"""From the queue to the log: published before deleted, malformed left, foreign counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from formats.control.keys import seen_probe_key, sent_probe_key
from formats.errors import BrokerUnavailable, QueueUnavailable, StoreUnavailable
from formats.messages.segment_events import Created, QueueMessage, Removed
from formats.segment import SourcePartition
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from infra.settings.current import Current
from ingress.notification_intake import PROBE_AGE, REMEMBERED, Intake
from replicator.config import IngressSettings
from tests.fakes.kafka_target import FakeLog
from tests.fakes.surroundings import CountedMetrics, HandClock
from tests.ingress.world import source_settings

START, END = "00000000000000000000", "00000000000000000009"
KEY = f"data/a/t/0/0/{START}-{END}"
STORED = datetime(2026, 1, 1, tzinfo=UTC)  # the time of the events of `s3`
WAIT = timedelta(seconds=1)


@dataclass(slots=True)
class FakeQueue:
    """Messages stay until they are deleted."""

    messages: list[QueueMessage] = field(default_factory=list)
    away: bool = False
    hangs: Callable[[], None] = lambda: None  # called before it says that it is away
    keeps: bool = False  # deleting raises
    on_receive: Callable[[], None] = lambda: None

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        if self.away:
            self.hangs()
            raise QueueUnavailable("receive: planned")
        self.on_receive()
        return self.messages[:10]

    def delete(self, messages: Iterable[QueueMessage]) -> None:
        if self.keeps:
            raise QueueUnavailable("delete: planned")
        done = {m.receipt for m in messages}
        self.messages = [m for m in self.messages if m.receipt not in done]

    def send(self, body: object, name: str = "m", sent_at: datetime | None = None) -> None:
        number = len(self.messages)
        text = body if isinstance(body, str) else json.dumps(body)
        self.messages.append(QueueMessage(f"{name}{number}", f"r-{name}{number}", text, sent_at))


class Bench:
    def __init__(self) -> None:
        self.queue, self.log, self.metrics, self.stop = FakeQueue(), FakeLog(), CountedMetrics(), Stop()
        self.health, self.clock = Health(), HandClock(STORED)
        self.reader = self.log.open()
        self.reader.start()
        self.intake = Intake(
            self.queue,
            self.log.open(),
            "data",
            Current(IngressSettings(sources=(source_settings(),))),
            self._wanted,
            WAIT,
            self.metrics,
            self.health,
            self.stop,
            self.clock,
        )

    @staticmethod
    def _wanted(source: SourcePartition) -> bool:
        return source.topic == "t"

    def events(self) -> list[object]:
        return list(self.reader.poll(timedelta()))


def s3(*records: tuple[str, str]) -> dict[str, object]:
    """(event name, key) of each record."""
    return {
        "Records": [
            {
                "eventSource": "aws:s3",
                "eventName": name,
                "eventTime": "2026-01-01T00:00:00.000Z",
                "s3": {"bucket": {"name": "b"}, "object": {"key": key, "size": 7}},
            }
            for name, key in records
        ]
    }


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_created_and_removed_are_published_and_the_message_is_deleted(bench: Bench) -> None:
    bench.queue.send(s3(("ObjectCreated:Put", KEY), ("ObjectRemoved:Delete", KEY)))
    assert bench.intake.receive_once() == 1
    created, removed = bench.events()
    assert isinstance(created, Created)
    assert isinstance(removed, Removed)
    assert created.info.size_bytes == 7
    assert bench.queue.messages == []
    assert bench.metrics.by_label("segment_events", type="created") == 1
    assert bench.metrics.by_label("segment_events", type="removed") == 1


def test_the_stages_into_the_queue_and_out_of_it_are_measured(bench: Bench) -> None:
    merged = KEY.replace("/0/0/", "/0/1/")
    events = s3(("ObjectCreated:Put", KEY), ("ObjectRemoved:Delete", KEY), ("ObjectCreated:Put", merged))
    bench.queue.send(events, sent_at=STORED + timedelta(seconds=2))
    bench.clock.advance(5)
    bench.intake.receive_once()
    assert bench.metrics.stages("a") == {"notify": [2], "queue": [3]}


def test_what_the_queue_does_not_say_is_not_measured(bench: Bench) -> None:
    bench.queue.send(s3(("ObjectCreated:Put", KEY)))
    bench.intake.receive_once()
    assert bench.metrics.stages("a") == {}


def test_nothing_is_deleted_that_was_not_published(bench: Bench) -> None:
    bench.queue.send(s3(("ObjectCreated:Put", KEY)))
    bench.log.away = True
    with pytest.raises(BrokerUnavailable):
        bench.intake.receive_once()
    assert len(bench.queue.messages) == 1
    bench.log.away = False
    assert bench.intake.receive_once() == 1
    assert len(bench.events()) == 1
    assert bench.queue.messages == []


def test_nothing_more_is_received_before_the_log_accepts_what_was(bench: Bench) -> None:
    """A queue moves a message to its dead letters after so many receives: an outage of the target is no reason."""
    bench.queue.send(s3(("ObjectCreated:Put", KEY)))
    receives: list[None] = []
    bench.queue.on_receive = lambda: receives.append(None)
    bench.log.away = True
    for _ in range(20):
        with pytest.raises(BrokerUnavailable):
            bench.intake.receive_once()
    bench.log.away = False
    assert bench.intake.receive_once() == 1
    assert (len(receives), len(bench.events()), bench.queue.messages) == (1, 1, [])


def test_what_was_published_and_not_deleted_is_published_again(bench: Bench) -> None:
    bench.queue.send(s3(("ObjectCreated:Put", KEY)))
    bench.queue.keeps = True
    with pytest.raises(QueueUnavailable):
        bench.intake.receive_once()
    bench.queue.keeps = False
    bench.intake.receive_once()
    assert len(bench.events()) == 2
    assert bench.queue.messages == []


def test_malformed_messages_stay_and_are_counted_once(bench: Bench) -> None:
    bench.queue.send("{", "bad")
    bench.queue.send({"hello": 1}, "odd")
    bench.queue.send(s3(("ObjectCreated:Put", KEY)), "good")
    for _ in range(3):
        bench.intake.receive_once()
    assert [m.message_id for m in bench.queue.messages] == ["bad0", "odd1"]
    assert bench.metrics.counts["malformed_notifications"] == 2
    assert len(bench.events()) == 1


def test_message_that_is_partly_malformed_stays_but_its_good_part_is_published(bench: Bench) -> None:
    bench.queue.send(s3(("ObjectCreated:Put", "data/a/t/0/0/rubbish"), ("ObjectCreated:Put", KEY)))
    bench.intake.receive_once()
    assert len(bench.events()) == 1
    assert len(bench.queue.messages) == 1
    assert bench.metrics.counts["malformed_notifications"] == 1


def test_foreign_ones_are_counted_and_deleted(bench: Bench) -> None:
    bench.queue.send(s3(("ObjectCreated:Put", "elsewhere/x"), ("ObjectCreated:Put", KEY.replace("/a/", "/b/"))))
    bench.queue.send(s3(("ObjectCreated:Put", KEY.replace("/t/", "/other/"))))
    bench.queue.send(s3(("ObjectCreated:Put", "data/a/_control/v1/heartbeat/1")))
    assert bench.intake.receive_once() == 3
    assert bench.metrics.counts["foreign_notifications"] == 4
    assert bench.events() == []
    assert bench.queue.messages == []


def test_test_event_is_deleted(bench: Bench) -> None:
    bench.queue.send({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})
    bench.intake.receive_once()
    assert bench.queue.messages == []
    assert bench.metrics.counts["malformed_notifications"] == 0


def test_only_so_many_malformed_ones_are_remembered(bench: Bench) -> None:
    for _ in range(REMEMBERED // 10 + 2):
        bench.queue.messages = []
        for _ in range(10):
            bench.queue.send("{", f"bad-{bench.metrics.counts['malformed_notifications']}-")
        bench.intake.receive_once()
    assert len(bench.intake._malformed) == REMEMBERED


def test_trouble_ends_no_loop(bench: Bench) -> None:
    """It waits, tries again, and ends when stopped."""
    bench.queue.away = True
    waits: list[timedelta] = []

    class Impatient(Stop):
        def wait(self, timeout: timedelta) -> bool:
            waits.append(timeout)
            if len(waits) == 3:
                bench.queue.away = False
                bench.queue.send(s3(("ObjectCreated:Put", KEY)))
            if len(waits) == 4:
                self.set()
            return self.is_set()

    bench.intake.stop = Impatient()
    real = bench.queue.receive

    def receive(wait: timedelta) -> Sequence[QueueMessage]:
        found = real(wait)
        if not found:
            bench.queue.away = True
        return found

    bench.intake.queue = type("Q", (), {"receive": staticmethod(receive), "delete": bench.queue.delete})()
    bench.intake.run()
    assert [w.total_seconds() for w in waits] == [1, 2, 4, 1], "doubling, and anew after a success"
    assert len(bench.events()) == 1


class _HealsAfter(Stop):
    """The queue is back after so many pauses, and the loop ends with the next message-less turn."""

    def __init__(self, bench: Bench, pauses: int) -> None:
        super().__init__()
        self._bench, self._left = bench, pauses
        self.recorded: list[bool] = []

    def wait(self, timeout: timedelta) -> bool:
        self.recorded.append("notifications" in self._bench.health.snapshot().problems)
        self._left -= 1
        if not self._left:
            self._bench.queue.away = False
            self._bench.queue.on_receive = self.set
        return False


def test_queue_that_stays_unavailable_is_reported() -> None:
    bench = Bench()
    bench.queue.away = True
    bench.intake.stop = stop = _HealsAfter(bench, pauses=4)
    bench.intake.run()
    assert stop.recorded == [False, False, True, True]
    assert dict(bench.health.snapshot().problems) == {}


def test_queue_that_hangs_is_reported_after_one_request() -> None:
    bench = Bench()
    bench.queue.away = True
    bench.queue.hangs = lambda: bench.clock.advance(60)
    bench.intake.stop = stop = _HealsAfter(bench, pauses=1)
    bench.intake.run()
    assert stop.recorded == [True]


@pytest.mark.parametrize("refuses", ["", "write to events: planned; allow WRITE on the topic"])
def test_a_log_that_accepts_no_events_is_reported_although_the_queue_is_empty(bench: Bench, refuses: str) -> None:
    """A received message is hidden for a while, so an empty answer does not mean that all is well. A refusal is
    reported at once."""
    bench.log.away, bench.log.refuses = not refuses, refuses
    bench.queue.send(s3(("ObjectCreated:Put", KEY)))
    recorded: list[bool] = []
    receives: list[None] = []

    def on_receive() -> None:
        receives.append(None)
        if len(receives) > 100:  # it never waits: the failure is not reported
            bench.intake.stop.set()

    bench.queue.on_receive = on_receive

    class Heals(Stop):
        def wait(self, timeout: timedelta) -> bool:
            bench.queue.messages.clear()  # hidden, or another process has them
            recorded.append("notifications" in bench.health.snapshot().problems)
            if len(recorded) == 4:
                bench.log.away, bench.log.refuses = False, ""
                bench.queue.on_receive = self.set
            return False

    bench.intake.stop = Heals()
    bench.intake.run()
    assert recorded == ([True] * 4 if refuses else [False, False, True, True])
    assert dict(bench.health.snapshot().problems) == {}
    assert len(bench.events()) == 1


def test_what_does_not_answer_is_named(bench: Bench) -> None:
    """The queue, or the topic of events, where the queue answers."""

    class EndsWithAProblem(Stop):
        def wait(self, timeout: timedelta) -> bool:
            if bench.health.snapshot().problems:
                self.set()
            return self.is_set()

    def reason() -> str:
        bench.intake.stop = EndsWithAProblem()
        bench.intake.run()
        return bench.health.snapshot().problems["notifications"]

    bench.queue.away = True
    assert reason().startswith("until the queue answers, only listings find new segments: ")
    bench.queue.away, bench.log.away = False, True
    bench.queue.send(s3(("ObjectCreated:Put", KEY)))
    assert reason().startswith("until the topic of segment events accepts what the queue sends, only listings find ")
    bench.log.away, bench.queue.keeps = False, True
    assert "until the queue answers" in reason()
    assert len(bench.events()) == 1


class TestProbes:
    """Of `replicator doctor`: answered once their notification is here, and otherwise of no consequence."""

    KEY = sent_probe_key("data", "a", "x1")

    def test_it_is_answered_before_the_message_goes(self, bench: Bench) -> None:
        seen: list[tuple[str, int]] = []
        bench.intake.answer = lambda probe: seen.append((probe, len(bench.queue.messages)))
        bench.queue.send(s3(("ObjectCreated:Put", self.KEY), ("ObjectCreated:Put", KEY)))
        assert bench.intake.receive_once() == 1
        assert seen == [("x1", 1)]
        assert bench.queue.messages == []
        assert len(bench.events()) == 1
        assert bench.metrics.by_label("foreign_notifications") == 0

    def test_segments_do_not_wait_for_an_answer_that_fails(self, bench: Bench) -> None:
        def fails(_: str) -> None:
            raise StoreUnavailable("put: planned")

        bench.intake.answer = fails
        bench.queue.send(s3(("ObjectCreated:Put", self.KEY), ("ObjectCreated:Put", KEY)))
        assert bench.intake.receive_once() == 1
        assert len(bench.events()) == 1
        assert bench.queue.messages == []

    def test_a_store_that_does_not_answer_holds_up_one_receive_once(self, bench: Bench) -> None:
        """Each attempt may take as long as a request may: many would let `/healthz` count the thread as stalled."""
        asked: list[str] = []

        def fails(probe_id: str) -> None:
            asked.append(probe_id)
            raise StoreUnavailable("put: planned")

        bench.intake.answer = fails
        keys = [sent_probe_key("data", "a", probe_id) for probe_id in ("x1", "x1", "x2", "x3")]
        bench.queue.send(s3(*(("ObjectCreated:Put", key) for key in keys)))
        assert bench.intake.receive_once() == 1
        assert asked == ["x1"]

    @pytest.mark.parametrize(("late", "answers"), [(timedelta(), 1), (PROBE_AGE, 1), (PROBE_AGE * 1.01, 0)])
    def test_one_of_long_ago_gets_no_answer(self, bench: Bench, late: timedelta, answers: int) -> None:
        seen: list[str] = []
        bench.intake.answer = seen.append
        bench.queue.send(s3(("ObjectCreated:Put", self.KEY)))
        bench.clock.advance(late.total_seconds())
        assert bench.intake.receive_once() == 1
        assert len(seen) == answers

    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("ObjectRemoved:Delete", KEY),
            ("ObjectCreated:Put", sent_probe_key("data", "other", "x1")),
            ("ObjectCreated:Put", seen_probe_key("data", "a", "x1")),
        ],
    )
    def test_what_is_no_probe(self, bench: Bench, name: str, key: str) -> None:
        seen: list[str] = []
        bench.intake.answer = seen.append
        bench.queue.send(s3((name, self.KEY if name.startswith("ObjectRemoved") else key)))
        assert bench.intake.receive_once() == 1
        assert seen == []
