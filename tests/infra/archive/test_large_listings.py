"""A million segments: a listing costs what it finds, not what is stored."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from formats.segment import OffsetRange
from infra.archive.forward_listing import MAX_AFTER, SEGMENTS_BEFORE, ahead, all_ahead, covered
from infra.archive.segments import SegmentStore
from tests.fakes.lazy_archive import PAGE, LazyArchive, source

MIB = 1 << 20
MILLION = 1_000_000
LENGTH = 1_000  # offsets of a segment


@contextmanager
def at_most(*, seconds: float, mib: float) -> Iterator[None]:
    """CPU and memory of a block."""
    tracemalloc.start()
    began = time.process_time()
    yield
    took = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < seconds, took
    assert peak < mib * MIB, peak / MIB


@pytest.mark.cpu
@pytest.mark.parametrize("position", [MILLION * LENGTH, MILLION * LENGTH - 500, MILLION * LENGTH // 2 + 7, 0, 1])
@pytest.mark.parametrize("levels", [{0: (MILLION, LENGTH)}, {0: (MILLION, LENGTH), 1: (1000, MILLION), 2: (3, 10**8)}])
def test_a_listing_from_the_position_on(levels: dict[int, tuple[int, int]], position: int) -> None:
    objects = LazyArchive(levels)
    store = SegmentStore(objects, "data")
    with at_most(seconds=1, mib=50):
        first = ahead(store, source(), position)
    assert objects.requests <= 20 * len(levels)
    assert len(first.infos) <= (MAX_AFTER + SEGMENTS_BEFORE) * len(levels)
    objects.requests = objects.keys = 0
    again = ahead(store, source(), position, reach=first.reach)
    assert [info.segment for info in again.infos] == [info.segment for info in first.infos]
    assert objects.requests <= 5 * len(levels) + 1
    reached = {info.segment.level for info in first.infos if position in info.segment.offsets}
    assert reached == {level for level, (count, length) in levels.items() if position < count * length}


def test_a_thousand_partitions_are_listed_again_within_an_interval() -> None:
    """Each partition has a hundred thousand segments, not compacted, and its reader is at the end."""
    partitions, count = 1_000, 100_000
    objects = LazyArchive({0: (count, LENGTH)})
    store = SegmentStore(objects, "data")
    reach = ahead(store, source(), (count - 1) * LENGTH).reach
    objects.requests = objects.keys = 0
    for p in range(partitions):
        ahead(store, source(p), count * LENGTH, reach=reach)
    assert objects.requests <= 4 * partitions  # 8 at a time, 50 ms each: 25 s of the five minutes
    assert objects.keys <= 2 * SEGMENTS_BEFORE * partitions


@pytest.mark.cpu
@pytest.mark.parametrize("list_all", [covered, lambda store, of: all_ahead(store, of, MILLION * LENGTH)])
def test_listing_every_key_holds_none_in_memory(list_all: Callable[..., object]) -> None:
    """One request for each thousand keys, on a pool thread: some seconds, and no memory."""
    objects = LazyArchive({0: (20_000, LENGTH), 1: (20, MILLION)})
    store = SegmentStore(objects, "data")
    with at_most(seconds=60, mib=1):
        list_all(store, source())
    assert objects.requests <= 20 + 10
    assert objects.keys >= 20_000


def test_offsets_covered_by_many_segments() -> None:
    objects = LazyArchive({0: (20_000, LENGTH), 1: (10, MILLION)})
    found = covered(SegmentStore(objects, "data"), source())
    assert found.runs == (OffsetRange(0, 20_000 * LENGTH - 1),)


def test_many_small_segments_before_a_long_range_without_any() -> None:
    """The listing goes far back, to where there are many segments: they are bisected, not read."""
    objects = LazyArchive({0: (MILLION, 1)})
    store = SegmentStore(objects, "data")
    found = ahead(store, source(), 2**40)
    assert found.infos == []
    assert found.reach[0] < 2**40 - MILLION + 2 * SEGMENTS_BEFORE
    assert objects.requests < 100
    assert objects.keys < 60 * PAGE
