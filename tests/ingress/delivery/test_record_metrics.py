"""The record metrics: size, age and latency of each record, of what the target has acknowledged."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from infra.contracts.cluster import TopicPartition
from infra.runtime.buckets import BUCKETS
from infra.runtime.metrics import HistogramName
from ingress.delivery.events import DeliveryTarget, Progressed
from ingress.delivery.record_metrics import RecordMetrics, measures_of
from tests.examples import property_examples
from tests.fakes.surroundings import CountedMetrics
from tests.formats.sample_records import Row, batch_of, cuts, raw_bytes, rows, split
from tests.ingress.delivery.hand import C, Hand
from tests.ingress.world import STAMP, World

PROPERTY = property_examples()
READ_AT = datetime(2026, 1, 1, tzinfo=UTC)
READ_MS = int(READ_AT.timestamp() * 1000)
LABELS = {"region": "a", "topic": "t", "partition": "0", "destination": "copy"}

some_timestamps = st.sampled_from([-1, 0, READ_MS, READ_MS + 1]) | st.integers(READ_MS - 90_000_000, READ_MS + 90_000)


def by_bucket(name: HistogramName, values: Sequence[float]) -> dict[float, int]:
    bounds = (*BUCKETS[name], inf)
    return dict(Counter(bounds[bisect_left(bounds, value)] for value in values))


@PROPERTY
@given(records=rows(max_size=6), timestamps=st.lists(some_timestamps, min_size=6), where=cuts, lasts=st.integers(0, 90))
def test_m18_every_record_is_measured_as_one_by_one(
    records: list[Row], timestamps: list[int], where: list[int], lasts: int
) -> None:
    records = [row | {"timestamp": at} for row, at in zip(records, timestamps, strict=False)]
    metrics, found = CountedMetrics(), RecordMetrics()
    for run in split(batch_of(records), where):  # each with an empty batch
        found.add(measures_of([run.slice(0, run.num_rows // 2), run.slice(run.num_rows // 2)], READ_AT))
    found.acknowledged(READ_AT + timedelta(seconds=lasts), metrics, LABELS)

    sizes = [raw_bytes(row) for row in records]
    known = [row["timestamp"] for row in records if row["timestamp"] >= 0]
    ages = [max(READ_MS - at, 0) / 1000 for at in known]
    latencies = [max(READ_MS + lasts * 1000 - at, 0) / 1000 for at in known]
    assert metrics.by_label("record_count", **LABELS) == len(records)
    assert metrics.by_label("record_bytes", **LABELS) == sum(sizes)
    expected: dict[HistogramName, Sequence[float]] = {
        "record_size_bytes": sizes,
        "record_age_seconds": ages,
        "replication_latency_seconds": latencies,
    }
    for name, values in expected.items():
        assert metrics.buckets(name, **LABELS) == by_bucket(name, values)
        assert metrics.sum_of(name, **LABELS) == pytest.approx(sum(values))


def test_the_age_is_of_when_it_is_read_and_the_latency_of_when_it_is_acknowledged() -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 3, stamp=int(world.clock.at.timestamp() * 1000)))
    hand.pool.holding = True
    world.clock.advance(20)
    assert not hand.delivery.run_round()
    hand.pool.run_all()
    world.clock.advance(70)
    hand.pool.holding = False
    assert hand.delivery.run_round()
    assert hand.metrics.buckets("record_age_seconds", **LABELS) == {30: 4}
    assert hand.metrics.sum_of("record_age_seconds", **LABELS) == 80
    assert hand.metrics.buckets("replication_latency_seconds", **LABELS) == {120: 4}
    assert hand.metrics.sum_of("replication_latency_seconds", **LABELS) == 360
    assert hand.metrics.by_label("record_count", **LABELS) == 4
    assert len(hand.metrics.observed["produce_latency_seconds"]) == 1


def test_every_record_of_all_segments_of_a_run_is_measured() -> None:
    world = World()
    hand = Hand(world)
    first, second = world.put(0, 1), world.put(2, 3)
    world.clock.at = datetime.fromtimestamp((STAMP + 1 + 60_000) / 1000, UTC)
    given = DeliveryTarget(first.source, C, "id", 1, clamp_timestamps=False)
    hand.delivery.begin(given, [SegmentSlice.rest(first, 0), SegmentSlice.rest(second, 2)])
    while hand.delivery.run_round():
        pass
    assert hand.reports() == [Progressed(given, 4, True)], "one run, of two segments"
    assert hand.metrics.buckets("replication_latency_seconds", **LABELS) == {120: 1, 60: 3}
    assert hand.metrics.sum_of("replication_latency_seconds", **LABELS) == pytest.approx(239.998)


def test_records_that_are_not_acknowledged_are_measured_when_they_are() -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 3))
    world.target.refusing = "no right"
    hand.delivery.run_round()
    assert hand.metrics.counts["record_count"] == 0
    assert not hand.metrics.counted
    world.target.refusing = ""
    world.clock.advance(600)
    while hand.delivery.run_round():
        pass
    assert hand.metrics.by_label("record_count", **LABELS) == 4
    assert sum(hand.metrics.buckets("record_size_bytes", **LABELS).values()) == 4


def test_records_of_a_later_incarnation_are_counted_separately() -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 1))
    hand.begin(world.put(0, 3, partition=1, incarnation="life"), epoch=2)
    while hand.delivery.run_round():
        pass
    assert hand.metrics.by_label("record_count", **LABELS) == 2
    assert hand.metrics.by_label("record_count", **LABELS | {"topic": "t@life", "partition": "1"}) == 4


def test_the_destination_is_the_topic_at_the_target() -> None:
    world = World()
    hand = Hand(world)
    world.broker.create("elsewhere", partitions=1)
    hand.begin(world.put(0, 1))
    hand.begin(world.put(0, 3, partition=1), epoch=2, target=TopicPartition("elsewhere", 0))
    while hand.delivery.run_round():
        pass
    assert hand.metrics.by_label("record_bytes", **LABELS) == 2
    assert hand.metrics.by_label("record_bytes", **LABELS | {"partition": "1", "destination": "elsewhere"}) == 4
