"""Whether an object and its copy in another bucket are the same: by the stores' metadata, else by reading both.

A key that exists elsewhere proves nothing: the object there may be truncated, foreign, or damaged at the same size.

    sizes differ                                        different
    the same checksum, by the same algorithm            same
    the same ETag, of a form that S3 computes from bytes  same
    anything else                                       unproven: read both

A different ETag proves nothing: it depends on the part size and on encryption. A different checksum is confirmed by
reading, since for a multipart upload some stores compute it over the parts.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from enum import Enum, auto
from typing import BinaryIO

from formats.errors import SegmentNotFound
from infra.contracts.storage import ObjectInfo, ObjectStore

_CHUNK_BYTES = 1 << 20
_OF_BYTES = re.compile(r'"?[0-9a-f]{32}(-[0-9]+)?"?')  # an MD5 of the content, or of its parts' MD5s


class Likeness(Enum):
    SAME = auto()
    DIFFERENT = auto()
    UNPROVEN = auto()


class CopyState(Enum):
    SAME = auto()
    DIFFERENT = auto()
    NO_COPY = auto()


@dataclass(frozen=True, slots=True)
class Located:
    """An object's key in a store."""

    objects: ObjectStore
    key: str


@dataclass(frozen=True, slots=True)
class ObjectComparison:
    state: CopyState
    detail: str = ""  # how they differ


def likeness(original: ObjectInfo, copy: ObjectInfo) -> Likeness:
    """Compare by metadata from listings, or from `stat`, which includes checksums."""
    if original.size_bytes != copy.size_bytes:
        return Likeness.DIFFERENT
    theirs = dict(copy.checksums)
    if any(theirs.get(algorithm) == checksum for algorithm, checksum in original.checksums):
        return Likeness.SAME
    if original.etag == copy.etag and _OF_BYTES.fullmatch(original.etag):
        return Likeness.SAME
    return Likeness.UNPROVEN


def sizes_differ(original: ObjectInfo, copy: ObjectInfo) -> str:
    return f"{original.size_bytes} bytes here, {copy.size_bytes} there"


def compare(original: Located, copy: Located) -> ObjectComparison:
    """Raises SegmentNotFound when the original is gone, and StoreUnavailable."""
    here, there = original.objects.stat(original.key), copy.objects.stat(copy.key)
    if here is None:
        raise SegmentNotFound(original.key)
    if there is None:
        return ObjectComparison(CopyState.NO_COPY)
    match likeness(here, there):
        case Likeness.SAME:
            return ObjectComparison(CopyState.SAME)
        case Likeness.DIFFERENT:
            return ObjectComparison(CopyState.DIFFERENT, sizes_differ(here, there))
        case Likeness.UNPROVEN:
            return _compare_bytes(original, copy)


def _compare_bytes(original: Located, copy: Located) -> ObjectComparison:
    with closing(original.objects.open(original.key)) as here:
        try:
            there = copy.objects.open(copy.key)
        except SegmentNotFound:
            return ObjectComparison(CopyState.NO_COPY)
        with closing(there):
            at = _first_difference(here, there)
    if at is None:
        return ObjectComparison(CopyState.SAME)
    return ObjectComparison(CopyState.DIFFERENT, f"the same size, and other bytes from byte {at} on")


def _first_difference(first: BinaryIO, second: BinaryIO) -> int | None:
    """Position of the first byte that differs, or at which one file ends; None when the files are equal."""
    at = 0
    while True:
        ours, theirs = _read(first), _read(second)
        if ours != theirs:
            pairs = zip(ours, theirs, strict=False)
            return at + next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
        if not ours:
            return None
        at += len(ours)


def _read(file: BinaryIO) -> bytes:
    """Read a full chunk, except the last: a single read from the network may be short."""
    parts: list[bytes] = []
    left = _CHUNK_BYTES
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
