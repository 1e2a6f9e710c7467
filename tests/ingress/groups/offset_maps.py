"""Offset maps in a scratch file, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey
from formats.messages.offset_map import MapPage, encode_page, encode_page_key
from formats.records.offset_runs import offset_runs
from formats.segment import SourcePartition
from infra.archive.map_pages import PagedMaps, StoredPages

KEY = MapKey(CheckpointKey(SourcePartition("us", "orders", 3), "us.orders"), "id-1")

Row = tuple[int, int, int]  # source, target, count


def page(position: int, rows: Sequence[Row], key: MapKey = KEY) -> MapPage:
    return MapPage(key, position, offset_runs(rows))


def put(maps: PagedMaps, pages: Iterable[MapPage]) -> None:
    for one in pages:
        maps.put(encode_page_key(one), encode_page(one))


@contextmanager
def stored(*pages: MapPage) -> Iterator[StoredPages]:
    """Of one partition; not none."""
    with closing(PagedMaps()) as maps:
        put(maps, pages)
        yield maps.maps[pages[0].key]
