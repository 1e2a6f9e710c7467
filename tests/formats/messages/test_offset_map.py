"""Pages of the offset map: they round-trip, garbage is a typed error, and a page that grows keeps its records."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.messages import offset_map
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey, decode_page_key, encode_map_key
from formats.messages.offset_map import FULL_RUNS, MAX_RUNS, MapPage, decode_page, encode_page, encode_page_key, pages
from formats.records.offset_runs import NO_RUNS, OffsetRuns, offset_runs
from formats.segment import SourcePartition
from tests.examples import property_examples
from tests.formats.messages.test_wire import NAME, SOURCES

KEY = MapKey(CheckpointKey(SourcePartition("us", "orders", 3), "us.orders"), "Vd0iJ2bDSQeHnCqZBfSb4w")
keys = st.builds(MapKey, st.builds(CheckpointKey, SOURCES, NAME), NAME)
offsets = st.integers(0, 9) | st.integers(0, 2**60)


@st.composite
def runs(draw: st.DrawFn, target: int | None = None) -> OffsetRuns:
    rows, at = [], draw(offsets) if target is None else target
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 5) | st.integers(1, 2**50))
        rows.append((draw(offsets), at, count))
        at += count + draw(st.integers(0, 3))
    return offset_runs(rows)


@property_examples()
@given(keys, offsets, runs())
def test_a_page_round_trips(key: MapKey, position: int, some: OffsetRuns) -> None:
    (page,) = pages(key, position, some)
    found = decode_page(encode_page_key(page), encode_page(page))
    assert found == page == MapPage(key, position, some)
    assert decode_page_key(encode_page_key(page)) == (key, some.target_start)


@property_examples()
@given(keys, keys, offsets, offsets)
def test_one_key_has_one_encoding(a: MapKey, b: MapKey, start: int, other: int) -> None:
    assert (encode_map_key(a, start) == encode_map_key(b, other)) == ((a, start) == (b, other))


def test_columns_of_a_slice_are_encoded_from_its_first_row_on() -> None:
    some = offset_runs([(n * 3, n * 2, 1) for n in range(9)])
    (page,) = pages(KEY, 5, some.slice(4, 3))
    assert decode_page(encode_page_key(page), encode_page(page)).runs == some.slice(4, 3)


def test_the_largest_offsets_there_are() -> None:
    end = 2**63 - 1
    (page,) = pages(KEY, end - 1, offset_runs([(end - 1, end - 1, 1)]))
    assert decode_page(encode_page_key(page), encode_page(page)) == page


class TestGarbage:
    @property_examples()
    @given(st.binary(max_size=60))
    def test_of_any_kind_is_a_typed_error(self, data: bytes) -> None:
        for key, value in ((data, data), (encode_map_key(KEY, 0), data)):
            with pytest.raises(MalformedEvent):
                decode_page(key, value)

    @property_examples()
    @given(runs(), st.data())
    def test_damage_is_a_typed_error_or_another_page(self, some: OffsetRuns, data: st.DataObject) -> None:
        """Never another exception, and never columns that contradict each other."""
        (page,) = pages(KEY, 0, some)
        value = bytearray(encode_page(page))
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] ^= data.draw(st.integers(1, 255))
        cut = bytes(value[: data.draw(st.integers(0, len(value)))])
        for damaged in (bytes(value), cut):
            try:
                found = decode_page(encode_page_key(page), damaged)
            except MalformedEvent:
                continue
            rows = found.runs.rows()
            assert (found.key, found.start) == (KEY, some.target_start)
            assert all(count > 0 and source >= 0 for source, _, count in rows)
            assert all(rows[n][1] + rows[n][2] <= rows[n + 1][1] for n in range(len(rows) - 1))

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({}, "'region'"),
            ({"partition": -1}, "not a partition number"),
            ({"start": "x"}, "invalid literal"),
            ({"topic": "a/b"}, "not a topic name"),
        ],
    )
    def test_a_key_of_another_kind(self, fields: dict[str, object], why: str) -> None:
        known = json.loads(encode_map_key(KEY, 0))
        with pytest.raises(MalformedEvent, match=why):
            decode_page_key(json.dumps({**known, **fields} if fields else {}).encode())

    @pytest.mark.parametrize(
        ("header", "columns", "why"),
        [
            ((2, 0, 1), [0, 7, 1], "version 2, this program reads 1"),
            ((1, 0, 0), [], "0 runs"),
            ((1, 0, MAX_RUNS + 1), [], f"{MAX_RUNS + 1} runs"),
            ((1, 0, 2), [0, 7, 1], "not a page"),
            ((1, 0, 1), [0, 8, 1], "contradict"),  # starts elsewhere than its key says
            ((1, 0, 1), [0, 7, 0], "contradict"),
            ((1, 0, 2), [0, 0, 7, -1, 1, 1], "contradict"),  # the second run begins before the end of the first
            ((1, 0, 1), [-1, 7, 1], "a negative offset"),
            ((1, -1, 1), [0, 7, 1], "a negative offset"),
            ((1, 0, 1), [2**63 - 1, 7, 1], "overflow"),
            ((1, 0, 2), [2**63 - 1, 1, 7, 1, 1, 1], "overflow"),
        ],
    )
    def test_columns_that_cannot_be(self, header: tuple[int, int, int], columns: list[int], why: str) -> None:
        packed = pa.compress(b"".join(one.to_bytes(8, "little", signed=True) for one in columns), "zstd", asbytes=True)
        with pytest.raises(MalformedEvent, match=f"us/orders/3 to us.orders from 7.*{why}|{why}.*from 7"):
            decode_page(encode_map_key(KEY, 7), offset_map._HEADER.pack(*header) + packed)


class TestGrowing:
    def test_none_without_runs(self) -> None:
        assert list(pages(KEY, 0, NO_RUNS)) == []

    @property_examples()
    @given(runs(), st.data())
    def test_an_extended_page_is_the_page_of_both(self, some: OffsetRuns, data: st.DataObject) -> None:
        (page,) = pages(KEY, 3, some)
        later = data.draw(runs(target=some.target_end + data.draw(st.integers(0, 2))))
        (found,) = page.extended(later)
        assert found == MapPage(KEY, 3, some.extended(later))

    def test_many_runs_are_cut_into_pages_that_follow_each_other(self) -> None:
        some = offset_runs([(n * 3, n * 2, 1) for n in range(2 * MAX_RUNS + 1)])
        found = list(pages(KEY, 7, some))
        assert [len(page.runs) for page in found] == [MAX_RUNS, MAX_RUNS, 1]
        assert [row for page in found for row in page.runs.rows()] == some.rows()
        assert found[0].position == 7
        assert [page.position for page in found[1:]] == [page.runs.source_end for page in found[:-1]]
        assert [page.is_full for page in found] == [True, True, False]
        for page in found:
            assert decode_page(encode_page_key(page), encode_page(page)) == page

    def test_full(self) -> None:
        some = offset_runs([(n * 3, n * 2, 1) for n in range(FULL_RUNS)])
        assert [next(pages(KEY, 0, some.slice(0, n))).is_full for n in (1, FULL_RUNS - 1, FULL_RUNS)] == [0, 0, 1]


def test_a_run_of_a_record_takes_two_bytes() -> None:
    """One record in each transaction of the source, and ten of them in each transaction here."""
    some = offset_runs([(n * 2, n + n // 10, 1) for n in range(FULL_RUNS)])
    (page,) = pages(KEY, 0, some)
    assert len(encode_page(page)) <= 2 * FULL_RUNS


def test_a_page_of_the_first_version_is_read() -> None:
    """Bytes that were written once; a compressor of another version may write others."""
    key = (
        b'{"destination":"us.orders","destination_id":"id-1","incarnation":"","partition":3,"region":"us",'
        b'"start":7,"topic":"orders"}'
    )
    value = bytes.fromhex(
        "0100000000000000640000000228b52ffd2030cd000090640002000700010003000200000000000000055402000301"
    )
    found = decode_page(key, value)
    assert (found.key, found.position) == (MapKey(KEY.delivery, "id-1"), 100)
    assert found.runs.rows() == [(100, 7, 3), (105, 11, 2)]
    assert encode_page_key(found) == key
