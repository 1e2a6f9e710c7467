"""Copies of offset maps in the bucket, from which they are read when the cluster that has them is gone.

    {prefix}/{target region}/_control/v1/_offsetmap/{source region}/{path}/{partition}/{destination}@{destination id}/

Each copy has the pages that are new or longer since the one before. Once it has as many as that one, it has those, too,
so few copies are needed however many were made. What is superseded, and what was trimmed, is removed by `gc`: ingress,
which copies, has no right to delete.
"""

from __future__ import annotations

import contextlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from formats.codec import VERSION, dump
from formats.control.keys import offset_map_prefix, offset_maps_prefix, parse_offset_map_key
from formats.control.offset_map_copy import (
    EVERYTHING,
    MapCopies,
    copy_name,
    decode_pages,
    encode_pages,
    map_copies,
    trim_name,
)
from formats.errors import MalformedKey, SegmentExists, SegmentNotFound
from formats.messages.map_key import MapKey, decode_page_key
from formats.messages.offset_map_index import PageIndex
from formats.segment import OffsetRange
from infra.archive.control_objects import read_object
from infra.archive.map_pages import PagedMaps
from infra.contracts.internal_topics import PartitionPages
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

COPY_BYTES = 4 << 20  # of pages in one copy: so much memory is taken to make it, and to read it
KEY_BYTES = 160  # of a page's key, about
LIST_ATTEMPTS = 5  # listings of copies that `gc` removes meanwhile

IsWanted = Callable[[MapKey], bool]


@dataclass(frozen=True, slots=True)
class OffsetMapCopies:
    """As thread safe as `objects`, whose errors it raises. `region`: of the destinations."""

    objects: ObjectStore
    prefix: str
    region: str

    def stored(self, source_region: str = "") -> Mapping[MapKey, MapCopies]:
        """By map, of one source region or of all; foreign keys are left out. One request for each thousand objects."""
        names = defaultdict[MapKey, list[str]](list)
        for item in self.objects.list(offset_maps_prefix(self.prefix, self.region, source_region)):
            with contextlib.suppress(MalformedKey):
                key, name = parse_offset_map_key(self.prefix, self.region, item.key)
                names[key].append(name)
        return {key: map_copies(found) for key, found in names.items()}

    def read(self, maps: PagedMaps, source_region: str = "", *, is_wanted: IsWanted = lambda _: True) -> None:
        """Put the pages into `maps`, as if they were read from their topic. Raises MalformedEvent when a copy cannot be
        decoded, and OSError."""
        for key, copies in self.stored(source_region).items():
            if is_wanted(key):
                self._read(key, copies, maps)

    def put(self, key: MapKey, offsets: OffsetRange, data: bytes) -> None:
        """A range that is stored already has the same pages."""
        self._put(f"{offset_map_prefix(self.prefix, self.region, key)}{copy_name(offsets)}", data)

    def trimmed(self, key: MapKey, first_start: int | None) -> None:
        """Note that pages before the one with this start are gone; None: all are. Repeating it is harmless."""
        name = trim_name(EVERYTHING if first_start is None else first_start)
        self._put(f"{offset_map_prefix(self.prefix, self.region, key)}{name}", dump({"v": VERSION}))

    def _put(self, key: str, data: bytes) -> None:
        with durable(Step.COPY_OFFSET_MAP), contextlib.suppress(SegmentExists):
            self.objects.put_new(key, io.BytesIO(data), len(data))

    def _read(self, key: MapKey, copies: MapCopies, maps: PagedMaps) -> None:
        for attempt in range(LIST_ATTEMPTS):
            try:
                for offsets in copies.needed:
                    for record in decode_pages(self._open(key, offsets)):
                        if decode_page_key(record[0])[1] >= copies.first_start:
                            maps.put(*record)
            except SegmentNotFound:  # superseded since it was listed
                if attempt == LIST_ATTEMPTS - 1:
                    raise
                copies = self._listed(key)
            else:
                return

    def _listed(self, key: MapKey) -> MapCopies:
        folder = offset_map_prefix(self.prefix, self.region, key)
        return map_copies(item.key[len(folder) :] for item in self.objects.list(folder))

    def _open(self, key: MapKey, offsets: OffsetRange) -> bytes:
        return read_object(self.objects, f"{offset_map_prefix(self.prefix, self.region, key)}{copy_name(offsets)}")


@dataclass(slots=True)
class OffsetMapCopier:
    """Copies what is new at each call. One thread, which also reads the pages."""

    copies: OffsetMapCopies
    _needed: dict[MapKey, list[OffsetRange]] | None = field(default=None, init=False)  # as far as this process knows

    def copy(self, maps: Mapping[MapKey, PartitionPages]) -> int:
        """Returns how many objects were put. Raises StoreUnavailable: the next call copies the rest. Several processes
        may copy the same maps: what one has put, another one finds."""
        if self._needed is None:
            self._needed = {key: list(one.needed) for key, one in self.copies.stored().items()}
        return sum(self._copy(pages, key, self._needed.setdefault(key, [])) for key, pages in maps.items())

    def _copy(self, pages: PartitionPages, key: MapKey, needed: list[OffsetRange]) -> int:
        index, count = pages.index, 0
        first = index.ending_after(needed[-1].next_offset) if needed else 0
        if first == len(index):
            return 0
        first = _with_smaller(index, first, needed)
        for start, end in _parts(index, first):
            offsets = OffsetRange(index.start(start), index.end(end - 1) - 1)
            self.copies.put(key, offsets, encode_pages(pages.record(number) for number in range(start, end)))
            needed[:] = map_copies(map(copy_name, [*needed, offsets])).needed
            count += 1
        return count


def _with_smaller(index: PageIndex, first: int, needed: list[OffsetRange]) -> int:
    """The page that a copy begins with which would begin with `first`: it takes in the last copies, each while it has
    no more than what comes after it."""
    size_bytes = _bytes(index, first, len(index))
    for copy in reversed(needed):
        start = index.starting_up_to(copy.start) - 1
        if start < 0 or index.start(start) != copy.start:
            break  # it has pages that are not in the topic any more
        more_bytes = _bytes(index, start, first)
        if more_bytes > size_bytes or more_bytes + size_bytes > COPY_BYTES:
            break
        first, size_bytes = min(start, first), size_bytes + more_bytes
    return first


def _parts(index: PageIndex, first: int) -> Iterator[tuple[int, int]]:
    """Pages of each copy, the last one not included."""
    start, size_bytes = first, 0
    for number in range(first, len(index)):
        more_bytes = _bytes(index, number, number + 1)
        if number > start and size_bytes + more_bytes > COPY_BYTES:
            yield start, number
            start, size_bytes = number, 0
        size_bytes += more_bytes
    yield start, len(index)


def _bytes(index: PageIndex, start: int, end: int) -> int:
    return sum(index.place(number).size_bytes + KEY_BYTES for number in range(start, end))
