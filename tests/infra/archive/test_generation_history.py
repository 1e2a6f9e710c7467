"""Which catalogue was in force at a moment, however generations were thinned, copied and damaged."""

from __future__ import annotations

import gzip
import io
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from math import log2
from typing import BinaryIO

from hypothesis import given
from hypothesis import strategies as st

from formats.control.catalog import Catalog, encode_catalog
from formats.control.group_snapshot import GroupSnapshot, encode_group_snapshot
from formats.errors import SegmentNotFound
from infra.archive.generation_history import TRIED, GenerationHistory, catalog_history, group_history
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.examples import property_examples

START = datetime(2026, 1, 1, tzinfo=UTC)
NEWER = gzip.compress(b'{"v":2}')


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


class Bucket(MemoryObjectStore):
    """`observed` in minutes, ascending, one for each generation; of `bad` the objects cannot be read."""

    def __init__(
        self, observed: Sequence[int], bad: Collection[int] = (), *, copied_at: datetime | None = None
    ) -> None:
        self.at, self.gone, self.reads = START, set[str](), 0
        super().__init__(now=lambda: self.at)
        for index, minute in enumerate(observed):
            self.at = at(minute) + timedelta(seconds=2) if copied_at is None else copied_at
            catalog = Catalog(cluster_id="c", writer="w", observed_at=at(minute), topics={})
            self.add(index, NEWER if index in bad else encode_catalog(catalog))

    def add(self, index: int, data: bytes) -> None:
        self.put_new(key(index), io.BytesIO(data), len(data))

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.reads += 1
        if key in self.gone:
            raise SegmentNotFound(key)
        return super().open(key, tail_bytes=tail_bytes)

    @property
    def history(self) -> GenerationHistory[Catalog]:
        return catalog_history(self, "data", "a")


def number(index: int) -> int:
    """Thinned: every third one is left."""
    return 3 * index + 1


def key(index: int) -> str:
    return f"data/a/_control/v1/catalog/{number(index):020d}"


def last_good(observed: Sequence[int], bad: Collection[int], moment: datetime | None) -> int:
    fitting = [n for n, m in enumerate(observed) if n not in bad and (moment is None or at(m) <= moment)]
    return number(fitting[-1]) if fitting else 0


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], set[int]]:
    """Times, and which generations are damaged: runs that are no longer than what is tried one by one."""
    observed = sorted(draw(st.sets(st.integers(0, 500), max_size=120)))
    bad: set[int] = set()
    for begin in draw(st.lists(st.integers(0, 120), max_size=3)):
        for index in range(begin, begin + draw(st.integers(1, TRIED))):
            if index - TRIED not in bad and index < len(observed):
                bad.add(index)
    longest = run = 0
    for index in range(len(observed)):
        run = run + 1 if index in bad else 0
        longest = max(longest, run)
    return observed, bad if longest <= TRIED else set()


@property_examples()
@given(histories(), st.none() | st.integers(-1, 501), st.none() | st.integers(-10, 600))
def test_the_last_good_one_up_to_the_moment(
    history: tuple[list[int], set[int]], minute: int | None, copied: int | None
) -> None:
    observed, bad = history
    bucket = Bucket(observed, bad, copied_at=None if copied is None else at(copied))
    moment = None if minute is None else at(minute)
    found = bucket.history.at(moment)
    assert found.number == last_good(observed, bad, moment)
    assert (found.value is None) == (found.number == 0)
    assert bucket.reads <= 4 + 2 * log2(len(observed) + 1) + (TRIED + 8) * len(bad)


@property_examples()
@given(st.integers(0, 40), st.integers(0, 120), st.integers(-1, 330))
def test_a_source_that_was_upgraded_is_read_up_to_then(good: int, newer: int, minute: int) -> None:
    """However many generations of a newer version follow."""
    observed, bad = list(range(0, 2 * (good + newer), 2)), range(good, good + newer)
    bucket = Bucket(observed, bad)
    found = bucket.history.at(at(minute))
    assert found.number == last_good(observed, bad, at(minute))
    if any(at(observed[n]) <= at(minute) for n in bad):
        assert found.problems, "one of them was in force"
    assert bucket.reads <= 8 + log2(good + newer + 1) * (TRIED + 2 + log2(good + newer + 1))


@property_examples()
@given(st.sets(st.integers(0, 99)), st.integers(-1, 200))
def test_whatever_is_damaged_no_later_one_and_no_damaged_one_is_found(bad: set[int], minute: int) -> None:
    observed = list(range(0, 200, 2))
    found = Bucket(observed, bad).history.at(at(minute))
    if found.value is not None:
        assert found.value.observed_at <= at(minute)
        assert found.number in {number(n) for n in range(100) if n not in bad}


def test_times_of_the_listing_save_requests() -> None:
    bucket = Bucket(range(2_000))
    for minute in (None, 10, 1_000.5, 1_999, 20_000):
        bucket.reads = 0
        assert bucket.history.at(None if minute is None else at(minute)).number > 0
        assert bucket.reads <= 3


def test_a_copied_bucket_costs_a_few_more() -> None:
    bucket = Bucket(range(2_000), copied_at=at(20_000))
    assert bucket.history.at(at(1_234.5)).number == number(1_234)
    assert bucket.reads <= 14


def test_a_damaged_one_leaves_the_one_before_it_in_force_and_is_reported() -> None:
    bucket = Bucket(range(9), {4})
    assert [bucket.history.at(at(minute)).number for minute in (3, 4, 5)] == [number(3), number(3), number(5)]
    [problem] = bucket.history.at(at(4)).problems
    assert key(4) in problem
    assert "version 2, this program reads 1" in problem
    assert not bucket.history.at(at(5)).problems, "it was not in force then"
    bucket.gone.add(key(8))
    found = bucket.history.at(None)
    assert (found.number, found.problems) == (number(7), [f"{key(8)} is listed, and it is gone"])


def test_a_snapshot_of_groups_is_in_force_from_the_end_of_its_observation_on() -> None:
    """A group may have committed while it was made: then it says more than was true when it began."""
    store = MemoryObjectStore()
    for index, (began, ended) in enumerate([(0, None), (10, 12), (20, 25)]):
        snapshot = GroupSnapshot(
            cluster_id="c",
            writer="w",
            observed_at=at(began),
            groups={},
            read_until=None if ended is None else at(ended),
        )
        data = encode_group_snapshot(snapshot)
        store.put_new(f"data/a/_control/v1/groups/{number(index):020d}", io.BytesIO(data), len(data))
    found = {minute: group_history(store, "data", "a").at(at(minute)).number for minute in (-1, 0, 11, 12, 24, 25)}
    assert found == {-1: 0, 0: number(0), 11: number(0), 12: number(1), 24: number(1), 25: number(2)}


def test_before_the_first_one_nothing_was_in_force() -> None:
    found = Bucket([10, 20]).history.at(at(9))
    assert (found.number, found.value, found.first_observed_at) == (0, None, at(10))
    nothing = Bucket([]).history.at(None)
    assert (nothing.number, nothing.value, nothing.first_observed_at) == (0, None, None)
