"""One archive: its segments, its control objects and the format of its segments.

Code that decodes segments takes an `Archive`; code that only lists or deletes them takes its `segments`, and needs no
format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.coverage import SegmentSlice
from formats.errors import MalformedKey
from formats.footer import SegmentFooter
from formats.records.statistics import records_within
from formats.registry import SegmentFormat, SegmentReader
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FOOTER_BYTES = 64 * 1024  # of a segment's end: a footer takes one or two kilobytes for each row group


@dataclass(frozen=True, slots=True)
class PartitionListing:
    """The stored segments and recorded gaps of one partition."""

    infos: Sequence[SegmentInfo]
    recorded: Sequence[OffsetRange]  # gaps


@dataclass(frozen=True, slots=True)
class Archive:
    """As thread safe as its object store, whose errors it raises. Each method that reads a segment raises
    SegmentNotFound when, and only when, the store holds no such segment, and CorruptSegment when the segment does not
    match its key or footer."""

    segments: SegmentStore
    control: ControlStore
    format: SegmentFormat  # of new segments; it reads every stored segment

    @classmethod
    def of(
        cls,
        objects: ObjectStore,
        prefix: str,
        segment_format: SegmentFormat,
        *,
        on_malformed: Callable[[MalformedKey], None] = lambda _: None,
    ) -> Archive:
        """`on_malformed`: see `SegmentStore`."""
        return cls(SegmentStore(objects, prefix, on_malformed), ControlStore(objects, prefix), segment_format)

    def open(self, segment: Segment, *, tail_bytes: int | None = None) -> AbstractContextManager[SegmentReader]:
        """Opens the segment at once, before the `with` block; closes it at the end of the block. `tail_bytes`: see
        `ObjectStore.open`."""
        return closing(self.format.open(self.segments.open(segment, tail_bytes=tail_bytes), segment))

    def footer(self, segment: Segment) -> SegmentFooter:
        """Fetches FOOTER_BYTES, and more of a longer footer, but no records."""
        with self.open(segment, tail_bytes=FOOTER_BYTES) as reader:
            return reader.footer

    def batches(self, part: SegmentSlice) -> Iterator[RecordBatch]:
        """The records of a slice, in offset order; no batch is empty. Holds one row group. An error may come after any
        batch: the batches before it are correct."""
        with self.open(part.segment) as reader:
            yield from records_within(reader.batches(part.offsets.start), part.offsets)

    def listing(self, source: SourcePartition) -> PartitionListing:
        """All segments of a partition, and its recorded gaps."""
        # gaps first: then every segment that was stored before a gap was recorded is listed
        recorded = self.control.gaps.ranges(source)
        return PartitionListing(infos=self.segments.list(source), recorded=recorded)
