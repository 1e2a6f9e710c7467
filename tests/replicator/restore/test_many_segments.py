"""A hundred thousand segments: the first record costs seconds of processor time, and one listing of each partition.

How long a user waits by the clock, from the start of the command, is a row of `make bench`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from formats.segment import OffsetRange, Segment, SourcePartition, format_key, parse_key, partition_prefix
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectInfo
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.ingress.world import REGION, World
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

SEGMENTS = 25_000  # of each partition
LIMIT_SECONDS = 5  # processor time of planning and the first delivery, without the start of the program
SOURCES = [SourcePartition(REGION, "t", target.partition) for target in TARGETS]


class Many(MemoryObjectStore):
    """What a segment holds is made when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: Counter[str] = Counter()
        self.seconds: list[float] = []  # of processor time, in which segments were made
        for source in SOURCES:
            for n in range(SEGMENTS):
                name = Segment(source, 0, OffsetRange(n * 10, n * 10 + 9))
                self.replace(format_key("data", name), b"")

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        self.listed[prefix] += 1
        return super().list(prefix, start_after=start_after, limit=limit)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        if key.startswith("data/a/_control/"):
            return super().open(key, tail_bytes=tail_bytes)
        began = time.thread_time()
        segment, made = parse_key("data", key), World()
        made.put(segment.offsets.start, segment.offsets.end, partition=segment.source.partition, notify=False)
        self.seconds.append(time.thread_time() - began)
        return made.objects.memory.open(key)


@pytest.mark.cpu
def test_the_first_record_costs_seconds_of_processor_time() -> None:
    world, many = restorable(), Many()
    world.objects.memory, world.peek = many, SegmentStore(many, "data")
    began = time.process_time()
    restoring = Restoring(world)
    while not any(map(world.target.records, TARGETS)):
        restoring.turn()
    took = time.process_time() - began - sum(many.seconds)
    print(f"first record after {took:.1f} s of processor time; {len(many.seconds)} segments were made")
    assert sum(len(p.left) for p in restoring.plan.partitions) == len(TARGETS) * SEGMENTS
    assert [many.listed[partition_prefix("data", source)] for source in SOURCES] == [1] * len(SOURCES)
    assert took < LIMIT_SECONDS
