"""Copies of the offset map's pages: their names, their bytes, and which of them are needed. Pure.

    {folder}/00000000000000000000-00000000000000000411       pages from target offset 0 to 411
    {folder}/00000000000000000304-00000000000000000977       the last page of it, longer by now, and the next ones
    {folder}/from-00000000000000000304                       pages before this one were trimmed

A copy has every page from its first offset to its last one, as they were then. A page only grows at its end, so a copy
inside of the range of another one has nothing that the other one has not: it is superseded.

    bytes      version (1), CRC-64/NVME of the rest (8), length of the unpacked records (4), zstd of the records
    a record   length of the key (4), key, length of the value (4), value, as in the map's topic

Integers are big-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from awscrt import checksums

from formats.errors import MalformedEvent
from formats.segment import OffsetRange

VERSION = 1
LARGEST_BYTES = 64 << 20  # unpacked: an object that claims more is damaged
EVERYTHING = 2**63 - 1  # as the start of the first page that was not trimmed: none is left

_HEADER = struct.Struct(">BQI")
_LENGTH = struct.Struct(">I")
_COPY = re.compile(r"(\d{20})-(\d{20})")
_TRIM = re.compile(r"from-(\d{20})")

PageRecord = tuple[bytes, bytes]  # key and value


@dataclass(frozen=True, slots=True)
class MapCopies:
    """What is in the folder of one partition's map."""

    needed: tuple[OffsetRange, ...] = ()  # ranges of target offsets, ascending at both ends
    first_start: int = 0  # pages that start below it were trimmed
    superseded: tuple[str, ...] = ()  # names of copies that another one contains


def copy_name(offsets: OffsetRange) -> str:
    return f"{offsets.start:020d}-{offsets.end:020d}"


def trim_name(first_start: int) -> str:
    return f"from-{first_start:020d}"


def map_copies(names: Iterable[str]) -> MapCopies:
    """`names`: of the objects in one folder; foreign ones are left alone."""
    copies, trims = [], []
    for name in names:
        if match := _COPY.fullmatch(name):
            start, end = int(match[1]), int(match[2])
            if start <= end < EVERYTHING:
                copies.append(OffsetRange(start, end))
        elif match := _TRIM.fullmatch(name):
            trims.append(int(match[1]))
    first_start = max(trims, default=0)
    needed = tuple(_needed(copies, first_start))
    gone = [copy_name(one) for one in copies if one not in needed]
    if first_start < EVERYTHING or copies:  # the last note of a map that is gone goes after its copies
        trims = [one for one in trims if one < first_start]
    return MapCopies(needed, first_start, (*gone, *map(trim_name, trims)))


def _needed(copies: Collection[OffsetRange], first_start: int) -> Iterator[OffsetRange]:
    end = -1
    for one in sorted(copies, key=lambda copy: (copy.start, -copy.end)):
        if one.end > end and one.end >= first_start:
            yield one
            end = one.end


def encode_pages(records: Iterable[PageRecord]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 -- gc reads the names only, and starts without Arrow

    parts = [part for record in records for text in record for part in (_LENGTH.pack(len(text)), text)]
    unpacked = b"".join(parts)
    packed: bytes = pa.compress(unpacked, codec="zstd", asbytes=True)
    rest = _LENGTH.pack(len(unpacked)) + packed
    return _HEADER.pack(VERSION, checksums.crc64nvme(rest), len(unpacked)) + packed


def decode_pages(data: bytes) -> Iterator[PageRecord]:
    """Raises MalformedEvent, also for another version, before the first record."""
    import pyarrow as pa  # noqa: PLC0415 -- as above

    try:
        version, crc, length = _HEADER.unpack_from(data)
        if version != VERSION:
            raise ValueError(f"version {version}, this program reads {VERSION}")
        if checksums.crc64nvme(data[_HEADER.size - _LENGTH.size :]) != crc:
            raise ValueError("its checksum differs")
        if length > LARGEST_BYTES:
            raise ValueError(f"{length} bytes")
        unpacked = pa.decompress(data[_HEADER.size :], decompressed_size=length, codec="zstd", asbytes=True)
        texts = list(_texts(unpacked))
        if len(texts) % 2:
            raise ValueError("a key without a value")
    except (struct.error, ValueError, OSError, pa.ArrowException) as error:
        raise MalformedEvent(f"not a copy of the offset map's pages: {error}") from error
    return ((key, value) for key, value in zip(texts[::2], texts[1::2], strict=True))


def _texts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise ValueError("it is cut")
        yield data[at : at + length]
        at += length
