"""Bucket to bucket: what is missing is copied, nothing else is touched, and trouble is tried again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from typing import Any

import pytest

import egress.bucket_sync
from egress.bucket_sync import BucketSide, BucketSync
from egress.sync_loop import SyncLoop
from formats.errors import QueueUnavailable, StoreUnavailable
from formats.messages.segment_events import QueueMessage
from formats.topic_selection import TopicPattern
from infra.contracts.storage import ObjectInfo
from infra.runtime.failures import ALARM
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from tests.fakes.surroundings import T0, CountedMetrics, FailingStore, HandClock

WAIT = timedelta()


def name(start: int, *, topic: str = "t", level: int = 0, region: str = "a") -> str:
    return f"{region}/{topic}/0/{level}/{start:020d}-{start + 9:020d}"


class Bench:
    def __init__(self, pool: ThreadPoolExecutor, *, topics: Sequence[str] = (), levels: Sequence[int] = ()) -> None:
        self.here, self.there = FailingStore(HandClock()), FailingStore(HandClock())
        self.metrics, self.stop = CountedMetrics(), Stop()
        self.sync = BucketSync(
            "a",
            BucketSide(self.here, "data"),
            BucketSide(self.there, "other/prefix"),
            [TopicPattern(t) for t in topics],
            levels,
            pool,
            2,
            self.metrics,
            self.stop,
        )

    def put(self, *names: str) -> None:
        for each in names:
            self.here.memory.put_new(f"data/{each}", BytesIO(each.encode()), len(each))

    def put_once(self, name: str) -> None:
        if self.here.memory.stat(f"data/{name}") is None:
            self.put(name)

    def opened(self) -> list[str]:
        """What was read at the other end."""
        return sorted(key.removeprefix("other/prefix/") for what, key in self.there.asked if what == "open")

    def copied(self) -> list[str]:
        return [info.key.removeprefix("other/prefix/") for info in self.there.memory.list("")]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_missing_objects_are_copied_and_repeating_changes_nothing(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    control = ("cluster.json", "begins/t/0", "begins/t@id-fork1/0", f"forks/t/0/{70:020d}", "places/t@id-fork1")
    names = [*(name(at) for at in range(0, 70, 10)), name(0, level=1), *(f"a/_control/v1/{key}" for key in control)]
    bench.put(*names)
    bench.there.memory.put_new(f"other/prefix/{names[3]}", BytesIO(b"there"), 5)
    bench.there.memory.put_new(f"other/prefix/{name(500)}", BytesIO(b"theirs"), 6)
    first = bench.sync.once()
    assert (first.copied, first.present, first.failed) == (len(names) - 1, 0, 0)
    assert first.differing == {names[3]: f"{len(names[3])} bytes here, 5 there"}
    assert bench.copied() == sorted([*names, name(500)])
    with bench.there.open(f"other/prefix/{names[0]}") as body:
        assert body.read() == names[0].encode()
    with bench.there.open(f"other/prefix/{names[3]}") as body:
        assert body.read() == b"there", "written once"
    second = bench.sync.once()
    assert (second.copied, second.present) == (0, len(names) - 1)
    assert second.differing == first.differing
    assert bench.metrics.by_label("sync_objects", topic="t") == len(names) - 1 - len(control)


def test_only_this_region_and_what_is_selected(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool, topics=["^t.*"], levels=[0])
    wanted = [name(0), name(0, topic="t2"), "a/_control/v1/x"]
    bench.put(*wanted, name(0, topic="other"), name(0, level=1), name(0, region="b"), "a/t/0/0/rubbish")
    bench.put("a/_control/v1/leases/compaction/1")  # a lease is of one bucket only
    bench.sync.once()
    assert bench.copied() == sorted(wanted)


def test_copy_that_fails_is_made_by_the_next_round(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    bench.put(name(0), name(10))
    bench.there.away = {"put_new"}
    assert bench.sync.once().failed == 2
    bench.there.away = set()
    assert bench.sync.once().copied == 2


def test_object_that_vanishes_meanwhile_is_no_failure(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    bench.put(name(0))
    bench.here.before["open"] = lambda _: bench.here.memory.delete_many([f"data/{name(0)}"])
    result = bench.sync.once()
    assert (result.copied, result.failed) == (0, 0)
    assert bench.copied() == []


def test_listing_that_fails_comes_out(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    bench.put(name(0))
    bench.there.away = {"list"}
    with pytest.raises(StoreUnavailable):
        bench.sync.once()
    assert bench.copied() == []


def test_stop_ends_a_round(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    bench.put(*(name(at) for at in range(0, 500, 10)))
    bench.here.before["open"] = lambda _: bench.stop.set()
    assert bench.sync.once().copied < 50


def test_generations_of_control_objects_are_copied_and_of_heartbeats_the_last(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    kinds = ("catalog", "heartbeat", "watermarks", "groups")
    bench.put(*(f"a/_control/v1/{kind}/{number:020d}" for kind in kinds for number in (1, 2, 3)))
    bench.put("a/_control/v1/heartbeats/owner/1", name(0), name(10))
    others = [
        f"a/_control/v1/{kind}/{number:020d}" for kind in ("catalog", "watermarks", "groups") for number in (1, 2, 3)
    ]
    expected = {*others, f"a/_control/v1/heartbeat/{3:020d}", name(0), name(10)}
    assert bench.sync.once().copied == len(expected)
    assert set(bench.copied()) == expected
    bench.put(f"a/_control/v1/heartbeat/{4:020d}")
    bench.sync.once()
    assert set(bench.copied()) == {*expected, f"a/_control/v1/heartbeat/{4:020d}"}


@dataclass(slots=True)
class Queue:
    messages: list[QueueMessage] = field(default_factory=list)

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        return list(self.messages)

    def delete(self, messages: Iterable[QueueMessage]) -> None:
        done = {m.receipt for m in messages}
        self.messages = [m for m in self.messages if m.receipt not in done]


def created(each: str) -> QueueMessage:
    record = {
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-01-01T00:00:00Z",
        "s3": {"object": {"key": f"data/{each}", "size": len(each)}},
    }
    return QueueMessage(each, each, json.dumps({"Records": [record]}))


def test_notifications_are_followed_and_deleted_once_copied(pool: ThreadPoolExecutor) -> None:
    bench, queue = Bench(pool), Queue()
    bench.put(name(0), name(10), name(20))
    queue.messages = [created(name(0)), created(name(10)), QueueMessage("bad", "bad", "{")]
    assert bench.sync.follow(queue, WAIT).copied == 2
    assert [m.message_id for m in queue.messages] == ["bad"]
    assert bench.copied() == [name(0), name(10)]


def begin(topic: str) -> str:
    return f"a/_control/v1/begins/{topic}/0"


def puts(bench: Bench) -> list[str]:
    """What was put at the other end, in this order."""
    return [key.removeprefix("other/prefix/") for what, key in bench.there.asked if what == "put_new"]


@pytest.mark.parametrize("topic", ["Orders", "2026-orders", "orders"])
def test_where_a_partition_begins_is_copied_before_its_segments(topic: str) -> None:
    """Some topics come before the control objects in key order, and merged segments, which begin earlier, after the
    small ones: who delivers them would begin in the middle."""
    with ThreadPoolExecutor(1) as pool:
        bench = Bench(pool)
        bench.put(name(500, topic=topic), name(0, topic=topic, level=1), begin(topic))
        result = bench.sync.once()
        assert puts(bench) == [begin(topic), name(0, topic=topic, level=1), name(500, topic=topic)]
        assert (result.copied, result.present, result.failed) == (3, 0, 0)
        bench.put(name(510, topic=topic))
        bench.there.asked.clear()
        result = bench.sync.once()
        assert puts(bench) == [name(510, topic=topic)]
        assert (result.copied, result.present, result.failed) == (1, 3, 0)
        bench.put(name(520, topic=topic))
        bench.there.asked.clear()
        bench.sync.once()
        assert begin(topic) not in [key.removeprefix("other/prefix/") for _, key in bench.there.asked], "known by now"


def test_a_partition_without_a_recorded_begin_is_copied(pool: ThreadPoolExecutor) -> None:
    bench, queue = Bench(pool), Queue([created(name(0, topic="Orders"))])
    bench.put(name(0, topic="Orders"), name(10, topic="Orders"))
    result = bench.sync.follow(queue, WAIT)
    assert (result.copied, result.present) == (1, 0)
    result = bench.sync.once()
    assert (result.copied, result.present) == (1, 1)


def test_a_notification_is_of_a_segment_whose_begin_is_copied_first() -> None:
    with ThreadPoolExecutor(1) as pool:
        bench, queue = Bench(pool), Queue([created(name(0)), created(name(10))])
        bench.put(name(0), name(10), begin("t"))
        assert bench.sync.follow(queue, WAIT).copied == 3
        assert puts(bench) == [begin("t"), name(0), name(10)]
        assert queue.messages == []


def test_a_segment_waits_in_the_queue_for_its_begin() -> None:
    with ThreadPoolExecutor(1) as pool:
        bench, queue = Bench(pool), Queue([created(name(0))])
        bench.put(name(0), begin("t"))
        bench.there.away = {"put_new"}
        bench.sync.follow(queue, WAIT)
        assert len(queue.messages) == 1
        bench.there.away, bench.there.asked = set(), []
        bench.sync.follow(queue, WAIT)
        assert puts(bench) == [begin("t"), name(0)]


@pytest.mark.parametrize("topic", ["Orders", "orders"])
def test_segments_whose_begin_could_not_be_copied_wait_for_the_next_round(topic: str) -> None:
    def refuse_the_begin(operation: str, key: str) -> None:
        if operation == "put_new" and key.endswith(begin(topic)):
            raise StoreUnavailable("busy")

    with ThreadPoolExecutor(2) as pool:
        bench = Bench(pool)
        bench.put(name(0, topic=topic), name(10, topic=topic), name(0, topic="other"), begin(topic), begin("other"))
        bench.there.before_each = refuse_the_begin
        result = bench.sync.once()
        assert bench.copied() == [begin("other"), name(0, topic="other")]
        assert (result.copied, result.failed) == (2, 2), "tried again when the first segment was met"
        bench.there.before_each = lambda operation, key: None
        assert bench.sync.once().copied == 3


def test_a_begin_that_is_recorded_while_the_buckets_are_listed_is_copied_before_its_segments() -> None:
    with ThreadPoolExecutor(1) as pool:
        bench = Bench(pool)
        bench.put(name(0), name(0, topic="u"), begin("t"))
        bench.here.before["open"] = lambda _: bench.put_once(begin("u"))
        assert bench.sync.once().failed == 0
        assert puts(bench) == [begin("t"), begin("u"), name(0), name(0, topic="u")]


def test_notification_of_a_copy_that_failed_stays(pool: ThreadPoolExecutor) -> None:
    bench, queue = Bench(pool), Queue()
    bench.put(name(0))
    queue.messages = [created(name(0))]
    bench.there.away = {"put_new"}
    assert bench.sync.follow(queue, WAIT).failed == 1
    assert len(queue.messages) == 1
    bench.there.away = set()
    assert bench.sync.follow(queue, WAIT).copied == 1
    assert queue.messages == []


# --- what is there already ---


def damaged(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@pytest.fixture
def bench(pool: ThreadPoolExecutor) -> Bench:
    """Ten objects, copied."""
    bench = Bench(pool)
    bench.put(*(name(at) for at in range(0, 100, 10)))
    bench.sync.once()
    return bench


@pytest.mark.parametrize(
    ("body", "difference"),
    [
        (damaged(name(30).encode()), f"the same size, and other bytes from byte {len(name(30)) - 1} on"),
        (name(30).encode()[:-1], f"{len(name(30))} bytes here, {len(name(30)) - 1} there"),
        (b"x" * len(name(30)), "the same size, and other bytes from byte 0 on"),
    ],
)
def test_an_object_that_is_not_its_copy_is_named_and_left_alone(
    bench: Bench, body: bytes, difference: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench.there.memory.replace(f"other/prefix/{name(30)}", body)
    for _ in range(2):
        result = bench.sync.once()
        assert (result.differing, result.present, result.copied) == ({name(30): difference}, 9, 0)
        assert name(30) in result.difference
        assert "delete the other" in result.difference
    with bench.there.open(f"other/prefix/{name(30)}") as file:
        assert file.read() == body, "overwritten"
    assert [r.message for r in caplog.records].count("copy_differs") == 1, "logged once"
    bench.there.memory.delete_many([f"other/prefix/{name(30)}"])
    assert bench.sync.once().copied == 1
    assert bench.sync.once().difference == ""


def test_a_notification_of_what_is_there_compares_it(bench: Bench) -> None:
    queue = Queue([created(name(30)), created(name(40))])
    bench.there.memory.replace(f"other/prefix/{name(30)}", b"x")
    result = bench.sync.follow(queue, WAIT)
    assert (list(result.differing), result.present, result.copied) == ([name(30)], 1, 0)
    assert queue.messages == []


def test_compared_objects_are_not_read_again_until_they_change(bench: Bench) -> None:
    """ETags of these stores do not depend on the content, like those of encrypted objects."""
    bench.sync.once()
    bench.there.asked.clear()
    assert bench.sync.once().present == 10
    assert bench.opened() == []
    bench.there.memory.replace(f"other/prefix/{name(30)}", damaged(name(30).encode()))
    assert list(bench.sync.once().differing) == [name(30)]
    assert bench.opened() == [name(30)]


def test_a_round_compares_no_more_than_it_may_and_the_next_continues(bench: Bench) -> None:
    bench.sync.most_compared = 3
    bench.there.memory.replace(f"other/prefix/{name(90)}", damaged(name(90).encode()))
    bench.there.asked.clear()
    rounds = [bench.sync.once() for _ in range(6)]
    assert bench.opened() == [name(at) for at in range(0, 100, 10)]
    assert [len(result.differing) for result in rounds] == [0, 0, 0, 1, 1, 1]


def fail_to_read(refused: str, operation: str, key: str) -> None:
    if (operation, key) == ("open", f"other/prefix/{refused}"):
        raise StoreUnavailable(f"{refused} cannot be read")


def test_a_comparison_that_failed_is_reported_until_it_was_made(bench: Bench) -> None:
    """The rounds after it compare what follows, and would report that all is well."""
    bench.sync.most_compared = 3
    bench.there.memory.replace(f"other/prefix/{name(10)}", damaged(name(10).encode()))
    bench.there.before_each = partial(fail_to_read, name(10))
    assert [(result.failed, len(result.differing)) for result in (bench.sync.once() for _ in range(6))] == [(1, 0)] * 6
    bench.there.before_each = partial(fail_to_read, "")
    assert [(result.failed, len(result.differing)) for result in (bench.sync.once() for _ in range(2))] == [(0, 1)] * 2
    bench.there.memory.replace(f"other/prefix/{name(10)}", name(10).encode())
    assert bench.sync.once().differing == {}


def test_a_comparison_that_failed_is_no_failure_once_its_object_is_gone(bench: Bench) -> None:
    bench.sync.most_compared = 3
    bench.there.before_each = partial(fail_to_read, name(10))
    assert [bench.sync.once().failed for _ in range(2)] == [1, 1]
    bench.here.memory.delete_many([f"data/{name(10)}"])
    assert [bench.sync.once().failed for _ in range(2)] == [0, 0]
    assert not bench.sync._unsettled


def test_comparisons_of_a_round_whose_listing_fails_are_made_by_the_next(bench: Bench) -> None:
    """What they found is not in its result, and the next one continues after them."""
    bench.sync.most_compared = 3
    bench.there.memory.replace(f"other/prefix/{name(0)}", damaged(name(0).encode()))
    whole = FailingStore.list

    def cut_short(store: FailingStore, prefix: str, **more: Any) -> Iterator[ObjectInfo]:
        for number, item in enumerate(whole(store, prefix, **more)):
            if number == 2 and store is bench.here:
                raise StoreUnavailable("the rest is not listed")
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FailingStore, "list", cut_short)
        with pytest.raises(StoreUnavailable):
            bench.sync.once()
    assert list(bench.sync.once().differing) == [name(0)]


def test_what_a_notification_found_different_is_reported_by_each_round(bench: Bench) -> None:
    for _ in range(3):
        bench.sync.once()
    bench.sync.most_compared = 1
    bench.there.memory.replace(f"other/prefix/{name(0)}", damaged(name(0).encode()))
    bench.there.memory.replace(f"other/prefix/{name(90)}", damaged(name(90).encode()))
    queue = Queue([created(name(90))])
    assert list(bench.sync.follow(queue, WAIT).differing) == [name(90)]
    assert name(90) in bench.sync.once().differing, "although it may compare one object only, and begins with the first"


def test_comparisons_that_are_forgotten_are_made_again_and_none_is_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress.bucket_sync, "REMEMBERED", 4)
    bench.sync.most_compared = 3
    bench.there.asked.clear()
    for _ in range(12):
        bench.sync.once()
        assert len(bench.sync._compared) <= 4
    assert set(bench.opened()) == {name(at) for at in range(0, 100, 10)}


def test_a_difference_is_not_forgotten_for_others_that_are_equal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress.bucket_sync, "REMEMBERED", 4)
    bench.sync.most_compared = 3
    bench.there.memory.replace(f"other/prefix/{name(0)}", damaged(name(0).encode()))
    for _ in range(12):
        assert list(bench.sync.once().differing) == [name(0)]
        assert len(bench.sync._compared) <= 4


def test_objects_that_either_side_writes_for_itself_are_not_compared(bench: Bench) -> None:
    """Both buckets may have a `gc` of their own, which records the same gap at another time."""
    gap = "a/_control/v1/gaps/t/0/00000000000000000000-00000000000000000009"
    claim, probe = "a/_control/v1/places/t", "a/_control/v1/probe"
    bench.put(gap, claim, probe)
    for key in (gap, claim, probe):
        bench.there.memory.replace(f"other/prefix/{key}", b"theirs")
    assert list(bench.sync.once().differing) == [claim]


def test_health_names_what_differs_until_it_is_repaired(bench: Bench) -> None:
    health = Health()
    loop = SyncLoop(bench.sync, None, WAIT, WAIT, HandClock(), health, bench.stop)
    bench.there.memory.replace(f"other/prefix/{name(30)}", b"x")
    loop.round()
    assert name(30) in health.snapshot().problems["sync"]
    bench.there.away = {"list"}
    loop.round()
    assert health.snapshot().problems, "a round that failed has found nothing out"
    bench.there.away = set()
    bench.there.memory.replace(f"other/prefix/{name(30)}", name(30).encode())
    loop.round()
    assert health.snapshot().problems == {}
    assert health.snapshot().is_ready


@dataclass
class StopsAtWait(Stop):
    """Its waits take no time: they advance the clock. Set by the last of them."""

    clock: HandClock
    waits: int = 1
    waited: list[timedelta] = field(default_factory=list)
    during: Callable[[], None] = lambda: None  # called in each wait, after the clock was advanced

    def __post_init__(self) -> None:
        super().__init__()

    def wait(self, timeout: timedelta) -> bool:
        assert timeout > timedelta()
        self.waited.append(timeout)
        self.clock.advance(timeout.total_seconds())
        self.during()
        if len(self.waited) == self.waits:
            self.set()
        return self.is_set()


def test_health_names_what_fails_for_longer_than_a_minute(bench: Bench) -> None:
    """A service whose every copy is refused is not ready, however long it goes on trying."""
    clock, health = HandClock(), Health()
    loop = SyncLoop(bench.sync, None, WAIT, WAIT, clock, health, bench.stop)
    bench.put(name(100))
    for failing, what in (("list", "to list both buckets"), ("put_new", "1 failed, 0 copied; ")):
        bench.there.away = {failing}
        loop.round()
        assert health.snapshot().problems == {}, "it may be a problem of the network"
        clock.advance(ALARM.total_seconds())
        loop.round()
        assert what in health.snapshot().problems["copies"]
    bench.there.away = set()
    loop.round()
    assert health.snapshot().is_ready


def test_health_names_what_fails_while_the_loop_rests(bench: Bench) -> None:
    """The next round may be an hour away."""
    clock, health = HandClock(), Health()
    alarmed_after: list[timedelta] = []
    stop = StopsAtWait(clock, waits=12)
    stop.during = lambda: alarmed_after.append(clock.now() - T0) if health.snapshot().problems else None
    bench.put(name(100))
    bench.there.away = {"put_new"}
    SyncLoop(bench.sync, None, WAIT, timedelta(hours=1), clock, health, stop).run()
    assert "copies" in health.snapshot().problems
    assert ALARM < alarmed_after[0] <= ALARM + timedelta(seconds=10), "seen at the first wait that ends after it is due"


def refuse(refused: str, operation: str, key: str) -> None:
    if (operation, key) == ("put_new", refused):
        raise StoreUnavailable(f"{key} is refused")


def test_health_names_rounds_that_copied_some_as_what_they_are(bench: Bench) -> None:
    """Each object was copied at some time: no attempt at one of them failed twice."""
    clock, health = HandClock(), Health()
    loop = SyncLoop(bench.sync, None, WAIT, WAIT, clock, health, bench.stop)
    for start in (100, 200):
        bench.put(*(name(start + at) for at in (0, 10, 20)))
        refused = f"other/prefix/{name(start)}"
        bench.there.before_each = partial(refuse, refused)
        loop.round()
        clock.advance(ALARM.total_seconds())
    problem = health.snapshot().problems["copies"]
    assert problem == (
        f"every attempt to complete a round without a failure has failed since {T0.isoformat(timespec='seconds')}, the "
        f"last one with: 1 failed, 3 copied; the last failure: {refused} is refused"
    )


def test_a_round_that_is_interrupted_solves_nothing(bench: Bench) -> None:
    clock, health = HandClock(), Health()
    loop = SyncLoop(bench.sync, None, WAIT, WAIT, clock, health, bench.stop)
    bench.put(name(0, topic="s"))  # the first to be copied: an interrupted round ends there
    bench.there.memory.replace(f"other/prefix/{name(30)}", b"x")
    bench.there.away = {"put_new"}
    loop.round()
    clock.advance(ALARM.total_seconds())
    loop.round()
    before = health.snapshot().problems
    assert set(before) == {"sync", "copies"}
    bench.stop.set()
    loop.round()
    assert health.snapshot().problems == before


@dataclass(slots=True)
class Unreliable(Queue):
    """Each receive takes one of `answers`: true fails, false is empty. The one after the last sets `stop`."""

    answers: list[bool] = field(default_factory=list)
    seen: list[set[str]] = field(default_factory=list)  # subjects of problems, before each receive
    health: Health = field(default_factory=Health)
    stop: Stop = field(default_factory=Stop)

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        self.seen.append(set(self.health.snapshot().problems))
        if not self.answers:
            self.stop.set()
            return ()
        if self.answers.pop(0):
            raise QueueUnavailable("no answer")
        return ()


def test_health_names_a_queue_that_fails_for_longer_than_a_minute(bench: Bench) -> None:
    clock, health = HandClock(), Health()
    stop = StopsAtWait(clock, waits=7)
    SyncLoop(bench.sync, Unreliable(answers=[True] * 7), WAIT, WAIT, clock, health, stop).follow()
    assert "no answer" in health.snapshot().problems["notifications"]


def test_a_queue_that_is_away_is_asked_less_and_less_often(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    stop = StopsAtWait(clock, waits=9)
    queue = Unreliable(answers=[True] * 7 + [False, True, True], stop=stop)
    SyncLoop(bench.sync, queue, WAIT, WAIT, clock, Health(), stop).follow()
    assert [wait.total_seconds() for wait in stop.waited] == [1, 2, 4, 8, 16, 30, 30, 1, 2]
    assert [record.message for record in caplog.records].count("sync_queue_failed") == 9


def test_a_queue_that_answers_again_is_no_problem_and_its_next_failure_begins_anew(bench: Bench) -> None:
    clock, health = HandClock(), Health()
    stop = StopsAtWait(clock, waits=9)
    queue = Unreliable(answers=[True] * 7 + [False, True], health=health, stop=stop)
    SyncLoop(bench.sync, queue, WAIT, WAIT, clock, health, stop).follow()
    failing, answered, failed_again = queue.seen[7:]
    assert (failing, answered, failed_again) == ({"notifications"}, set(), set())


class Rounds(HandClock):
    """Counts how often it is asked, and gives up when nothing ends the loop."""

    asked = 0

    def now(self) -> datetime:
        self.asked += 1
        assert self.asked < 100
        return super().now()


def test_a_loop_waits_between_its_rounds(bench: Bench) -> None:
    rounds = Rounds()
    stop = StopsAtWait(rounds)
    SyncLoop(bench.sync, None, WAIT, timedelta(minutes=1), rounds, Health(), stop).run()
    assert stop.is_set()
    assert rounds.asked == 1, "the wait that follows the first round ends the loop"


def test_a_loop_follows_the_queue_until_it_is_stopped(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)

    class Last(Queue):
        def delete(self, messages: Iterable[QueueMessage]) -> None:
            super().delete(messages)
            bench.stop.set()

    queue = Last([created(name(0))])
    bench.put(name(0))
    loop = SyncLoop(bench.sync, queue, WAIT, WAIT, HandClock(), Health(), bench.stop)
    following = threading.Thread(target=loop.follow, daemon=True)
    following.start()
    following.join(10)
    bench.stop.set()
    assert (bench.copied(), queue.messages) == ([name(0)], [])
