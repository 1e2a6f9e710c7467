"""Histories of an archive, and the expected result of restoring any part of it, by brute force."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import strategies as st

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.control.gap import RecordedGap
from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from tests.formats.sample_records import ORIGIN, Row, batch_of, sample_rows

REGION, COUNT, PARTITIONS = "a", 60, 2
SECOND_LIFE = "a1b2c3d4e5f6g7h8i9j0kk"
FIRST_STAMP, LAST_STAMP = 1_700_000_000_000 - 5_000, 1_700_000_000_000 + 5_000


@dataclass(frozen=True)
class Stored:
    """One segment: the offsets that it covers; no records existed at `holes`."""

    offsets: OffsetRange
    level: int


@dataclass(frozen=True)
class History:
    """One partition of one incarnation: segments stored now and recorded gaps."""

    partition: int
    life: str
    stored: Sequence[Stored]
    recorded: Sequence[OffsetRange]
    holes: Collection[int]

    def source(self, topic: str) -> SourcePartition:
        return SourcePartition(REGION, topic, self.partition, self.life)

    @property
    def rows(self) -> list[Row]:
        """Every record that the partition ever had."""
        seed = self.partition + (100 if self.life else 0)
        return [row for row in sample_rows(COUNT, seed=seed) if row["offset"] not in self.holes]

    def write(self, objects: ObjectStore, topic: str, *, only: Sequence[Stored] | None = None) -> None:
        store, control = SegmentStore(objects, "data"), ControlStore(objects, "data")
        for one in self.stored if only is None else only:
            name = Segment(self.source(topic), one.level, one.offsets)
            body = io.BytesIO()
            writer = ParquetFormat().create(body)
            inside = [row for row in self.rows if row["offset"] in one.offsets]
            if inside:
                writer.write([batch_of(inside)])
            writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC), source_partition_count=PARTITIONS))
            store.store(name, body, body.tell())
        at = datetime(2026, 1, 1, tzinfo=UTC)
        if self.stored:
            begin = min(one.offsets.start for one in self.stored)
            control.begins.record(self.source(topic), ArchiveBegin(offset=begin, reason="start policy", recorded_at=at))
        for gap in self.recorded:
            control.gaps.record(
                RecordedGap(
                    source=self.source(topic), offsets=gap, reason="retention", low=0, high=COUNT, recorded_at=at
                )
            )

    def holds(self, offset: int) -> bool:
        return any(offset in one.offsets for one in self.stored)


@dataclass(frozen=True)
class Archive:
    histories: Sequence[History]
    has_second_life: bool

    def write(self, objects: ObjectStore, topic: str) -> None:
        for history in self.histories:
            history.write(objects, topic)
        control = ControlStore(objects, "data")
        for number, place in enumerate([topic, *([f"{topic}@{SECOND_LIFE}"] if self.has_second_life else [])]):
            topic_id = place.partition("@")[2] or "first-life-of-this-topic"
            at = datetime(2026, 1, 1 + number, tzinfo=UTC)
            control.claims.record(
                REGION, place, TopicClaim(topic_id=topic_id, cluster_id="c", number=number, claimed_at=at)
            )


@dataclass(frozen=True)
class Choice:
    """A selection, without topic names."""

    partitions: frozenset[int] | None = None
    offsets: IntRange = ANY_OFFSET
    timestamps: IntRange = ANY_TIME
    life: str | None = None

    def answer(self, archive: Archive) -> Mapping[int, list[Row]]:
        """The records expected after the restore, by partition, in order."""
        life = self.life if self.life is not None else SECOND_LIFE if archive.has_second_life else ""
        return {
            history.partition: [
                row
                for row in history.rows
                if history.holds(row["offset"])
                and self.offsets.low <= row["offset"] <= self.offsets.high
                and self.timestamps.low <= row["timestamp"] <= self.timestamps.high
            ]
            for history in archive.histories
            if history.life == life and (self.partitions is None or history.partition in self.partitions)
        }


@st.composite
def _histories(draw: st.DrawFn, partition: int, life: str) -> History:
    begin = draw(st.integers(0, 10))
    edges = sorted({begin, *draw(st.lists(st.integers(begin + 1, COUNT - 1), max_size=6)), COUNT})
    cut = [OffsetRange(a, b - 1) for a, b in pairwise(edges)]
    stored = [Stored(offsets, 0) for offsets in cut if draw(st.integers(0, 5))]  # some are gone
    recorded = [offsets for offsets in cut if Stored(offsets, 0) not in stored and draw(st.booleans())]
    for _ in range(draw(st.integers(0, 2))):  # late owners and merges: any range over the others
        start = draw(st.integers(begin, COUNT - 1))
        offsets = OffsetRange(start, draw(st.integers(start, COUNT - 1)))
        if not any(offsets.overlaps(gap) for gap in recorded):
            stored.append(Stored(offsets, draw(st.integers(0, 2))))
    if not stored:
        stored, recorded = [Stored(OffsetRange(begin, COUNT - 1), 1)], []
    holes = draw(st.sets(st.integers(0, COUNT - 1), max_size=8))
    return History(partition, life, list(dict.fromkeys(stored)), recorded, holes)


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    second = draw(st.booleans())
    lives = ["", SECOND_LIFE] if second else [""]
    return Archive([draw(_histories(p, life)) for life in lives for p in range(PARTITIONS)], second)


@st.composite
def choices(draw: st.DrawFn, archive: Archive) -> Choice:
    timestamps = st.integers(FIRST_STAMP, LAST_STAMP)
    offsets = st.integers(0, COUNT)
    return Choice(
        partitions=draw(st.none() | st.sets(st.integers(0, PARTITIONS - 1), min_size=1).map(frozenset)),
        offsets=draw(st.just(ANY_OFFSET) | st.builds(IntRange, offsets, offsets) | st.builds(IntRange, offsets)),
        timestamps=draw(
            st.just(ANY_TIME) | st.builds(IntRange, timestamps, timestamps) | st.builds(IntRange, timestamps)
        ),
        life=draw(st.sampled_from([None, "", SECOND_LIFE] if archive.has_second_life else [None, ""])),
    )
