"""Looks up what the archive holds of partitions that are about to be read, with as few requests as possible.

Control objects are listed once for all topics of a region, else once for all partitions of an archive path; so are the
segments of a path. Both only as long as that costs no more requests than it saves: a longer listing is abandoned, and
each of its parts is listed by itself. A partition's segments are listed from the committed offset on if the group has
one, else whole, reduced to the ranges that are covered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice

from egress.start.choice import LastRecord
from egress.topics.claims import Blocked
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.errors import CorruptSegment, DataError, SegmentNotFound
from formats.forks import unresolved
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.begins import Begins
from infra.archive.forward_listing import ahead, all_ahead, covered

PAGE = 1000  # keys per list request
SIDE_BY_SIDE = 8  # listings of single partitions that run in parallel, while that of a whole path is sequential
FOOTERS = 3  # read at most to find the last record


@dataclass(frozen=True, slots=True)
class ArchivedSegments:
    """What the archive holds of one partition."""

    infos: Collection[SegmentInfo] = ()  # segments that end at or after `known_from`
    known_from: int = 0
    extent: Collection[OffsetRange] = ()  # ranges of all segments, when `infos` are not all of them
    is_whole: bool = True  # False: nothing is known of segments that end before `known_from`
    gaps: Collection[OffsetRange] = ()  # recorded gaps, for any reason
    details: Collection[RecordedGap] = ()  # the gap records; only where there is a fork
    forks: Sequence[LogFork] = ()
    has_begin: bool = False
    is_begin_lowered: bool = False  # an earlier begin was recorded since
    unreadable: str = ""  # why its control objects cannot be read; all fields above are invalid then

    @property
    def stored(self) -> list[OffsetRange]:
        """Offset ranges that segments cover, as far as they are known."""
        return [*self.extent, *(info.segment.offsets for info in self.infos)]

    @property
    def is_unknown(self) -> bool:
        """Whether nothing of the partition was ever archived, and no begin of its archive was recorded."""
        return not (self.has_begin or self.stored or self.gaps or self.forks)

    @property
    def waiting(self) -> Sequence[LogFork]:
        """Forks of its log that an operator has not resolved."""
        return unresolved(self.forks, self.details, self.stored) if self.forks else ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """Which partitions of a region have control objects, by archive path; None: too many, each path is listed by
    itself."""

    begins: Mapping[str, Begins] | None = None
    gaps: Collection[SourcePartition] | None = None
    forks: Collection[SourcePartition] | None = None


@dataclass(frozen=True, slots=True)
class ArchiveLookup:
    """As thread safe as the stores. Raises what they raise."""

    archive: Archive

    def recorded(self, region: str, topics: int, pool: Executor) -> Recorded:
        """What is recorded in the region, for a lookup of so many topics: with few, nothing is listed. Requests run in
        parallel on `pool`, which must not be the pool that this runs on."""
        most = PAGE * (topics // 4)  # in the time that it takes to list so many paths in parallel
        if not most:
            return Recorded()
        control = self.archive.control
        begins = pool.submit(control.begins.few, region, most=most)
        gaps = pool.submit(control.gaps.few_sources, region, most=most)
        forks = pool.submit(control.forks.few_sources, region, most=most)
        return Recorded(begins.result(), gaps.result(), forks.result())

    def control_objects(
        self, sources: Sequence[SourcePartition], recorded: Recorded
    ) -> Mapping[SourcePartition, ArchivedSegments]:
        """The control objects of partitions that share an archive path."""
        region, path, control = sources[0].region, sources[0].path, self.archive.control
        begins = (
            control.begins.of_path(region, path) if recorded.begins is None else recorded.begins.get(path, Begins())
        )
        with_gaps = recorded.gaps if recorded.gaps is not None else set(control.gaps.sources(region, path))
        with_forks = recorded.forks if recorded.forks is not None else set(control.forks.sources(region, path))
        found: dict[SourcePartition, ArchivedSegments] = {}
        for source in sources:
            try:
                found[source] = ArchivedSegments(
                    gaps=control.gaps.ranges(source) if source in with_gaps else (),
                    has_begin=source.partition in begins.partitions,
                    is_begin_lowered=source.partition in begins.lowered,
                    forks=control.forks.of(source) if source in with_forks else (),
                    details=control.gaps.of(source) if source in with_gaps and source in with_forks else (),
                )
            except DataError as error:  # affects this partition only: the others can still begin
                found[source] = ArchivedSegments(unreadable=str(error))
        return found

    def segments(self, sources: Sequence[SourcePartition]) -> Mapping[SourcePartition, Sequence[SegmentInfo]] | None:
        """Segments of partitions that share an archive path, by one listing; None when it would take too many
        requests."""
        most = PAGE * max(len(sources) // SIDE_BY_SIDE, 1)
        listed = list(islice(self.archive.segments.walk(sources[0].region, sources[0].path), most))
        if len(listed) == most:
            return None
        found: dict[SourcePartition, list[SegmentInfo]] = {}
        for info in listed:
            found.setdefault(info.segment.source, []).append(info)
        return found

    def of_partition(self, source: SourcePartition, known: ArchivedSegments, position: int | None) -> ArchivedSegments:
        """`known` with the segments of one partition. `position`: the offset that the group committed, if its metadata
        says where the archive begins: what lies before it may be left out then."""
        if position is None or known.forks:
            return self.whole(source, known)
        known_from = max(position - 1, 0)
        found = ahead(self.archive.segments, source, known_from)
        if found.is_cut:  # the group's offset was reset far back
            return self.whole(source, known)
        return replace(known, infos=found.infos, known_from=known_from, is_whole=False)

    def whole(self, source: SourcePartition, known: ArchivedSegments) -> ArchivedSegments:
        """`known` with the ranges of all stored segments. Lists every key of the partition once; keeps no segment."""
        extent = covered(self.archive.segments, source)
        return replace(known, infos=(), known_from=extent.next_offset or 0, extent=extent.runs, is_whole=True)

    def beyond(self, source: SourcePartition, known: ArchivedSegments, offset: int) -> Sequence[Segment]:
        """All segments that end at or after `offset`, ordered by level and start."""
        if known.known_from > offset:
            return [info.segment for info in all_ahead(self.archive.segments, source, offset, limit=None).infos]
        return [info.segment for info in known.infos if info.segment.offsets.end >= offset]

    def has_all(self, segments: Iterable[Segment]) -> bool:
        return all(self.archive.segments.stat(segment) is not None for segment in segments)

    def are_sound(self, segments: Iterable[Segment]) -> bool:
        """Whether all records of these segments can be decoded, which are read for it; also when one is gone by now."""
        try:
            for segment in segments:
                with self.archive.open(segment) as reader:
                    for _ in reader.batches():
                        pass
        except CorruptSegment:
            return False
        except SegmentNotFound:
            pass
        return True

    def last_record(
        self, source: SourcePartition, known: ArchivedSegments, next_offset: int
    ) -> LastRecord | Blocked | None:
        """The last record before `next_offset`, if everything between is covered. None when the archive does not hold
        it, or when the FOOTERS segments before hold no record. Blocked when a segment cannot be read: it may know
        something of the log."""
        wanted, gone = next_offset, ""
        for _ in range(FOOTERS):
            info = self._covering(source, known, wanted - 1)
            if info is None:
                return None
            if info.is_frozen:
                return Blocked(
                    f"{_unreadable(info.segment)}: its storage class is {info.storage_class}. Have the store make it "
                    "readable; this is repeated automatically"
                )
            try:
                footer = self.archive.footer(info.segment)
            except CorruptSegment as error:
                return Blocked(
                    f"{_unreadable(info.segment)}: {error}. Put a good copy in its place: an earlier version of the "
                    "object, or that of another bucket; or remove it: what the source still has of it is archived again"
                )
            except SegmentNotFound as error:
                gone = f"{_unreadable(info.segment)}: {error}, and others before it; this is repeated automatically"
                known = replace(known, known_from=next_offset)  # merged since it was listed: list again
                continue
            if footer.last_offset is not None:
                if footer.last_offset >= next_offset:
                    return None
                return LastRecord(footer.last_offset, footer.origin.last_leader_epoch)
            wanted, gone = info.segment.offsets.start, ""
        return Blocked(gone) if gone else None

    def _covering(self, source: SourcePartition, known: ArchivedSegments, offset: int) -> SegmentInfo | None:
        """The last segment that covers `offset`; segments that can be read at once are preferred."""
        if offset < 0:
            return None
        infos = (
            known.infos if known.known_from <= offset else ahead(self.archive.segments, source, offset, limit=1).infos
        )
        covering = [info for info in infos if offset in info.segment.offsets]
        return max(covering, key=lambda i: (not i.is_frozen, i.segment.offsets.start, i.segment.level), default=None)


def _unreadable(segment: Segment) -> str:
    return (
        f"{segment.source}: the group does not know in which leader epoch the last archived record was read, so that "
        f"only {segment} distinguishes a forked log from the one that was archived, and it cannot be read"
    )
