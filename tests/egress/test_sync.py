"""Bucket to bucket: what is missing is copied, nothing else is touched, and trouble is tried again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO

import pytest

from egress.sync import BucketSync, Place
from replicator.errors import StoreUnavailable
from replicator.events import QueueMessage
from replicator.lifecycle import Stop
from replicator.topics import TopicPattern
from tests.fakes.surroundings import CountedMetrics, FailingStore, HandClock

WAIT = timedelta()


def name(start: int, *, topic: str = "t", level: int = 0, region: str = "a") -> str:
    return f"{region}/{topic}/0/{level}/{start:020d}-{start + 9:020d}"


class Bench:
    def __init__(self, pool: ThreadPoolExecutor, *, topics: Sequence[str] = (), levels: Sequence[int] = ()) -> None:
        self.here, self.there = FailingStore(HandClock()), FailingStore(HandClock())
        self.metrics, self.stop = CountedMetrics(), Stop()
        self.sync = BucketSync(
            "a",
            Place(self.here, "data"),
            Place(self.there, "other/place"),
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

    def copied(self) -> list[str]:
        return [info.key.removeprefix("other/place/") for info in self.there.memory.list("")]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_what_is_missing_is_copied_and_again_does_nothing(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool)
    names = [*(name(at) for at in range(0, 70, 10)), name(0, level=1), "a/_control/v1/cluster.json"]
    bench.put(*names)
    bench.there.memory.put_new(f"other/place/{names[3]}", BytesIO(b"there"), 5)
    bench.there.memory.put_new(f"other/place/{name(500)}", BytesIO(b"theirs"), 6)
    first = bench.sync.once()
    assert (first.copied, first.present, first.failed) == (len(names) - 1, 1, 0)
    assert bench.copied() == sorted([*names, name(500)])
    with bench.there.open(f"other/place/{names[0]}") as body:
        assert body.read() == names[0].encode()
    with bench.there.open(f"other/place/{names[3]}") as body:
        assert body.read() == b"there", "written once"
    second = bench.sync.once()
    assert (second.copied, second.present) == (0, len(names))
    assert bench.metrics.by_label("sync_objects", topic="t") == len(names) - 2


def test_only_this_region_and_what_is_selected(pool: ThreadPoolExecutor) -> None:
    bench = Bench(pool, topics=["^t.*"], levels=[0])
    wanted = [name(0), name(0, topic="t2"), "a/_control/v1/x"]
    bench.put(*wanted, name(0, topic="other"), name(0, level=1), name(0, region="b"), "a/t/0/0/rubbish")
    bench.put("a/_control/v1/leases/compaction/1")  # who works on that bucket says nothing of the other
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
    bench.here.before["open"] = lambda key: bench.here.memory.delete_many([key])
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
