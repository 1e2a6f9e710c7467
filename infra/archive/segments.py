"""Segments as objects below one prefix of an object store. The keys are the only catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from formats.errors import MalformedKey, SegmentNotFound
from formats.incarnation import CONTROL, Incarnation, parse_incarnation
from formats.segment import (
    Segment,
    SegmentInfo,
    SourcePartition,
    format_key,
    parse_key,
    parse_offsets,
    partition_number,
    partition_prefix,
    region_prefix,
)
from infra.contracts.encryption import as_stored, decrypted, put_copy
from infra.contracts.storage import ObjectInfo, ObjectStore

FEW_OBJECTS = 5_000  # of an archive path: five requests, where a listing of each partition takes one at least


@dataclass(frozen=True, slots=True)
class SegmentStore:
    """Immutable segment objects. As thread safe as `objects`, whose errors it raises."""

    objects: ObjectStore
    prefix: str
    on_malformed: Callable[[MalformedKey], None] = lambda _: None  # called with each key that is left out

    def list(self, source: SourcePartition) -> Sequence[SegmentInfo]:
        """Stored segments of `source`, in key order (level, start, end). Foreign keys are left out."""
        prefix = partition_prefix(self.prefix, source)
        return [info for info in self._segments(prefix) if info.segment.source == source]

    def each_level(self, source: SourcePartition) -> Iterator[int]:
        """Levels of `source` that hold any object, in the order of their names. One small request each, made lazily as
        the caller iterates."""
        return (level for level, _ in self._level_heads(source))

    def firsts(self, source: SourcePartition) -> Iterator[SegmentInfo]:
        """The first segment of each level, by the requests of `each_level`, and more where foreign keys precede it."""
        for level, item in self._level_heads(source):
            prefix = partition_prefix(self.prefix, source, level)
            first = self._of_level(source, level, prefix, item) if item.key.startswith(prefix) else None
            yield from (first,) if first is not None else self.level(source, level, limit=1)

    def level(
        self, source: SourcePartition, level: int, *, start_at: int = 0, limit: int | None = None
    ) -> Iterator[SegmentInfo]:
        """Segments of one level whose start is at least `start_at`, in order of start; the first `limit`. Foreign keys
        are left out. A segment that starts before `start_at` and extends past it is not included."""
        prefix = partition_prefix(self.prefix, source, level)
        start_after = f"{prefix}{start_at:020d}" if start_at else ""
        while limit is None or limit > 0:
            seen = found = 0
            for item in self.objects.list(prefix, start_after=start_after, limit=limit):
                seen, start_after = seen + 1, item.key
                if (info := self._of_level(source, level, prefix, item)) is not None:
                    found += 1
                    yield info
            if limit is None or seen < limit:
                return
            limit -= found  # the page contained foreign keys

    def level_reaching(self, source: SourcePartition, level: int, offset: int) -> Iterator[SegmentInfo]:
        """All segments of one level whose end is at least `offset`, in order of start. Lists every key of the level,
        but does not parse those that end before."""
        prefix = partition_prefix(self.prefix, source, level)
        enough = f"{offset:020d}"
        for item in self.objects.list(prefix):
            if item.key[-len(enough) :] >= enough and (info := self._of_level(source, level, prefix, item)) is not None:
                yield info

    def scan(self, region: str) -> Iterator[SegmentInfo | MalformedKey]:
        """Everything below `region` except control objects; a foreign key is yielded as a MalformedKey naming it."""
        control = f"{region_prefix(self.prefix, region)}{CONTROL}/"
        for item in self.objects.list(region_prefix(self.prefix, region)):
            if item.key.startswith(control):
                continue
            try:
                yield self._info(item)
            except MalformedKey as error:
                yield error

    def walk(self, region: str, path: str) -> Iterator[SegmentInfo]:
        """Every segment below an archive path, in key order, by one listing; foreign keys are left out."""
        return self._segments(f"{region_prefix(self.prefix, region)}{path}/")

    def few(
        self, region: str, path: str, *, most: int = FEW_OBJECTS
    ) -> Mapping[SourcePartition, Sequence[SegmentInfo]] | None:
        """The segments of each partition of an archive path that has any, by one listing; None when there are `most`
        objects or more. Foreign keys are left out."""
        items = list(self.objects.list(f"{region_prefix(self.prefix, region)}{path}/", limit=most))
        if len(items) == most:
            return None
        found: dict[SourcePartition, list[SegmentInfo]] = {}
        for info in filter(None, map(self._info_or_none, items)):
            found.setdefault(info.segment.source, []).append(info)
        return found

    def of_each_partition(self, region: str, path: str) -> Iterable[tuple[SourcePartition, Sequence[SegmentInfo]]]:
        """The segments of each partition of an archive path that has any: by one listing while they are few, else by
        one of each partition."""
        if (few := self.few(region, path)) is not None:
            return few.items()
        incarnation = parse_incarnation(path)
        sources = [SourcePartition.of(region, incarnation, number) for number in self.partitions(region, path)]
        # a partition without any: removed since, or of a server that names empty folders
        return ((source, infos) for source in sources if (infos := self.list(source)))

    def regions(self) -> Sequence[str]:
        """Folders with any object below the prefix: those of regions, and foreign ones."""
        return self.objects.folders(f"{self.prefix}/" if self.prefix else "")

    def incarnations(self, region: str) -> Sequence[Incarnation]:
        """Incarnations with any object below `region`; control objects and foreign folders are left out."""
        prefix = region_prefix(self.prefix, region)
        found: list[Incarnation] = []
        for name in self.objects.folders(prefix):
            if name != CONTROL:
                try:
                    found.append(parse_incarnation(name))
                except MalformedKey as error:
                    self.on_malformed(MalformedKey(f"not a segment key: {f'{prefix}{name}/'!r} ({error})"))
        return found

    def partitions(self, region: str, path: str) -> Sequence[int]:
        """Partitions stored below an archive path."""
        names = self.objects.folders(f"{region_prefix(self.prefix, region)}{path}/")
        return sorted(number for name in names if (number := partition_number(name)) is not None)

    def store(self, segment: Segment, body: BinaryIO, size_bytes: int) -> None:
        """Put the segment whole, or not at all. Raises SegmentExists, and changes nothing, if the key is taken."""
        self.objects.put_new(format_key(self.prefix, segment), body, size_bytes)

    def open_stored(self, segment: Segment) -> BinaryIO:
        """As `open`, of the bytes that are stored, which may be encrypted."""
        return as_stored(self.objects).open(format_key(self.prefix, segment))

    def decrypted(self, segment: Segment, file: BinaryIO) -> BinaryIO:
        """The content of `file`, which has the bytes of the segment as they are stored here or in a copy. Owns `file`.
        Raises CorruptSegment, KeyRefused."""
        return decrypted(self.objects, format_key(self.prefix, segment), file)

    def store_copy(self, segment: Segment, body: BinaryIO, size_bytes: int) -> None:
        """As `store`, of the bytes that are stored in a copy."""
        put_copy(self.objects, format_key(self.prefix, segment), body, size_bytes)

    def open(self, segment: Segment, *, tail_bytes: int | None = None) -> BinaryIO:
        """Seekable; the caller closes it. `tail_bytes`: see `ObjectStore.open`. Raises SegmentNotFound."""
        try:
            return self.objects.open(format_key(self.prefix, segment), tail_bytes=tail_bytes)
        except SegmentNotFound as error:
            raise SegmentNotFound(segment) from error

    def stat(self, segment: Segment) -> ObjectInfo | None:
        """None when, and only when, the store reports that the segment does not exist."""
        return self.objects.stat(format_key(self.prefix, segment))

    def delete_many(self, segments: Collection[Segment]) -> None:
        self.objects.delete_many([format_key(self.prefix, s) for s in segments])

    def _level_heads(self, source: SourcePartition) -> Iterator[tuple[int, ObjectInfo]]:
        """Each level with its first object, by one small request each: one listing of all names would miss a level that
        a merge fills while the caller lists the ones before it."""
        prefix, start_after = partition_prefix(self.prefix, source), ""
        while (item := next(iter(self.objects.list(prefix, start_after=start_after, limit=1)), None)) is not None:
            name, slash, _ = item.key[len(prefix) :].partition("/")
            if slash and name.isdecimal():
                yield int(name), item
            start_after = f"{prefix}{name}{chr(ord('/') + 1)}" if slash else item.key  # the first key after the folder

    def _info(self, item: ObjectInfo) -> SegmentInfo:
        return SegmentInfo(parse_key(self.prefix, item.key), item.size_bytes, item.modified_at, item.storage_class)

    def _of_level(self, source: SourcePartition, level: int, prefix: str, item: ObjectInfo) -> SegmentInfo | None:
        """None for a foreign key. All results share the `source` object."""
        try:
            segment = Segment(source, level, parse_offsets(item.key[len(prefix) :]))
        except MalformedKey:
            self.on_malformed(MalformedKey(f"not a segment key: {item.key!r}"))
            return None
        return SegmentInfo(segment, item.size_bytes, item.modified_at, item.storage_class)

    def _info_or_none(self, item: ObjectInfo) -> SegmentInfo | None:
        """None for a foreign key."""
        try:
            return self._info(item)
        except MalformedKey as error:
            self.on_malformed(error)
            return None

    def _segments(self, prefix: str) -> Iterator[SegmentInfo]:
        return (info for item in self.objects.list(prefix) if (info := self._info_or_none(item)) is not None)
