"""Pages of offset maps in a scratch file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from formats.errors import MalformedEvent
from formats.messages.map_key import encode_map_key
from formats.messages.offset_map import encode_page, encode_page_key
from infra.archive import map_pages
from infra.archive.map_pages import DECODED_PAGES, PagedMaps
from infra.runtime.scratch_file import ScratchFile
from tests.ingress.groups.offset_maps import KEY, page, put

OTHER = replace(KEY, destination_id="id-2")
GROWTH_BYTES = 64_000_000
ROOT = Path(__file__).parents[3]


@pytest.fixture
def maps() -> Iterator[PagedMaps]:
    found = PagedMaps()
    yield found
    found.close()


def test_pages_are_kept_by_partition_and_incarnation_of_the_destination(maps: PagedMaps) -> None:
    mine, later, others = page(0, [(0, 0, 5)]), page(5, [(5, 6, 2)]), page(0, [(0, 0, 9)], OTHER)
    put(maps, [later, others, mine])
    assert maps.maps.keys() == {KEY, OTHER}
    found = maps.maps[KEY]
    assert [found.page(number) for number in range(len(found.index))] == [mine, later]
    assert found.record(1) == (encode_page_key(later), encode_page(later))
    assert maps.maps[OTHER].page(0) == others


def test_a_page_that_is_written_again_replaces_its_earlier_version(maps: PagedMaps) -> None:
    longer = page(0, [(0, 0, 5), (7, 6, 1)])
    put(maps, [page(0, [(0, 0, 5)])])
    assert maps.maps[KEY].page(0).runs.records == 5
    put(maps, [longer])
    assert (len(maps.maps[KEY].index), maps.maps[KEY].page(0)) == (1, longer)


def test_a_tombstone_removes_a_page_and_the_last_one_the_partition(maps: PagedMaps) -> None:
    put(maps, [page(0, [(0, 0, 5)]), page(5, [(5, 6, 2)])])
    maps.put(encode_map_key(KEY, 3), None)  # there is none
    maps.put(encode_map_key(OTHER, 0), None)
    maps.put(encode_map_key(KEY, 0), None)
    assert list(maps.maps[KEY].index.starts) == [6]
    maps.put(encode_map_key(KEY, 6), None)
    assert maps.maps == {}


@pytest.mark.parametrize(
    ("key", "value"), [(b"x", b"x"), (b"x", None), (encode_map_key(KEY, 0), b"x"), (encode_map_key(KEY, 0), b"")]
)
def test_garbage_changes_nothing(maps: PagedMaps, key: bytes, value: bytes | None) -> None:
    put(maps, [page(0, [(0, 0, 5)])])
    with pytest.raises(MalformedEvent):
        maps.put(key, value)
    assert maps.maps[KEY].page(0) == page(0, [(0, 0, 5)])


def test_the_file_is_written_anew_when_most_of_it_was_replaced() -> None:
    maps = PagedMaps(waste_bytes=1000)
    put(maps, [page(0, [(0, 0, 5)]), page(0, [(0, 0, 7)], OTHER)])
    for count in range(1, 200):
        put(maps, [page(5, [(5, 6, count)])])
        assert maps.maps[KEY].page(1).runs.records == count  # decoded ones are known by where they lie
        assert maps.maps[KEY].page(0).runs.records == 5
        assert maps.maps[OTHER].page(0).runs.records == 7
        assert maps.stored_bytes <= 1500
    for _ in range(200):
        put(maps, [page(5, [(5, 6, 1)])])
        maps.put(encode_map_key(KEY, 6), None)
    assert maps.stored_bytes <= 1500
    maps.close()


def test_a_full_disk_loses_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(ScratchFile):
        def append(self, data: bytes) -> int:
            if self.size_bytes + len(data) > 60:
                raise OSError("no space left")
            return super().append(data)

    maps = PagedMaps(waste_bytes=100)
    some = [page(n * 5, [(n * 5, n * 6, 5)]) for n in range(4)]
    put(maps, some)
    monkeypatch.setattr(map_pages, "ScratchFile", Full)
    with pytest.raises(OSError, match="no space left"):
        put(maps, some[-1:] * 20)
    assert [maps.maps[KEY].page(n) for n in range(4)] == some
    maps.close()


def test_after_clearing_nothing_is_left(maps: PagedMaps) -> None:
    put(maps, [page(0, [(0, 0, 5)])])
    maps.clear()
    assert (maps.maps, maps.stored_bytes) == ({}, 0)
    put(maps, [page(0, [(0, 0, 7)])])
    assert maps.maps[KEY].page(0).runs.records == 7


def test_few_decoded_pages_are_kept(maps: PagedMaps) -> None:
    put(maps, [page(n * 5, [(n * 5, n * 6, 5)]) for n in range(2 * DECODED_PAGES)])
    for number in range(2 * DECODED_PAGES):
        maps.maps[KEY].page(number)
    assert len(maps._decoded) == DECODED_PAGES
    assert maps.maps[KEY].page(0).position == 0


FEED = """
import random, sys
from pathlib import Path
from formats.messages.offset_map import FULL_RUNS, encode_page, encode_page_key
from formats.records.offset_runs import OffsetRuns
from infra.archive.map_pages import PagedMaps
from tests.ingress.groups.offset_maps import KEY, page
import pyarrow as pa, pyarrow.compute as pc
from formats.messages.offset_map import MapPage

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def warm(maps):  # what is loaded and cached once
    one = page(0, [(0, 0, 1)])
    for _ in range(1000):
        maps.put(encode_page_key(one), encode_page(one))
        maps.maps[KEY].page(0)

total, per_run, in_page = map(int, sys.argv[1:])
seeded = random.Random(7)
maps = PagedMaps()
warm(maps)
maps.clear()
before, size, count, source, target = resident(), 0, 0, 0, 0
ones = pa.array([per_run] * in_page, pa.int64())
while count < total:
    gaps = pa.array([seeded.choice((0, 1, 1, 1, 2, 5)) + per_run for _ in range(in_page)], pa.int64())
    steps = pa.array([per_run + (seeded.random() < 0.1) for _ in range(in_page)], pa.int64())
    runs = OffsetRuns(pc.add(pc.cumulative_sum(gaps), source), pc.add(pc.cumulative_sum(steps), target), ones)
    one = MapPage(KEY, source, runs)
    key, value = encode_page_key(one), encode_page(one)
    maps.put(key, value)
    size += len(key) + len(value)
    count += in_page
    source, target = runs.source_end, runs.target_end
there = maps.maps[KEY]
for offset in range(0, source, source // 500):
    there.index.reaching(offset, 1)
    there.page(min(there.index.ending_after(offset), len(there.index) - 1))
there.index.highest_before(1), there.index.lowest_from(1)
print(resident() - before, size, len(there.index))
"""


def fed(runs: int, records: int, in_page: int) -> tuple[int, int, int]:
    """Growth of the resident memory, bytes of keys and values, and pages: of a process of its own."""
    command = [sys.executable, "-c", FEED, str(runs), str(records), str(in_page)]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True, text=True
    )
    growth, size, pages = map(int, found.stdout.split())
    return growth, size, pages


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory from /proc")
class TestSizes:
    """A run of one record is what a source with one record in each transaction has."""

    @pytest.mark.long
    def test_of_a_million_runs_of_one_record(self) -> None:
        growth, size, pages = fed(1_000_000, 1, 128)
        print(f"{growth:,} bytes resident, {size:,} in the topic, {pages:,} pages")
        assert growth < GROWTH_BYTES // 5

    @pytest.mark.long
    def test_of_ten_million_runs_of_one_record(self) -> None:
        growth, size, pages = fed(10_000_000, 1, 128)
        print(f"{growth:,} bytes resident, {size:,} in the topic, {pages:,} pages")
        assert growth < GROWTH_BYTES

    def test_of_a_billion_records_in_runs_of_ten_thousand(self) -> None:
        growth, size, pages = fed(100_000, 10_000, 128)
        print(f"{growth:,} bytes resident, {size:,} in the topic, {pages:,} pages")
        assert size < 20_000_000
        assert growth < GROWTH_BYTES // 5
