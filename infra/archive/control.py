"""The control plane's objects in the object store: claimed places, recorded gaps, quarantined segments, leases."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.control.archive_begin import ArchiveBegin, decode_begin, encode_begin
from formats.control.claim import TopicClaim, decode_place, encode_place
from formats.control.fork import LogFork, decode_fork, encode_fork
from formats.control.gap import RecordedGap, decode_gap, encode_gap
from formats.control.keys import (
    begin_key,
    begins_prefix,
    control_prefix,
    deeper_fork_key,
    fork_key,
    forks_prefix,
    gap_key,
    gaps_prefix,
    lease_prefix,
    place_key,
    places_prefix,
    quarantine_key,
    quarantine_prefix,
)
from formats.control.lease import Lease, decode_lease, encode_lease
from formats.control.quarantine import Quarantined, decode_quarantined, encode_quarantined
from formats.coverage import adjoining
from formats.errors import MalformedEvent, MalformedKey, SegmentExists, SegmentNotFound
from formats.incarnation import Incarnation, later_paths, parse_incarnation
from formats.segment import OffsetRange, Segment, SourcePartition, parse_key, parse_offsets, region_prefix
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

LOOKS = 5  # at what somebody else joins or removes meanwhile


@dataclass(frozen=True, slots=True)
class ControlStore:
    """As thread safe as `objects`; raises what it raises, and MalformedEvent for an object that says nothing."""

    objects: ObjectStore
    prefix: str

    # --- claims of archive paths: see `formats.incarnation` ---

    def place(self, region: str, place: str) -> TopicClaim | None:
        """None when, and only when, nobody claimed it."""
        try:
            data = self._read(place_key(self.prefix, region, place))
        except SegmentNotFound:
            return None
        return decode_place(data)

    def claim(self, region: str, place: str, claim: TopicClaim) -> TopicClaim:
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

    def claimed(self, region: str) -> Sequence[Incarnation]:
        """Every incarnation whose path was claimed, by one listing; foreign keys are left out."""
        return _incarnations(self.places(region))

    def later_ids(self, region: str, topic: str) -> Sequence[str]:
        """Ids of the incarnations of `topic` that have a path beside its plain one, by one listing; foreign keys are
        left out."""
        folder = places_prefix(self.prefix, region)
        listed = self.objects.list(place_key(self.prefix, region, later_paths(topic)))
        return [one.id for one in _incarnations(item.key[len(folder) :] for item in listed)]

    def occupied(self, region: str, place: str) -> bool:
        """Whether anything is stored in a place, claimed or not, by one request."""
        prefix = f"{region_prefix(self.prefix, region)}{place}/"
        return next(iter(self.objects.list(prefix)), None) is not None

    # --- where archives begin, and where a source's log forked ---

    def begin(self, source: SourcePartition) -> ArchiveBegin | None:
        """None when, and only when, nothing says so: the ancestor's archive, or a lost object."""
        key = begin_key(self.prefix, source)
        try:
            with _naming(key):
                return decode_begin(self._read(key))
        except SegmentNotFound:
            return None

    def record_begin(self, source: SourcePartition, begin: ArchiveBegin) -> ArchiveBegin:
        """The record that stands: `begin`, or the one that was there first."""
        key, data = begin_key(self.prefix, source), encode_begin(begin)
        try:
            with durable(Step.RECORD_BEGIN):
                self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            with _naming(key):
                return decode_begin(self._read(key))
        return begin

    def begun(self, region: str, place: str) -> frozenset[int]:
        """Partitions of a place whose begin was recorded, by one listing."""
        prefix = begins_prefix(self.prefix, region, place)
        names = (item.key[len(prefix) :] for item in self.objects.list(prefix))
        return frozenset(int(name) for name in names if name.isdecimal())

    def fork_sources(self, region: str, place: str | None = None) -> Sequence[SourcePartition]:
        """Partitions of `region`, or of one place in it, of whose log a fork was recorded."""
        return self._sources(region, "forks", place)

    def forks(self, source: SourcePartition) -> Sequence[LogFork]:
        """In order of `next_offset`; by one listing, and one request for each: there should be none."""
        return [self._fork(source, item.key) for item in self.objects.list(forks_prefix(self.prefix, source))]

    def record_fork(self, fork: LogFork) -> None:
        """Recording a fork at the same offset again is harmless: the first record stands. One that contests more gets
        a record beside it, since that is news."""
        key, data = fork_key(self.prefix, fork), encode_fork(fork)
        with durable(Step.RECORD_FORK):
            try:
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except SegmentExists:
                if fork.contested.start < self._fork(fork.source, key).contested.start:
                    with contextlib.suppress(SegmentExists):
                        self.objects.put_new(deeper_fork_key(self.prefix, fork), io.BytesIO(data), len(data))

    def _fork(self, source: SourcePartition, key: str) -> LogFork:
        with _naming(key):
            return decode_fork(source, self._read(key))

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
        for _ in range(LOOKS - 1):
            with contextlib.suppress(SegmentNotFound):  # joined with its neighbours since it was listed: list again
                return self._gaps(source)
        return self._gaps(source)

    def _gaps(self, source: SourcePartition) -> Sequence[RecordedGap]:
        return [
            decode_gap(source, offsets, self._read(gap_key(self.prefix, source, offsets)))
            for offsets in self.gap_ranges(source)
        ]

    def adjoining_gaps(self, source: SourcePartition, reason: str) -> Sequence[Sequence[RecordedGap]]:
        """Recorded gaps of that reason that adjoin or overlap each other, in groups of two or more; those that an
        operator accepted and those that cannot be read are left out. One listing, and one request for each gap that
        has a neighbour."""
        found: dict[OffsetRange, RecordedGap] = {}
        for group in adjoining(self.gap_ranges(source)):
            for offsets in group if len(group) > 1 else ():
                with contextlib.suppress(MalformedEvent, SegmentNotFound):
                    gap = decode_gap(source, offsets, self._read(gap_key(self.prefix, source, offsets)))
                    if gap.reason == reason and not gap.is_accepted:
                        found[offsets] = gap
        return [[found[offsets] for offsets in group] for group in adjoining(found) if len(group) > 1]

    def remove_gaps(self, gaps: Collection[RecordedGap]) -> None:
        """Remove records that a wider one has made superfluous."""
        self.objects.delete_many([gap_key(self.prefix, gap.source, gap.offsets) for gap in gaps])

    def gap_sources(self, region: str, place: str | None = None) -> Sequence[SourcePartition]:
        """Partitions of `region`, or of one place in it, for which a gap was recorded."""
        return self._sources(region, "gaps", place)

    # --- segments that are not what they say ---

    def quarantine(self, segment: Segment, found: Quarantined) -> None:
        """A record of another object that was stored at this key before gives way; else the first record stands."""
        key, data = quarantine_key(self.prefix, segment), encode_quarantined(found)
        with durable(Step.QUARANTINE):
            try:
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except SegmentExists:
                if decode_quarantined(self._read(key)).stored_at != found.stored_at:
                    self.objects.delete_many([key])
                    self.objects.put_new(key, io.BytesIO(data), len(data))

    def quarantined(self, region: str) -> Mapping[Segment, Quarantined]:
        """By one listing, and one request for each: there should be none. Foreign keys are left out."""
        prefix = quarantine_prefix(self.prefix, region)
        found = {}
        for item in self.objects.list(prefix):
            with contextlib.suppress(MalformedKey, SegmentNotFound):
                segment = parse_key("", f"{region}/{item.key[len(prefix) :]}")
                found[segment] = decode_quarantined(self._read(item.key))
        return found

    # --- leases ---

    def lease(self, region: str, name: str) -> Lease | None:
        """The last one, which may be over. None when nobody ever had it, or when it changes hands just now."""
        prefix = lease_prefix(self.prefix, region, name)
        keys = [item.key for item in self.objects.list(prefix)]
        try:
            return decode_lease(int(keys[-1][len(prefix) :]), self._read(keys[-1])) if keys else None
        except SegmentNotFound:
            return None

    def take_lease(
        self,
        region: str,
        name: str,
        owner: str,
        *,
        now: datetime,
        span: timedelta,
        is_dead: Callable[[str], bool] = lambda _: False,
    ) -> Lease:
        """The lease that holds: ours (`owner` is), new or for longer, or another's that has not expired and who is not
        known to be dead."""
        prefix = lease_prefix(self.prefix, region, name)
        while True:
            keys = [item.key for item in self.objects.list(prefix)]
            token = int(keys[-1][len(prefix) :]) if keys else 0
            if keys:
                try:
                    standing = decode_lease(token, self._read(keys[-1]))
                except SegmentNotFound:
                    continue  # another one was faster
                if standing.owner != owner and standing.until > now and not is_dead(standing.owner):
                    return standing
            lease = Lease(token=token + 1, owner=owner, until=now + span)
            data = encode_lease(lease)
            try:
                with durable(Step.TAKE_LEASE):
                    self.objects.put_new(f"{prefix}{lease.token:020d}", io.BytesIO(data), len(data))
            except SegmentExists:
                continue
            self.objects.delete_many(keys)
            return lease

    def end_lease(self, region: str, name: str, owner: str, *, now: datetime) -> None:
        """Give it back, if it still is ours; tokens go on growing."""
        self.take_lease(region, name, owner, now=now, span=timedelta(0))

    def lease_written_at(self, region: str, name: str, token: int) -> datetime | None:
        """By the store's clock. None when the lease is another's by now."""
        info = self.objects.stat(f"{lease_prefix(self.prefix, region, name)}{token:020d}")
        return None if info is None else info.modified_at

    def _sources(self, region: str, kind: str, place: str | None) -> Sequence[SourcePartition]:
        """Partitions below which an object of this kind lies, by one listing; foreign keys are left out."""
        prefix = f"{control_prefix(self.prefix, region)}{kind}/"
        listed = self.objects.list(prefix if place is None else f"{prefix}{place}/")
        found = {tuple(item.key[len(prefix) :].split("/")[:2]) for item in listed}
        sources = []
        for parts in sorted(found):
            if len(parts) == 2 and parts[1].isdecimal():
                with contextlib.suppress(MalformedKey):
                    sources.append(SourcePartition.of(region, parse_incarnation(parts[0]), int(parts[1])))
        return sources

    def _ranges(self, prefix: str) -> Iterator[OffsetRange]:
        for item in self.objects.list(prefix):
            try:
                yield parse_offsets(item.key[len(prefix) :])
            except MalformedKey:
                continue

    def _read(self, key: str) -> bytes:
        with closing(self.objects.open(key)) as file:
            return file.read()


def _incarnations(paths: Iterable[str]) -> Sequence[Incarnation]:
    found: list[Incarnation] = []
    for path in paths:
        with contextlib.suppress(MalformedKey):
            found.append(parse_incarnation(path))
    return found


@contextlib.contextmanager
def _naming(key: str) -> Iterator[None]:
    """What cannot be read is for an operator to restore, who has to know which object it is."""
    try:
        yield
    except MalformedEvent as error:
        raise MalformedEvent(f"{key}: {error}") from error
