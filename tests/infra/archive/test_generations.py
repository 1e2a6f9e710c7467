"""Numbered generations: the highest counts, one process gets a number, and finding it costs few requests."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import SegmentNotFound
from infra.archive.generations import PAGE, Generations
from infra.contracts.storage import ObjectInfo
from infra.storage.memory_and_folder import MemoryObjectStore

PREFIX = "data/a/_control/v1/catalog/"


class Counting(MemoryObjectStore):
    listings = 0

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        self.listings += 1
        return super().list(prefix, start_after=start_after, limit=limit)


def stored(*numbers: int, foreign: tuple[str, ...] = ()) -> tuple[Generations, Counting]:
    objects = Counting()
    generations = Generations(objects, PREFIX)
    for key in [*map(generations.key, numbers), *(f"{PREFIX}{name}" for name in foreign), "data/a/orders/0/0/x"]:
        objects.put_new(key, io.BytesIO(b"x"), 1)
    return generations, objects


@given(
    st.sets(st.integers(1, 5000) | st.integers(1, 60), max_size=80),
    st.integers(0, 6000),
    st.sets(st.text("0a", min_size=1, max_size=21), max_size=30),
)
def test_the_highest_number_is_found_whatever_was_thinned(numbers: set[int], known: int, foreign: set[str]) -> None:
    generations, _ = stored(*numbers, foreign=tuple(name for name in foreign if not name.isdecimal()))
    assert generations.newest(known) == max(numbers, default=0)


def test_nothing_newer_costs_one_request() -> None:
    generations, objects = stored(*range(1, 500))
    assert (generations.newest(499), objects.listings) == (499, 1)


def test_a_first_read_of_many_costs_few_requests() -> None:
    generations, objects = stored(*range(1, 20_001))
    assert generations.newest() == 20_000
    assert objects.listings < 50


def test_an_emptied_bucket_begins_anew() -> None:
    generations, _ = stored(1, 2)
    assert generations.newest(7) == 2
    assert stored()[0].newest(7) == 0


def test_one_process_gets_a_number() -> None:
    generations, _ = stored(1)
    assert generations.put(2, b"ours")
    assert not generations.put(2, b"theirs")
    assert generations.put(2, b"ours"), "the answer was lost, and the request repeated"
    assert generations.read(2) == b"ours"
    with pytest.raises(SegmentNotFound):
        generations.read(3)


def test_keys_have_the_order_of_their_numbers() -> None:
    generations, objects = stored(9, 10, PAGE * 100)
    names = [info.key for info in objects.list(PREFIX)]
    assert names == [generations.key(number) for number in (9, 10, PAGE * 100)]
