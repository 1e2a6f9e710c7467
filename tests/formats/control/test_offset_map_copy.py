"""Copies of the offset map's pages: what they are called, what is in them, and which of them are needed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from awscrt import checksums
from hypothesis import given
from hypothesis import strategies as st

from formats.control import offset_map_copy
from formats.control.offset_map_copy import (
    EVERYTHING,
    MapCopies,
    copy_name,
    decode_pages,
    encode_pages,
    map_copies,
    trim_name,
)
from formats.errors import MalformedEvent
from formats.segment import OffsetRange
from tests.examples import property_examples

records = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=5)
ranges = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda two: OffsetRange(min(two), max(two)))


class TestBytes:
    @property_examples()
    @given(records)
    def test_they_round_trip(self, some: list[tuple[bytes, bytes]]) -> None:
        assert list(decode_pages(encode_pages(some))) == some

    @property_examples()
    @given(records, st.data())
    def test_damage_is_a_typed_error(self, some: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
        whole = bytearray(encode_pages(some))
        at = data.draw(st.integers(0, len(whole) - 1))
        cut = bytes(whole[:at])
        whole[at] ^= data.draw(st.integers(1, 255))
        for damaged in (bytes(whole), cut, bytes(whole) + b"x"):
            with pytest.raises(MalformedEvent, match="not a copy of the offset map's pages"):
                decode_pages(damaged)

    @pytest.mark.parametrize(
        ("version", "length", "unpacked", "why"),
        [
            (2, 0, b"", "version 2, this program reads 1"),
            (1, offset_map_copy.LARGEST_BYTES + 1, b"", "bytes"),
            (1, 5, b"\0\0\0\1x", "a key without a value"),
            (1, 5, b"\0\0\0\2x", "it is cut"),
            (1, 3, b"\0\0\0", "buffer"),
        ],
    )
    def test_what_cannot_be(self, version: int, length: int, unpacked: bytes, why: str) -> None:
        rest = length.to_bytes(4) + pa.compress(unpacked, "zstd", asbytes=True)
        data = version.to_bytes(1) + checksums.crc64nvme(rest).to_bytes(8) + rest
        with pytest.raises(MalformedEvent, match=why):
            decode_pages(data)


def test_a_copy_of_the_first_version_is_read() -> None:
    """Bytes that were written once; a compressor of another version may write others."""
    data = "01feeb5f4b3421bd070000001928b52ffd2019c90000000000036b65790000000576616c7565000000000000000178"
    assert list(decode_pages(bytes.fromhex(data))) == [(b"key", b"value"), (b"", b"x")]


class TestWhatIsNeeded:
    @property_examples()
    @given(st.lists(ranges, max_size=8, unique=True), st.lists(st.integers(0, 13), max_size=3))
    def test_copies_that_no_other_one_holds(self, copies: list[OffsetRange], trims: list[int]) -> None:
        found = map_copies([*map(copy_name, copies), *map(trim_name, set(trims)), "x", "from-1"])
        first_start = max(trims, default=0)

        def is_inside(one: OffsetRange, other: OffsetRange) -> bool:
            return one != other and other.start <= one.start and one.end <= other.end

        needed = [
            one for one in copies if one.end >= first_start and not any(is_inside(one, other) for other in copies)
        ]
        assert found.first_start == first_start
        assert sorted(found.needed) == list(found.needed) == sorted(needed)
        gone = {copy_name(one) for one in copies if one not in needed}
        assert set(found.superseded) == gone | {trim_name(one) for one in trims if one < first_start}

    def test_the_note_that_nothing_is_left_goes_after_the_copies(self) -> None:
        copy, note = copy_name(OffsetRange(3, 9)), trim_name(EVERYTHING)
        assert map_copies([copy, note]) == MapCopies((), EVERYTHING, (copy,))
        assert map_copies([note]) == MapCopies((), EVERYTHING, (note,))

    def test_names_have_twenty_digits(self) -> None:
        assert copy_name(OffsetRange(304, 977)) == "00000000000000000304-00000000000000000977"
        assert trim_name(304) == "from-00000000000000000304"
        assert map_copies(["00000000000000000977-00000000000000000304", "304-977"]) == MapCopies()
