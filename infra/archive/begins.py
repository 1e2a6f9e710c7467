"""Where the archives of partitions begin."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from formats.control.archive_begin import ArchiveBegin, decode_begin, encode_begin
from formats.control.keys import begin_key, begins_prefix, earlier_begin_key, earlier_begins_prefix
from formats.errors import SegmentExists, SegmentNotFound
from formats.segment import SourcePartition
from infra.archive.control_objects import naming, read_object
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True)
class Begins:
    """Which partitions of an archive path have a recorded begin."""

    partitions: frozenset[int] = frozenset()
    lowered: frozenset[int] = frozenset()  # with an earlier begin, which holds

    @staticmethod
    def of(names: Iterable[str]) -> Begins:
        """From names of objects below the path; foreign ones are left out."""
        parts = [name.split("/") for name in names]
        return Begins(
            frozenset(int(p[0]) for p in parts if len(p) == 1 and p[0].isdecimal()),
            frozenset(int(p[0]) for p in parts if len(p) == 2 and p[0].isdecimal() and p[1].isdecimal()),
        )


@dataclass(frozen=True, slots=True)
class BeginStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    def of(self, source: SourcePartition) -> ArchiveBegin | None:
        """The earliest of those recorded. None when, and only when, no begin is recorded: the archive is the
        ancestor's, or the object was lost."""
        folder = earlier_begins_prefix(self.prefix, source)
        earlier = (item.key for item in self.objects.list(folder) if item.key[len(folder) :].isdecimal())
        return self._begin_at(next(earlier, begin_key(self.prefix, source)))

    def first_of(self, source: SourcePartition) -> ArchiveBegin | None:
        """The one that was recorded first, whether or not there is an earlier one by now."""
        return self._begin_at(begin_key(self.prefix, source))

    def _begin_at(self, key: str) -> ArchiveBegin | None:
        try:
            with naming(key):
                return decode_begin(read_object(self.objects, key))
        except SegmentNotFound:
            return None

    def record(self, source: SourcePartition, begin: ArchiveBegin) -> ArchiveBegin:
        """Returns the record that holds: `begin`, or the one that was there before."""
        key, data = begin_key(self.prefix, source), encode_begin(begin)
        try:
            with durable(Step.RECORD_BEGIN):
                self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            with naming(key):
                return decode_begin(read_object(self.objects, key))
        return begin

    def lower(self, source: SourcePartition, begin: ArchiveBegin) -> ArchiveBegin:
        """Record an earlier begin, once everything from it to the one before is stored or a recorded gap. Returns the
        record that holds: `begin`, or an earlier one that was there before."""
        before = self.of(source) or self.record(source, begin)
        if before.offset <= begin.offset:
            return before
        data = encode_begin(begin)
        with durable(Step.LOWER_BEGIN), contextlib.suppress(SegmentExists):
            self.objects.put_new(earlier_begin_key(self.prefix, source, begin.offset), io.BytesIO(data), len(data))
        return begin

    def partitions(self, region: str, path: str) -> frozenset[int]:
        """Partitions of an archive path whose begin is recorded, by one listing."""
        return self.of_path(region, path).partitions

    def of_path(self, region: str, path: str) -> Begins:
        """The recorded begins of an archive path, by one listing."""
        prefix = begins_prefix(self.prefix, region, path)
        return Begins.of(item.key[len(prefix) :] for item in self.objects.list(prefix))

    def few(self, region: str, *, most: int) -> Mapping[str, Begins] | None:
        """The recorded begins of every archive path that has any, by one listing; None when it has `most` objects or
        more."""
        prefix = begins_prefix(self.prefix, region)
        keys = [item.key[len(prefix) :] for item in self.objects.list(prefix, limit=most)]
        if len(keys) == most:
            return None
        names: dict[str, list[str]] = {}
        for key in keys:
            path, _, name = key.partition("/")
            names.setdefault(path, []).append(name)
        return {path: Begins.of(some) for path, some in names.items()}
