"""An object and its copy are the same only when it is proven."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import infra.archive.compare_objects
from formats.errors import SegmentNotFound
from infra.archive.compare_objects import CopyState, Likeness, Located, compare, likeness
from infra.contracts.storage import ObjectInfo
from infra.storage.memory_and_folder import MemoryObjectStore

INFO = ObjectInfo("here", 10, datetime(2026, 1, 1, tzinfo=UTC))
MD5, OTHER_MD5 = '"0123456789abcdef0123456789abcdef"', '"fedcba9876543210fedcba9876543210"'
CRC, OTHER_CRC = ("ChecksumCRC64NVME", "AAAAAAAAAAA="), ("ChecksumCRC64NVME", "BAAAAAAAAAA=")
SHA = ("ChecksumSHA256", "AAAAAAAAAAA=")


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ({}, {"size_bytes": 11}, Likeness.DIFFERENT),
        ({"etag": MD5, "checksums": (CRC,)}, {"size_bytes": 11, "etag": MD5, "checksums": (CRC,)}, Likeness.DIFFERENT),
        ({"checksums": (CRC,), "etag": MD5}, {"checksums": (CRC,), "etag": OTHER_MD5}, Likeness.SAME),
        ({"checksums": (OTHER_CRC, SHA)}, {"checksums": (SHA,)}, Likeness.SAME),
        ({"checksums": (CRC,)}, {"checksums": (OTHER_CRC,)}, Likeness.UNPROVEN),
        ({"checksums": (CRC,)}, {"checksums": (SHA,)}, Likeness.UNPROVEN),
        ({"checksums": (CRC,)}, {}, Likeness.UNPROVEN),
        ({"etag": MD5}, {"etag": MD5}, Likeness.SAME),
        ({"etag": f'{MD5[:-1]}-3"'}, {"etag": f'{MD5[:-1]}-3"'}, Likeness.SAME),
        ({"etag": f'{MD5[:-1]}-3"'}, {"etag": f'{MD5[:-1]}-4"'}, Likeness.UNPROVEN),  # other parts
        ({"etag": MD5}, {"etag": OTHER_MD5}, Likeness.UNPROVEN),  # encryption
        ({"etag": '"1"'}, {"etag": '"1"'}, Likeness.UNPROVEN),  # a version, a file's number: not of the content
        ({"etag": ""}, {"etag": ""}, Likeness.UNPROVEN),
    ],
)
def test_comparison_by_metadata(here: dict[str, Any], there: dict[str, Any], expected: Likeness) -> None:
    assert likeness(replace(INFO, **here), replace(INFO, **there)) is expected


class Short(BytesIO):
    """Reads are short, as from a network."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(3, size) if size and size > 0 else size)


class ShortReads(MemoryObjectStore):
    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        return Short(super().open(key, tail_bytes=tail_bytes).read())


def located(objects: MemoryObjectStore, key: str, body: bytes | None) -> Located:
    if body is not None:
        objects.put_new(key, BytesIO(body), len(body))
    return Located(objects, key)


@settings(deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(1, 9))
def test_any_different_byte_is_found(first: bytes, second: bytes, chunk: int) -> None:
    before, infra.archive.compare_objects._CHUNK_BYTES = infra.archive.compare_objects._CHUNK_BYTES, chunk
    try:
        here, there = located(MemoryObjectStore(), "a", first), located(ShortReads(), "b", second)
        found = compare(here, there)
    finally:
        infra.archive.compare_objects._CHUNK_BYTES = before
    assert (found.state is CopyState.SAME) == (first == second)
    if len(first) == len(second) and first != second:
        at = next(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        assert found.detail == f"the same size, and other bytes from byte {at} on"


def test_absence() -> None:
    here = located(MemoryObjectStore(), "a", b"x")
    assert compare(here, located(MemoryObjectStore(), "b", None)).state is CopyState.NO_COPY
    with pytest.raises(SegmentNotFound):
        compare(located(MemoryObjectStore(), "a", None), here)
