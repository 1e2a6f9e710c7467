"""Planning a million segments in ten thousand partitions."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby

import pytest

from compaction.planner import MergePlan, plan_partition
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectInfo
from tests.compaction.archive import PREFIX, T0, job

PARTITIONS, SEGMENTS = 10_000, 100
LIMIT_SECONDS, LIMIT_BYTES = 30, 1 << 30


class Listing:
    """A listing of an object store, generated lazily in key order."""

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        assert not start_after
        assert limit is None
        for partition in sorted(range(PARTITIONS), key=str):
            for n in range(SEGMENTS):
                name = Segment(SourcePartition("eu-1", "orders", partition), 0, OffsetRange(n * 10, n * 10 + 9))
                yield ObjectInfo(format_key(PREFIX, name), 1 << 20, T0 - timedelta(hours=2))


@pytest.mark.long
def test_a_million_segments() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.process_time()
    for _ in Listing().list(PREFIX):
        pass
    made = time.process_time() - began  # the fake's own share
    began = time.process_time()
    store = SegmentStore(Listing(), PREFIX)  # type: ignore[arg-type]
    plans = 0
    for _, infos in groupby(store.walk("eu-1", "orders"), key=lambda info: info.segment.source):
        found = plan_partition(list(infos), job(min_segment_count=10), T0)
        plans += sum(isinstance(plan, MergePlan) for plan in found)
    took = time.process_time() - began - made
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert plans == PARTITIONS
    print(f"{took:.1f} CPU-seconds, peak {after.ru_maxrss >> 10} MiB, {before.ru_maxrss >> 10} before")
    assert took < LIMIT_SECONDS
    assert (after.ru_maxrss << 10) < LIMIT_BYTES
