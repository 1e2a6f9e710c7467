"""The archive: segments as objects below one prefix of an object store. It is its own catalogue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from replicator.errors import MalformedKey, SegmentNotFound
from replicator.protocols import ObjectInfo, ObjectStore
from replicator.segment import (
    CONTROL,
    Segment,
    SegmentInfo,
    SourcePartition,
    format_key,
    parse_key,
    partition_prefix,
    region_prefix,
)


@dataclass(frozen=True, slots=True)
class SegmentStore:
    """Immutable segment objects. As thread safe as `objects`; raises what it raises."""

    objects: ObjectStore
    prefix: str
    on_malformed: Callable[[MalformedKey], None] = lambda _: None  # told of keys that `list` leaves out

    def list(self, source: SourcePartition, *, level: int | None = None, start_at: int = 0) -> Sequence[SegmentInfo]:
        """Stored segments of `source`, in key order (level, start, end). Foreign keys are left out.

        With `level`, only that one, and of it only those whose start is at least `start_at`: one request that skips
        the past. A segment that starts before and reaches beyond `start_at` is then not seen.
        """
        prefix = partition_prefix(self.prefix, source, level)
        start_after = f"{prefix}{start_at:020d}" if level is not None and start_at else ""
        return [info for info in self._segments(prefix, start_after) if info.segment.source == source]

    def scan(self, region: str) -> Iterator[SegmentInfo | MalformedKey]:
        """Everything below `region` but the control plane; keys that are no segment's come as the error naming them."""
        control = f"{region_prefix(self.prefix, region)}{CONTROL}/"
        for item in self.objects.list(region_prefix(self.prefix, region)):
            if item.key.startswith(control):
                continue
            try:
                yield self._info(item)
            except MalformedKey as error:
                yield error

    def walk(self, region: str, place: str) -> Iterator[SegmentInfo]:
        """Every segment stored for a place, in key order, by one listing; foreign keys are left out."""
        return self._segments(f"{region_prefix(self.prefix, region)}{place}/", "")

    def topics(self, region: str) -> Sequence[str]:
        """Places below `region` that hold anything, by one request each; the control plane is left out. A place is a
        topic's name, with `@` and its topic id for a later life of it."""
        return [name for name in self._folders(region_prefix(self.prefix, region)) if name != CONTROL]

    def partitions(self, region: str, place: str) -> Sequence[int]:
        """Partitions stored for a place, by one request each."""
        names = self._folders(f"{region_prefix(self.prefix, region)}{place}/")
        return sorted(int(name) for name in names if name.isdecimal())

    def store(self, segment: Segment, body: BinaryIO, size_bytes: int) -> None:
        """Put the segment whole, or not at all. Raises SegmentExists, and changes nothing, if the key is taken."""
        self.objects.put_new(format_key(self.prefix, segment), body, size_bytes)

    def open(self, segment: Segment) -> BinaryIO:
        """Seekable; the caller closes it. Raises SegmentNotFound."""
        try:
            return self.objects.open(format_key(self.prefix, segment))
        except SegmentNotFound as error:
            raise SegmentNotFound(segment) from error

    def stat(self, segment: Segment) -> ObjectInfo | None:
        """None when, and only when, the store says that it holds no such segment."""
        return self.objects.stat(format_key(self.prefix, segment))

    def delete_many(self, segments: Collection[Segment]) -> None:
        self.objects.delete_many([format_key(self.prefix, s) for s in segments])

    def _folders(self, prefix: str) -> Iterator[str]:
        start_after = ""
        while (item := next(iter(self.objects.list(prefix, start_after=start_after)), None)) is not None:
            name, slash, _ = item.key[len(prefix) :].partition("/")
            if slash:
                yield name
            start_after = f"{prefix}{name}{chr(ord('/') + 1)}" if slash else item.key  # the first key behind the folder

    def _info(self, item: ObjectInfo) -> SegmentInfo:
        return SegmentInfo(parse_key(self.prefix, item.key), item.size_bytes, item.modified_at, item.storage_class)

    def _segments(self, prefix: str, start_after: str) -> Iterator[SegmentInfo]:
        for item in self.objects.list(prefix, start_after=start_after):
            try:
                yield self._info(item)
            except MalformedKey as error:
                self.on_malformed(error)
