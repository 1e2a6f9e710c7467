"""Large control objects as bytes: gzip'd canonical JSON, the same bytes for the same value."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from datetime import datetime

from formats.codec import dump, load, malformed, parse_time
from formats.errors import MalformedEvent

LARGEST_BYTES = 256 << 20  # unpacked: an object that claims more is damaged


def pack(message: Mapping[str, object]) -> bytes:
    return gzip.compress(dump(message), mtime=0)


def unpack(what: str, data: bytes) -> bytes:
    """The JSON text. Raises MalformedEvent, "not {what}: …"."""
    try:
        packed = zlib.decompressobj(wbits=31)
        text = packed.decompress(data, LARGEST_BYTES)
    except zlib.error as error:
        raise MalformedEvent(f"not {what}: {error}") from error
    if packed.unconsumed_tail or not packed.eof:
        raise MalformedEvent(f"not {what}: {len(data)} bytes that do not unpack to a whole one")
    return text


def observed_at(data: bytes) -> datetime:
    """When what a generation holds was observed, of whichever kind. Raises MalformedEvent."""
    what = "a generation of a control object"
    text = unpack(what, data)
    with malformed(what, text):
        return parse_time(load(text)["observed_at"])
