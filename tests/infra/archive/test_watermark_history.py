"""As of which moment a copy is complete, by the generations that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from hypothesis import given
from hypothesis import strategies as st

from formats.control.heartbeat import WriterHeartbeat, encode_heartbeat
from formats.control.keys import heartbeat_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from infra.archive.generations import Generations
from infra.archive.source_reports import SourceReports
from infra.archive.watermark_history import TRIED, WatermarkHistory
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.examples import property_examples

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Ends = Sequence[int | None]  # by partition


class Counting(MemoryObjectStore):
    opened = 0

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.opened += 1
        return super().open(key, tail_bytes=tail_bytes)


class Source:
    """What the egress of region a stored, one generation a minute."""

    def __init__(self) -> None:
        self.objects = Counting()
        self.watermarks = Generations(self.objects, watermarks_prefix("data", "a"))
        self.beats = Generations(self.objects, heartbeat_prefix("data", "a"))
        self.now = BEGIN

    def publish(self, *ends: int | None, topic_id: str = "id") -> int:
        self.now += MINUTE
        topic = TopicWatermarks(topic_id=topic_id, low=(0,) * len(ends), high=ends, stable=ends, position=ends)
        found = SourceWatermarks(cluster_id="c", writer="w", observed_at=self.now, topics={"t": topic})
        number = self.watermarks.newest() + 1
        assert self.watermarks.put(number, encode_watermarks(found))
        return number

    def beat(self, watermarks: int) -> None:
        beat = WriterHeartbeat(
            writer="w", written_at=self.now, interval_ms=5000, watermarks=watermarks, watermarks_at=self.now
        )
        assert self.beats.put(self.beats.newest() + 1, encode_heartbeat(beat))

    def complete_as_of(self, *delivered: int, tried: int = TRIED) -> Mapping[int, timedelta]:
        """By partition, since the begin."""
        report = SourceReports(self.objects, "data").refresh(["a"])["a"]
        history = WatermarkHistory(self.objects, "data", "a", tried)
        found = history.complete_as_of(report, {("t", n): offset for n, offset in enumerate(delivered)})
        return {partition: at - BEGIN for (_, partition), at in found.items()}


def test_the_newest_generation_that_is_delivered() -> None:
    source = Source()
    for end in (100, 250, 300, 400):
        source.publish(end, 5)
    assert source.complete_as_of(260, 5) == {0: 2 * MINUTE, 1: 4 * MINUTE}
    assert source.complete_as_of(99, 4) == {}, "it may hold less than was ever observed"
    assert source.complete_as_of(400, 9) == {0: 4 * MINUTE, 1: 4 * MINUTE}


def test_without_watermarks_nothing_is_known() -> None:
    source = Source()
    source.beat(0)
    assert source.complete_as_of(10) == {}


def test_a_generation_held_until_the_last_heartbeat_that_confirmed_it() -> None:
    source = Source()
    source.beat(source.publish(100))
    for _ in range(20):
        source.now += MINUTE
        source.beat(1)
    newest = source.publish(200)
    for _ in range(5):
        source.now += MINUTE
        source.beat(newest)
    assert source.complete_as_of(150) == {0: 21 * MINUTE}
    assert source.complete_as_of(200) == {0: 27 * MINUTE}, "as long as the newest one is confirmed"


def test_heartbeats_of_other_generations_confirm_nothing() -> None:
    source = Source()
    source.publish(100)
    source.now += 9 * MINUTE
    source.beat(source.publish(200))
    assert source.complete_as_of(150) == {0: MINUTE}
    source.publish(300)
    source.beat(1)
    assert source.complete_as_of(250) == {0: 11 * MINUTE}


def test_what_cannot_be_read_leaves_an_earlier_moment() -> None:
    source = Source()
    for end in (100, 200, 300, 400):
        source.publish(end)
    source.objects.replace(source.watermarks.key(3), b"rubbish")
    assert source.complete_as_of(350) == {0: 2 * MINUTE}


def test_another_incarnation_is_another_log() -> None:
    source = Source()
    source.publish(10, topic_id="earlier")
    source.publish(50)
    source.publish(90)
    assert source.complete_as_of(60) == {0: 2 * MINUTE}
    assert source.complete_as_of(20) == {}


@property_examples()
@given(
    st.lists(st.lists(st.none() | st.integers(0, 5), min_size=2, max_size=2), min_size=1, max_size=40),
    st.sets(st.integers(1, 40), max_size=30),
    st.lists(st.integers(0, 120), min_size=2, max_size=2),
    st.sampled_from([0, 1, 3, TRIED]),
)
def test_never_too_late_and_exact_when_all_may_be_read(
    growth: list[list[int | None]], thinned: set[int], delivered: list[int], tried: int
) -> None:
    source = Source()
    ends = [0, 0]
    observed: list[Ends] = []
    for step in growth:
        ends = [end + (more or 0) for end, more in zip(ends, step, strict=True)]
        observed.append([None if more is None else end for end, more in zip(ends, step, strict=True)])
        source.publish(*observed[-1])
    kept = [n for n in range(1, len(growth) + 1) if n not in thinned or n == len(growth)]
    source.objects.delete_many([source.watermarks.key(n) for n in thinned if n < len(growth)])
    found = source.complete_as_of(*delivered, tried=tried)
    for partition, offset in enumerate(delivered):
        reached = [n for n in kept if (end := observed[n - 1][partition]) is not None and end <= offset]
        if partition in found:
            assert found[partition] in {n * MINUTE for n in reached}
        if tried == TRIED and all(observed[n - 1][partition] is not None for n in kept):
            assert found.get(partition) == (reached[-1] * MINUTE if reached else None)


def test_partitions_that_stand_still_cost_a_few_requests() -> None:
    source = Source()
    for end in range(300):
        source.publish(end, end, end)
    source.objects.opened = 0
    assert source.complete_as_of(120, 121, 299) == {0: 121 * MINUTE, 1: 122 * MINUTE, 2: 300 * MINUTE}
    assert source.objects.opened <= 25
