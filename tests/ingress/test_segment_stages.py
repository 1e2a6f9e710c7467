"""The duration of each stage of a segment's way that ends in ingress."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.footer import SegmentFooter, SegmentOrigin
from formats.messages.segment_events import Created
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.runtime.stages import observe_stage
from ingress.segment_stages import REMEMBERED, SegmentStages
from tests.fakes.surroundings import T0, CountedMetrics, HandClock
from tests.ingress.process import joined
from tests.ingress.world import REGION, World


def segment(number: int, partition: int = 0, level: int = 0) -> Segment:
    return Segment(SourcePartition(REGION, "t", partition), level, OffsetRange(number * 10, number * 10 + 9))


def footer(of: Segment, sealed_seconds: float = 0) -> SegmentFooter:
    return SegmentFooter(
        segment=of,
        origin=SegmentOrigin(created_at=T0 + timedelta(seconds=sealed_seconds), writer="test"),
        count=0,
        first_offset=None,
        last_offset=None,
        raw_bytes=0,
        largest_record_bytes=0,
        min_timestamp_ms=None,
        max_timestamp_ms=None,
        digest=None,
    )


class Bench:
    def __init__(self) -> None:
        self.metrics, self.clock = CountedMetrics(), HandClock()
        self.stages = SegmentStages(self.metrics, self.clock)

    def announce(self, of: Segment, published: float | None = None) -> None:
        """Seconds ago."""
        at = None if published is None else self.clock.at - timedelta(seconds=published)
        self.stages.announced(Created(SegmentInfo(of, 1, self.clock.at - timedelta(seconds=published or 0)), at))

    @property
    def seen(self) -> dict[str, list[float]]:
        return self.metrics.stages(REGION)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_from_the_bucket_to_the_target(world: World) -> None:
    world.put(0, 9, notify=False)
    process = joined(world)  # delivered
    later = world.put(20, 29, notify=False)  # sealed now
    world.clock.advance(7)
    world.notify(later)  # stored here, and published, now
    world.clock.advance(2)
    process.turn(4)  # it waits for the first one
    world.clock.advance(1)
    world.put(10, 19)
    process.turn(6)
    assert process.metrics.stages(REGION) == {"share": [2, 0], "replicate": [0, 7], "deliver": [0, 1]}


def test_what_a_listing_finds_first_is_not_measured(world: World) -> None:
    found = world.put(0, 9, notify=False)
    process = joined(world)
    world.notify(found)
    process.turn(6)
    assert process.metrics.stages(REGION) == {}


def test_an_event_without_a_time_has_no_share(bench: Bench) -> None:
    bench.announce(segment(0))
    bench.stages.finished(segment(0))
    assert bench.seen == {"deliver": [0]}


def test_a_segment_that_is_read_again_arrived_once(bench: Bench) -> None:
    bench.clock.advance(5)
    bench.announce(segment(0), published=1)
    bench.stages.opened(footer(segment(0)))
    bench.stages.opened(footer(segment(0)))
    bench.stages.finished(segment(0))
    bench.stages.finished(segment(0))
    assert bench.seen == {"share": [1], "replicate": [4], "deliver": [0]}


def test_segments_of_other_partitions_are_others(bench: Bench) -> None:
    bench.announce(segment(0), published=0)
    bench.clock.advance(3)
    bench.stages.finished(segment(0, partition=1))
    bench.stages.finished(segment(0))
    assert bench.seen["deliver"] == [3]


def test_merged_segments_are_not_measured(bench: Bench) -> None:
    bench.announce(segment(0, level=1), published=1)
    bench.stages.opened(footer(segment(0, level=1)))
    bench.stages.finished(segment(0, level=1))
    assert bench.seen == {}


def test_no_more_segments_are_remembered_than_that(bench: Bench) -> None:
    for number in range(REMEMBERED + 1):
        bench.announce(segment(number))
    bench.stages.finished(segment(0))
    assert bench.seen == {}
    bench.stages.finished(segment(1))
    bench.stages.finished(segment(REMEMBERED))
    assert bench.seen == {"deliver": [0, 0]}


@given(st.floats(-1e6, 1e6))
def test_a_stage_never_lasts_less_than_nothing(seconds: float) -> None:
    metrics, took = CountedMetrics(), timedelta(seconds=seconds)
    observe_stage(metrics, segment(0), "notify", T0, T0 + took)
    assert metrics.stages(REGION) == {"notify": [max(took.total_seconds(), 0)]}
