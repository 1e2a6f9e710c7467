"""Segments in quarantine: damaged ones, which compaction leaves alone; and their bytes, once they are replaced."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from formats.control.keys import quarantine_key, quarantine_prefix, set_aside_key
from formats.control.quarantine import Quarantined, decode_quarantined, encode_quarantined
from formats.errors import MalformedEvent, MalformedKey, SegmentExists, SegmentNotFound
from formats.segment import Segment, format_key, parse_key
from infra.archive.control_objects import naming, read_object
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True)
class QuarantineStore:
    """As thread safe as `objects`, whose errors it raises."""

    objects: ObjectStore
    prefix: str

    def record(self, segment: Segment, found: Quarantined) -> None:
        """Replaces the record of an earlier object at the same key, and one that cannot be decoded; otherwise the first
        record stays."""
        key, data = quarantine_key(self.prefix, segment), encode_quarantined(found)
        with durable(Step.QUARANTINE):
            try:
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except SegmentExists:
                if not self._is_of(key, found.stored_at):
                    self.objects.delete_many([key])
                    with contextlib.suppress(SegmentExists):  # an earlier attempt of this put, or another process
                        self.objects.put_new(key, io.BytesIO(data), len(data))

    def all(self, region: str) -> Mapping[Segment, Quarantined]:
        """Segments whose object is the one that was found damaged; not those that were replaced since, or removed. One
        listing, and two requests for each: normally there is none. Foreign keys are left out. While a record cannot be
        decoded its segment is in quarantine, whichever object is there: to merge or to delete it may lose records."""
        prefix = quarantine_prefix(self.prefix, region)
        found = {}
        for item in self.objects.list(prefix):
            with contextlib.suppress(MalformedKey, SegmentNotFound):
                segment = parse_key("", f"{region}/{item.key[len(prefix) :]}")
                data = read_object(self.objects, item.key)
                stored = self.objects.stat(format_key(self.prefix, segment))
                if stored is None:
                    continue
                try:
                    with naming(item.key):
                        one = decode_quarantined(data)
                except MalformedEvent as error:
                    one = Quarantined(stored_at=stored.modified_at, reason=str(error), found_at=item.modified_at)
                if one.is_of(stored.modified_at):
                    found[segment] = one
        return found

    def end(self, segment: Segment) -> None:
        """Remove the record of a segment that is sound again. An absent record is no error."""
        with durable(Step.END_QUARANTINE):
            self.objects.delete_many([quarantine_key(self.prefix, segment)])

    def of(self, segment: Segment) -> Quarantined | None:
        """None when, and only when, there is no record. It may be of an earlier object at the segment's key. Raises
        MalformedEvent."""
        key = quarantine_key(self.prefix, segment)
        try:
            with naming(key):
                return decode_quarantined(read_object(self.objects, key))
        except SegmentNotFound:
            return None

    def _is_of(self, key: str, stored_at: datetime) -> bool:
        try:
            return decode_quarantined(read_object(self.objects, key)).is_of(stored_at)
        except (MalformedEvent, SegmentNotFound):  # ended by another process since
            return False

    def set_aside(self, segment: Segment, digest: str, body: BinaryIO, size_bytes: int) -> str:
        """Keep the bytes of a damaged segment. `digest`: their SHA-256, in hex. Returns the key. Repeating it changes
        nothing."""
        key = set_aside_key(self.prefix, segment, digest)
        with durable(Step.SET_ASIDE), contextlib.suppress(SegmentExists):  # the key names these bytes: they are kept
            self.objects.put_new(key, body, size_bytes)
        return key
