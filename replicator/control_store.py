"""The control plane's objects in the object store: claimed places and recorded gaps."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from replicator.control import (
    Place,
    RecordedGap,
    control_prefix,
    decode_gap,
    decode_place,
    encode_gap,
    encode_place,
    gap_key,
    gaps_prefix,
    parse_gap_range,
    place_key,
    places_prefix,
)
from replicator.errors import MalformedKey, SegmentExists, SegmentNotFound
from replicator.protocols import ObjectStore
from replicator.segment import OffsetRange, SourcePartition, region_prefix


@dataclass(frozen=True, slots=True)
class ControlStore:
    """As thread safe as `objects`; raises what it raises, and MalformedEvent for an object that says nothing."""

    objects: ObjectStore
    prefix: str

    # --- places: {topic}, or {topic}@{topic id} for a later life ---

    def place(self, region: str, place: str) -> Place | None:
        """None when, and only when, nobody claimed it."""
        try:
            data = self._read(place_key(self.prefix, region, place))
        except SegmentNotFound:
            return None
        return decode_place(data)

    def claim(self, region: str, place: str, claim: Place) -> Place:
        """The claim that stands: `claim`, or the one that was there first."""
        key, data = place_key(self.prefix, region, place), encode_place(claim)
        try:
            self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            return decode_place(self._read(key))
        return claim

    def places(self, region: str) -> Sequence[str]:
        """Every place that was claimed, by one listing."""
        prefix = places_prefix(self.prefix, region)
        return [item.key[len(prefix) :] for item in self.objects.list(prefix)]

    def later_lives(self, region: str, topic: str) -> Sequence[str]:
        """Names of the lives of `topic` that were filed beside its plain place, by one listing."""
        prefix = place_key(self.prefix, region, f"{topic}@")
        return [item.key[len(prefix) :] for item in self.objects.list(prefix)]

    def occupied(self, region: str, place: str) -> bool:
        """Whether anything is stored in a place, claimed or not, by one request."""
        prefix = f"{region_prefix(self.prefix, region)}{place}/"
        return next(iter(self.objects.list(prefix)), None) is not None

    # --- gaps ---

    def record_gap(self, gap: RecordedGap) -> None:
        """Saying the same range twice is harmless: the first record stands."""
        data = encode_gap(gap)
        try:
            self.objects.put_new(gap_key(self.prefix, gap.source, gap.offsets), io.BytesIO(data), len(data))
        except SegmentExists:
            return

    def gap_ranges(self, source: SourcePartition) -> Sequence[OffsetRange]:
        """Recorded for one partition, by one listing, in order of their starts; foreign keys are left out."""
        prefix = gaps_prefix(self.prefix, source)
        return list(self._ranges(prefix))

    def gaps(self, source: SourcePartition) -> Sequence[RecordedGap]:
        """The same with what is known of them: one request more for each."""
        return [
            decode_gap(source, offsets, self._read(gap_key(self.prefix, source, offsets)))
            for offsets in self.gap_ranges(source)
        ]

    def gap_sources(self, region: str) -> Sequence[SourcePartition]:
        """Partitions of `region` for which a gap was recorded."""
        prefix = f"{control_prefix(self.prefix, region)}gaps/"
        found = {tuple(item.key[len(prefix) :].split("/")[:2]) for item in self.objects.list(prefix)}
        sources = []
        for parts in sorted(found):
            if len(parts) == 2 and parts[1].isdecimal():
                topic, _, incarnation = parts[0].partition("@")
                sources.append(SourcePartition(region, topic, int(parts[1]), incarnation))
        return sources

    def _ranges(self, prefix: str) -> Iterator[OffsetRange]:
        for item in self.objects.list(prefix):
            try:
                yield parse_gap_range(item.key[len(prefix) :])
            except MalformedKey:
                continue

    def _read(self, key: str) -> bytes:
        with closing(self.objects.open(key)) as file:
            return file.read()
