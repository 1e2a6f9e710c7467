"""Looks up what the archive holds of partitions that are about to be read, with as few requests as possible.

The control objects below a topic's archive path are listed once for all of its partitions. So are its segments, as long
as that costs no more requests than it saves: the listing of a large archive is abandoned, and each of its partitions is
listed by itself: from the committed offset on if the group has one, else whole, reduced to the ranges that are covered.
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
class ArchiveLookup:
    """As thread safe as the stores. Raises what they raise."""

    archive: Archive

    def find(
        self, sources: Mapping[SourcePartition, int | None], pool: Executor
    ) -> Mapping[SourcePartition, ArchivedSegments]:
        """`sources`: each with the offset that the group committed, if its metadata says where the archive begins: what
        lies before that offset may be left out then. Archive paths are listed in parallel on `pool`, which must not be
        the pool that this runs on."""
        by_path: dict[tuple[str, str], list[SourcePartition]] = {}
        for source in sources:
            by_path.setdefault((source.region, source.path), []).append(source)
        found: dict[SourcePartition, ArchivedSegments] = {}
        for known in pool.map(self._control_objects, by_path.values()):
            found |= known
        # listed after the gaps, so that segments stored before a gap was recorded are seen
        listed: dict[SourcePartition, Sequence[SegmentInfo]] = {}
        alone: list[SourcePartition] = []
        for some, answer in zip(by_path.values(), pool.map(self._segments, by_path.values()), strict=True):
            alone += some if answer is None else ()
            listed |= answer or {}
        answers = {source: replace(known, infos=listed.get(source, ())) for source, known in found.items()}
        near = pool.map(lambda source: self._from_commit(source, found[source], sources[source]), alone)
        return answers | dict(zip(alone, near, strict=True))

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

    def _from_commit(self, source: SourcePartition, known: ArchivedSegments, position: int | None) -> ArchivedSegments:
        if position is None or known.forks:
            return self.whole(source, known)
        known_from = max(position - 1, 0)
        found = ahead(self.archive.segments, source, known_from)
        if found.is_cut:  # the group's offset was reset far back
            return self.whole(source, known)
        return replace(known, infos=found.infos, known_from=known_from, is_whole=False)

    def _control_objects(self, sources: Sequence[SourcePartition]) -> Mapping[SourcePartition, ArchivedSegments]:
        """The control objects of partitions that share an archive path."""
        region, path = sources[0].region, sources[0].path
        begun = self.archive.control.partitions_with_begin(region, path)
        with_gaps = set(self.archive.control.gap_sources(region, path))
        with_forks = set(self.archive.control.fork_sources(region, path))
        found: dict[SourcePartition, ArchivedSegments] = {}
        for source in sources:
            try:
                found[source] = ArchivedSegments(
                    gaps=self.archive.control.gap_ranges(source) if source in with_gaps else (),
                    has_begin=source.partition in begun,
                    forks=self.archive.control.forks(source) if source in with_forks else (),
                    details=self.archive.control.gaps(source) if source in with_gaps & with_forks else (),
                )
            except DataError as error:  # affects this partition only: the others can still begin
                found[source] = ArchivedSegments(unreadable=str(error))
        return found

    def _segments(self, sources: Sequence[SourcePartition]) -> Mapping[SourcePartition, Sequence[SegmentInfo]] | None:
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


def _unreadable(segment: Segment) -> str:
    return (
        f"{segment.source}: the group does not know in which leader epoch the last archived record was read, so that "
        f"only {segment} distinguishes a forked log from the one that was archived, and it cannot be read"
    )
