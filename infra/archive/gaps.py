"""Recorded gaps: offsets that the source lost, that retention removed, or that an operator accepted as missing."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from formats import coverage
from formats.control.gap import RecordedGap, decode_gap, encode_gap
from formats.control.keys import accepted_gap_key, control_prefix, gap_key, gaps_prefix, parse_gap_name
from formats.errors import MalformedEvent, MalformedKey, SegmentExists, SegmentNotFound
from formats.segment import OffsetRange, SourcePartition, partition_number
from infra.archive.control_objects import few_sources, naming, read_object, sources_of
from infra.contracts.storage import ObjectStore

LIST_ATTEMPTS = 5  # listings of gaps that another process joins or removes meanwhile


@dataclass(frozen=True, slots=True)
class GapStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    def record(self, gap: RecordedGap) -> None:
        """Idempotent: a range keeps its first record. What an operator accepts after it was recorded for another reason
        gets a second record, which holds from then on."""
        key, data = gap_key(self.prefix, gap.source, gap.offsets), encode_gap(gap)
        try:
            self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            if gap.is_accepted and not self._is_accepted(gap):
                key = accepted_gap_key(self.prefix, gap.source, gap.offsets)
                with contextlib.suppress(SegmentExists):
                    self.objects.put_new(key, io.BytesIO(data), len(data))

    def _is_accepted(self, gap: RecordedGap) -> bool:
        """Whether the first record of this range is of an acceptance."""
        try:
            return self._at(gap.source, gap.offsets, gap_key(self.prefix, gap.source, gap.offsets)).is_accepted
        except SegmentNotFound:  # joined with adjoining gaps since
            return False

    def _at(self, source: SourcePartition, offsets: OffsetRange, key: str) -> RecordedGap:
        with naming(key):
            return decode_gap(source, offsets, read_object(self.objects, key))

    def ranges(self, source: SourcePartition) -> Sequence[OffsetRange]:
        """Ranges of the gaps of one partition, by one listing, in order of start; foreign keys are left out."""
        return list(self._keys(source))

    def few_ranges(self, region: str, path: str, *, most: int) -> Mapping[int, Sequence[OffsetRange]] | None:
        """As `ranges` of the partitions of an archive path that have any, by one listing; None when it has `most`
        objects or more."""
        prefix = f"{control_prefix(self.prefix, region)}gaps/{path}/"
        names = [item.key[len(prefix) :] for item in self.objects.list(prefix, limit=most)]
        if len(names) == most:
            return None
        found: dict[int, dict[OffsetRange, None]] = {}  # a range may have two records
        for name in names:
            number, _, rest = name.partition("/")
            if (partition := partition_number(number)) is not None:
                with contextlib.suppress(MalformedKey):
                    found.setdefault(partition, {})[parse_gap_name(rest)] = None
        return {number: list(ranges) for number, ranges in found.items()}

    def _keys(self, source: SourcePartition) -> Mapping[OffsetRange, str]:
        """The key of each gap's record that holds: of the second one, if there are two."""
        prefix = gaps_prefix(self.prefix, source)
        found: dict[OffsetRange, str] = {}
        for item in self.objects.list(prefix):  # in key order: the second record of a range follows its first
            with contextlib.suppress(MalformedKey):
                found[parse_gap_name(item.key[len(prefix) :])] = item.key
        return found

    def of(self, source: SourcePartition) -> Sequence[RecordedGap]:
        """The gaps of one partition in full: one more request for each."""
        for _ in range(LIST_ATTEMPTS - 1):
            with contextlib.suppress(SegmentNotFound):  # joined with adjoining gaps since the listing: list again
                return self._read(source)
        return self._read(source)

    def _read(self, source: SourcePartition) -> Sequence[RecordedGap]:
        return [self._at(source, offsets, key) for offsets, key in self._keys(source).items()]

    def adjoining(self, source: SourcePartition, reason: str) -> Sequence[Sequence[RecordedGap]]:
        """Recorded gaps with this reason that adjoin or overlap each other, in groups of two or more. Gaps that an
        operator accepted and gaps that cannot be decoded are left out. One listing, and one request for each gap that
        adjoins another."""
        found: dict[OffsetRange, RecordedGap] = {}
        keys = self._keys(source)
        for group in coverage.adjoining(keys):
            for offsets in group if len(group) > 1 else ():
                with contextlib.suppress(MalformedEvent, SegmentNotFound):
                    gap = self._at(source, offsets, keys[offsets])
                    if gap.reason == reason and not gap.is_accepted:
                        found[offsets] = gap
        return [[found[offsets] for offsets in group] for group in coverage.adjoining(found) if len(group) > 1]

    def losses_within(self, source: SourcePartition, covered: Collection[OffsetRange]) -> Sequence[RecordedGap]:
        """Recorded losses of which `covered` contains every offset. Gaps that cannot be decoded are left out. One
        listing, and one request for each gap within."""
        found = []
        for offsets, key in self._keys(source).items():
            if not coverage.uncovered(covered, offsets):
                with contextlib.suppress(MalformedEvent, SegmentNotFound):
                    found.append(decode_gap(source, offsets, read_object(self.objects, key)))
        return [gap for gap in found if gap.is_loss]

    def remove(self, gaps: Collection[RecordedGap]) -> None:
        """Remove records that a wider one replaces, or that are not true any more."""
        self.objects.delete_many([gap_key(self.prefix, gap.source, gap.offsets) for gap in gaps])

    def sources(self, region: str, path: str | None = None) -> Sequence[SourcePartition]:
        """Partitions of `region`, or of one archive path in it, with a recorded gap."""
        return sources_of(self.objects, self.prefix, region, "gaps", path)

    def few_sources(self, region: str, *, most: int) -> frozenset[SourcePartition] | None:
        """As `sources` of all archive paths; None when the listing has `most` objects or more."""
        return few_sources(self.objects, self.prefix, region, "gaps", most)
