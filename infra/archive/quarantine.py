"""Segments in quarantine: damaged ones, which compaction leaves alone; and their bytes, once they are replaced."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from formats.control.keys import quarantine_key, quarantine_prefix, set_aside_key
from formats.control.quarantine import Quarantined, decode_quarantined, encode_quarantined
from formats.errors import MalformedKey, SegmentExists, SegmentNotFound
from formats.segment import Segment, format_key, parse_key
from infra.archive.control_objects import read_object
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True)
class QuarantineStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    def record(self, segment: Segment, found: Quarantined) -> None:
        """Replaces the record of an earlier object at the same key; otherwise the first record stays."""
        key, data = quarantine_key(self.prefix, segment), encode_quarantined(found)
        with durable(Step.QUARANTINE):
            try:
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except SegmentExists:
                if not decode_quarantined(read_object(self.objects, key)).is_of(found.stored_at):
                    self.objects.delete_many([key])
                    with contextlib.suppress(SegmentExists):  # an earlier attempt of this put, or another process
                        self.objects.put_new(key, io.BytesIO(data), len(data))

    def all(self, region: str) -> Mapping[Segment, Quarantined]:
        """Segments whose object is the one that was found damaged; not those that were replaced since, or removed. One
        listing, and two requests for each: normally there is none. Foreign keys are left out."""
        prefix = quarantine_prefix(self.prefix, region)
        found = {}
        for item in self.objects.list(prefix):
            with contextlib.suppress(MalformedKey, SegmentNotFound):
                segment = parse_key("", f"{region}/{item.key[len(prefix) :]}")
                one = decode_quarantined(read_object(self.objects, item.key))
                stored = self.objects.stat(format_key(self.prefix, segment))
                if stored is not None and one.is_of(stored.modified_at):
                    found[segment] = one
        return found

    def end(self, segment: Segment) -> None:
        """Remove the record of a segment that is sound again. An absent record is no error."""
        with durable(Step.END_QUARANTINE):
            self.objects.delete_many([quarantine_key(self.prefix, segment)])

    def of(self, segment: Segment) -> Quarantined | None:
        """None when, and only when, there is no record. It may be of an earlier object at the segment's key."""
        try:
            return decode_quarantined(read_object(self.objects, quarantine_key(self.prefix, segment)))
        except SegmentNotFound:
            return None

    def set_aside(self, segment: Segment, digest: str, body: BinaryIO, size_bytes: int) -> str:
        """Keep the bytes of a damaged segment. `digest`: their SHA-256, in hex. Returns the key. Repeating it changes
        nothing."""
        key = set_aside_key(self.prefix, segment, digest)
        with durable(Step.SET_ASIDE), contextlib.suppress(SegmentExists):  # the key names these bytes: they are kept
            self.objects.put_new(key, body, size_bytes)
        return key
