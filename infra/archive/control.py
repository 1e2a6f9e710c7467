"""Control objects in the object store: claims of archive paths, begins, forks, gaps, quarantined segments, leases."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import BinaryIO

from formats.control.archive_begin import ArchiveBegin, decode_begin, encode_begin
from formats.control.claim import TopicClaim, decode_topic_claim, encode_topic_claim
from formats.control.fork import LogFork, decode_fork, encode_fork
from formats.control.gap import RecordedGap, decode_gap, encode_gap
from formats.control.keys import (
    accepted_gap_key,
    begin_key,
    begins_prefix,
    claim_key,
    claims_prefix,
    control_prefix,
    deeper_fork_key,
    earlier_begin_key,
    earlier_begins_prefix,
    fork_key,
    forks_prefix,
    gap_key,
    gaps_prefix,
    lease_prefix,
    parse_gap_name,
    quarantine_key,
    quarantine_prefix,
    set_aside_key,
)
from formats.control.lease import Lease, decode_lease, encode_lease
from formats.control.quarantine import Quarantined, decode_quarantined, encode_quarantined
from formats.coverage import adjoining
from formats.errors import MalformedEvent, MalformedKey, SegmentExists, SegmentNotFound
from formats.incarnation import Incarnation, later_paths, parse_incarnation
from formats.segment import (
    OffsetRange,
    Segment,
    SourcePartition,
    format_key,
    parse_key,
    partition_number,
    region_prefix,
)
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

LIST_ATTEMPTS = 5  # listings of gaps that another process joins or removes meanwhile


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
class ControlStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    # --- claims of archive paths: see `formats.incarnation` ---

    def claim_of(self, region: str, path: str) -> TopicClaim | None:
        """The claim of an archive path; None when, and only when, it is not claimed."""
        try:
            data = self._read(claim_key(self.prefix, region, path))
        except SegmentNotFound:
            return None
        return decode_topic_claim(data)

    def claim(self, region: str, path: str, claim: TopicClaim) -> TopicClaim:
        """Claim a path. Returns the claim that holds: `claim`, or the one that was there before."""
        key, data = claim_key(self.prefix, region, path), encode_topic_claim(claim)
        try:
            self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            return decode_topic_claim(self._read(key))
        return claim

    def claimed_paths(self, region: str) -> Sequence[str]:
        """Every claimed archive path, by one listing."""
        prefix = claims_prefix(self.prefix, region)
        return [item.key[len(prefix) :] for item in self.objects.list(prefix)]

    def claimed(self, region: str) -> Sequence[Incarnation]:
        """Every incarnation whose path is claimed, by one listing; foreign keys are left out."""
        return _incarnations(self.claimed_paths(region))

    def later_ids(self, region: str, topic: str) -> Sequence[str]:
        """Ids of the incarnations of `topic` except the one with the plain path, by one listing; foreign keys are left
        out."""
        folder = claims_prefix(self.prefix, region)
        listed = self.objects.list(claim_key(self.prefix, region, later_paths(topic)))
        return [one.id for one in _incarnations(item.key[len(folder) :] for item in listed)]

    def has_objects(self, region: str, path: str) -> bool:
        """Whether any object is stored under an archive path, claimed or not, by one request."""
        prefix = f"{region_prefix(self.prefix, region)}{path}/"
        return next(iter(self.objects.list(prefix)), None) is not None

    # --- where archives begin, and where a source's log forked ---

    def begin(self, source: SourcePartition) -> ArchiveBegin | None:
        """The earliest of those recorded. None when, and only when, no begin is recorded: the archive is the
        ancestor's, or the object was lost."""
        folder = earlier_begins_prefix(self.prefix, source)
        earlier = (item.key for item in self.objects.list(folder) if item.key[len(folder) :].isdecimal())
        return self._begin_at(next(earlier, begin_key(self.prefix, source)))

    def first_begin(self, source: SourcePartition) -> ArchiveBegin | None:
        """The one that was recorded first, whether or not there is an earlier one by now."""
        return self._begin_at(begin_key(self.prefix, source))

    def _begin_at(self, key: str) -> ArchiveBegin | None:
        try:
            with _naming(key):
                return decode_begin(self._read(key))
        except SegmentNotFound:
            return None

    def record_begin(self, source: SourcePartition, begin: ArchiveBegin) -> ArchiveBegin:
        """Returns the record that holds: `begin`, or the one that was there before."""
        key, data = begin_key(self.prefix, source), encode_begin(begin)
        try:
            with durable(Step.RECORD_BEGIN):
                self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            with _naming(key):
                return decode_begin(self._read(key))
        return begin

    def lower_begin(self, source: SourcePartition, begin: ArchiveBegin) -> ArchiveBegin:
        """Record an earlier begin, once everything from it to the one before is stored or a recorded gap. Returns the
        record that holds: `begin`, or an earlier one that was there before."""
        before = self.begin(source) or self.record_begin(source, begin)
        if before.offset <= begin.offset:
            return before
        data = encode_begin(begin)
        with durable(Step.LOWER_BEGIN), contextlib.suppress(SegmentExists):
            self.objects.put_new(earlier_begin_key(self.prefix, source, begin.offset), io.BytesIO(data), len(data))
        return begin

    def partitions_with_begin(self, region: str, path: str) -> frozenset[int]:
        """Partitions of an archive path whose begin is recorded, by one listing."""
        return self.begins_of(region, path).partitions

    def begins_of(self, region: str, path: str) -> Begins:
        """The recorded begins of an archive path, by one listing."""
        prefix = begins_prefix(self.prefix, region, path)
        return Begins.of(item.key[len(prefix) :] for item in self.objects.list(prefix))

    def few_begins(self, region: str, *, most: int) -> Mapping[str, Begins] | None:
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

    def few_fork_sources(self, region: str, *, most: int) -> frozenset[SourcePartition] | None:
        """As `fork_sources` of all archive paths; None when the listing has `most` objects or more."""
        return self._few_sources(region, "forks", most)

    def fork_sources(self, region: str, path: str | None = None) -> Sequence[SourcePartition]:
        """Partitions of `region`, or of one archive path in it, with a recorded fork."""
        return self._sources(region, "forks", path)

    def forks(self, source: SourcePartition) -> Sequence[LogFork]:
        """In order of `next_offset`. One listing, and one request for each fork: normally there is none."""
        return [self._fork(source, item.key) for item in self.objects.list(forks_prefix(self.prefix, source))]

    def record_fork(self, fork: LogFork) -> None:
        """Idempotent: a fork at the same offset keeps its first record. A fork that contests more offsets gets a second
        record, since that is new."""
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
            data = self._read(gap_key(self.prefix, gap.source, gap.offsets))
        except SegmentNotFound:  # joined with adjoining gaps since
            return False
        return decode_gap(gap.source, gap.offsets, data).is_accepted

    def gap_ranges(self, source: SourcePartition) -> Sequence[OffsetRange]:
        """Ranges of the gaps of one partition, by one listing, in order of start; foreign keys are left out."""
        return list(self._gap_keys(source))

    def few_gap_ranges(self, region: str, path: str, *, most: int) -> Mapping[int, Sequence[OffsetRange]] | None:
        """As `gap_ranges` of the partitions of an archive path that have any, by one listing; None when it has `most`
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

    def _gap_keys(self, source: SourcePartition) -> Mapping[OffsetRange, str]:
        """The key of each gap's record that holds: of the second one, if there are two."""
        prefix = gaps_prefix(self.prefix, source)
        found: dict[OffsetRange, str] = {}
        for item in self.objects.list(prefix):  # in key order: the second record of a range follows its first
            with contextlib.suppress(MalformedKey):
                found[parse_gap_name(item.key[len(prefix) :])] = item.key
        return found

    def gaps(self, source: SourcePartition) -> Sequence[RecordedGap]:
        """The gaps of one partition in full: one more request for each."""
        for _ in range(LIST_ATTEMPTS - 1):
            with contextlib.suppress(SegmentNotFound):  # joined with adjoining gaps since the listing: list again
                return self._gaps(source)
        return self._gaps(source)

    def _gaps(self, source: SourcePartition) -> Sequence[RecordedGap]:
        return [decode_gap(source, offsets, self._read(key)) for offsets, key in self._gap_keys(source).items()]

    def adjoining_gaps(self, source: SourcePartition, reason: str) -> Sequence[Sequence[RecordedGap]]:
        """Recorded gaps with this reason that adjoin or overlap each other, in groups of two or more. Gaps that an
        operator accepted and gaps that cannot be decoded are left out. One listing, and one request for each gap that
        adjoins another."""
        found: dict[OffsetRange, RecordedGap] = {}
        keys = self._gap_keys(source)
        for group in adjoining(keys):
            for offsets in group if len(group) > 1 else ():
                with contextlib.suppress(MalformedEvent, SegmentNotFound):
                    gap = decode_gap(source, offsets, self._read(keys[offsets]))
                    if gap.reason == reason and not gap.is_accepted:
                        found[offsets] = gap
        return [[found[offsets] for offsets in group] for group in adjoining(found) if len(group) > 1]

    def remove_gaps(self, gaps: Collection[RecordedGap]) -> None:
        """Remove records that a wider one replaces."""
        self.objects.delete_many([gap_key(self.prefix, gap.source, gap.offsets) for gap in gaps])

    def gap_sources(self, region: str, path: str | None = None) -> Sequence[SourcePartition]:
        """Partitions of `region`, or of one archive path in it, with a recorded gap."""
        return self._sources(region, "gaps", path)

    def few_gap_sources(self, region: str, *, most: int) -> frozenset[SourcePartition] | None:
        """As `gap_sources` of all archive paths; None when the listing has `most` objects or more."""
        return self._few_sources(region, "gaps", most)

    # --- quarantined segments ---

    def quarantine(self, segment: Segment, found: Quarantined) -> None:
        """Replaces the record of an earlier object at the same key; otherwise the first record stays."""
        key, data = quarantine_key(self.prefix, segment), encode_quarantined(found)
        with durable(Step.QUARANTINE):
            try:
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except SegmentExists:
                if not decode_quarantined(self._read(key)).is_of(found.stored_at):
                    self.objects.delete_many([key])
                    with contextlib.suppress(SegmentExists):  # an earlier attempt of this put, or another process
                        self.objects.put_new(key, io.BytesIO(data), len(data))

    def quarantined(self, region: str) -> Mapping[Segment, Quarantined]:
        """Segments whose object is the one that was found damaged; not those that were replaced since, or removed. One
        listing, and two requests for each: normally there is none. Foreign keys are left out."""
        prefix = quarantine_prefix(self.prefix, region)
        found = {}
        for item in self.objects.list(prefix):
            with contextlib.suppress(MalformedKey, SegmentNotFound):
                segment = parse_key("", f"{region}/{item.key[len(prefix) :]}")
                one = decode_quarantined(self._read(item.key))
                stored = self.objects.stat(format_key(self.prefix, segment))
                if stored is not None and one.is_of(stored.modified_at):
                    found[segment] = one
        return found

    def end_quarantine(self, segment: Segment) -> None:
        """Remove the record of a segment that is sound again. An absent record is no error."""
        with durable(Step.END_QUARANTINE):
            self.objects.delete_many([quarantine_key(self.prefix, segment)])

    def quarantine_of(self, segment: Segment) -> Quarantined | None:
        """None when, and only when, there is no record. It may be of an earlier object at the segment's key."""
        try:
            return decode_quarantined(self._read(quarantine_key(self.prefix, segment)))
        except SegmentNotFound:
            return None

    def set_aside(self, segment: Segment, digest: str, body: BinaryIO, size_bytes: int) -> str:
        """Keep the bytes of a damaged segment. `digest`: their SHA-256, in hex. Returns the key. Repeating it changes
        nothing."""
        key = set_aside_key(self.prefix, segment, digest)
        with durable(Step.SET_ASIDE), contextlib.suppress(SegmentExists):  # the key names these bytes: they are kept
            self.objects.put_new(key, body, size_bytes)
        return key

    # --- leases ---

    def lease(self, region: str, name: str) -> Lease | None:
        """The last lease, which may have expired. None when it was never taken, or changes its owner right now."""
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
        """Take or renew the lease. Returns the lease that holds: that of `owner`, or another owner's that has not
        expired and whose owner is not dead according to `is_dead`. A lease of a machine whose clock is ahead holds no
        longer than `span` after it was written, by the store's clock."""
        prefix = lease_prefix(self.prefix, region, name)
        while True:
            keys = [item.key for item in self.objects.list(prefix)]
            token = int(keys[-1][len(prefix) :]) if keys else 0
            if keys:
                try:
                    current = decode_lease(token, self._read(keys[-1]))
                except SegmentNotFound:
                    continue  # another process was faster
                if current.owner != owner and current.until > now and not is_dead(current.owner):
                    written_at = self.lease_written_at(region, name, token)
                    if written_at is None:
                        continue  # likewise
                    if written_at + span > now:
                        return replace(current, until=min(current.until, written_at + span))
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
        """Release the lease, if `owner` still holds it. The next token is still higher."""
        self.take_lease(region, name, owner, now=now, span=timedelta(0))

    def lease_written_at(self, region: str, name: str, token: int) -> datetime | None:
        """By the store's clock. None when another owner has taken the lease since."""
        info = self.objects.stat(f"{lease_prefix(self.prefix, region, name)}{token:020d}")
        return None if info is None else info.modified_at

    def _sources(self, region: str, kind: str, path: str | None) -> Sequence[SourcePartition]:
        """Partitions with a control object of this kind, by one listing; foreign keys are left out."""
        prefix = f"{control_prefix(self.prefix, region)}{kind}/"
        listed = self.objects.list(prefix if path is None else f"{prefix}{path}/")
        return _sources(region, (item.key[len(prefix) :] for item in listed))

    def _few_sources(self, region: str, kind: str, most: int) -> frozenset[SourcePartition] | None:
        prefix = f"{control_prefix(self.prefix, region)}{kind}/"
        names = [item.key[len(prefix) :] for item in self.objects.list(prefix, limit=most)]
        return None if len(names) == most else frozenset(_sources(region, names))

    def _read(self, key: str) -> bytes:
        with closing(self.objects.open(key)) as file:
            return file.read()


def _sources(region: str, names: Iterable[str]) -> Sequence[SourcePartition]:
    """The partitions of control objects, by their names below the folder of a kind; foreign ones are left out."""
    found = {tuple(name.split("/")[:2]) for name in names}
    sources = []
    for parts in sorted(found):
        if len(parts) == 2 and (number := partition_number(parts[1])) is not None:
            with contextlib.suppress(MalformedKey):
                sources.append(SourcePartition.of(region, parse_incarnation(parts[0]), number))
    return sources


def _incarnations(paths: Iterable[str]) -> Sequence[Incarnation]:
    found: list[Incarnation] = []
    for path in paths:
        with contextlib.suppress(MalformedKey):
            found.append(parse_incarnation(path))
    return found


@contextlib.contextmanager
def _naming(key: str) -> Iterator[None]:
    """Adds the object's key to MalformedEvent: an operator who restores the object needs it."""
    try:
        yield
    except MalformedEvent as error:
        raise MalformedEvent(f"{key}: {error}") from error
