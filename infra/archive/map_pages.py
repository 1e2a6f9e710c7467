"""Pages of offset maps by partition: their bytes in a scratch file, in memory an index of them and a few decoded ones.

A page that is put again replaces its earlier version, whose bytes stay in the file until they are more than those in
use; then the file is written anew.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from formats.messages.map_key import MapKey, decode_page_key, encode_map_key
from formats.messages.offset_map import MapPage, decode_page
from formats.messages.offset_map_index import PageIndex, PagePlace
from infra.runtime.scratch_file import ScratchFile

DECODED_PAGES = 64  # kept: at most 100 KB each, usually 3 KB
WASTE_BYTES = 16 << 20  # of replaced pages, before the file is written anew


class StoredPages:
    """A PartitionPages. Made by `PagedMaps`."""

    def __init__(self, key: MapKey, read: Callable[[bytes, PagePlace], tuple[bytes, MapPage]]) -> None:
        self.key = key
        self.index = PageIndex()
        self._read = read

    def page(self, number: int) -> MapPage:
        return self._read(self._record_key(number), self.index.place(number))[1]

    def record(self, number: int) -> tuple[bytes, bytes]:
        key = self._record_key(number)
        return key, self._read(key, self.index.place(number))[0]

    def _record_key(self, number: int) -> bytes:
        return encode_map_key(self.key, self.index.start(number))


class PagedMaps:
    """One thread. Raises OSError when the scratch file cannot be written."""

    def __init__(self, folder: Path | None = None, *, waste_bytes: int = WASTE_BYTES) -> None:
        """`folder`: for the scratch file; None is that for temporary files."""
        self._folder, self._waste_bytes = folder, waste_bytes
        self._file = ScratchFile(folder)
        self._used_bytes = 0
        self._maps: dict[MapKey, StoredPages] = {}
        self._decoded: OrderedDict[int, tuple[bytes, MapPage]] = OrderedDict()  # by place, the last used ones last

    @property
    def maps(self) -> Mapping[MapKey, StoredPages]:
        """Those with any page."""
        return self._maps

    @property
    def stored_bytes(self) -> int:
        """Of the scratch file."""
        return self._file.size_bytes

    def put(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the topic; without a value it removes the page. Raises MalformedEvent, and changes
        nothing."""
        if value is None:
            self._remove(*decode_page_key(key))
            return
        page = decode_page(key, value)
        if page.key not in self._maps:
            self._maps[page.key] = StoredPages(page.key, self._read)
        place = PagePlace(self._file.append(value), len(value))
        self._used_bytes += len(value)
        pages = self._maps[page.key]
        self._release(pages.index.put(page, place, pages.page))

    def clear(self) -> None:
        self._maps = {}
        self._rewrite()

    def close(self) -> None:
        """May be called twice."""
        self._file.close()

    def _remove(self, key: MapKey, start: int) -> None:
        pages = self._maps.get(key)
        if pages is not None:
            removed = pages.index.remove(start, pages.page)
            self._release([removed] if removed else [])
            if not len(pages.index):
                del self._maps[key]

    def _release(self, places: Sequence[PagePlace]) -> None:
        self._used_bytes -= sum(place.size_bytes for place in places)
        if self._file.size_bytes - self._used_bytes > self._used_bytes + self._waste_bytes:
            self._rewrite()

    def _rewrite(self) -> None:
        """Into another file, without what was replaced."""
        before, after = self._file, ScratchFile(self._folder)
        try:  # all are written before one is changed: the disk may be full
            places = array("q", (after.append(before.read(one.at, one.size_bytes)) for _, _, one in self._places()))
        except OSError:
            after.close()
            raise
        for (index, number, _), at in zip(self._places(), places, strict=True):
            index.move(number, at)
        self._file, self._used_bytes = after, after.size_bytes
        self._decoded.clear()
        before.close()

    def _places(self) -> Iterator[tuple[PageIndex, int, PagePlace]]:
        for pages in self._maps.values():
            for number in range(len(pages.index)):
                yield pages.index, number, pages.index.place(number)

    def _read(self, key: bytes, place: PagePlace) -> tuple[bytes, MapPage]:
        if (known := self._decoded.get(place.at)) is not None:
            self._decoded.move_to_end(place.at)
            return known
        value = self._file.read(place.at, place.size_bytes)
        found = self._decoded[place.at] = value, decode_page(key, value)
        if len(self._decoded) > DECODED_PAGES:
            self._decoded.popitem(last=False)
        return found
