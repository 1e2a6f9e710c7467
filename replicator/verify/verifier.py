"""Proves an archive: every object of a partition, the offsets that they cover, and that a topic holds the same records.

No recorded digest or count is trusted: objects are decoded to the last record, topics are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from formats.control.archive_begin import ArchiveBegin
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import SegmentSlice, from_first, joined, parts, uncovered
from formats.errors import CorruptSegment, MalformedEvent, SegmentNotFound, TransformFailed
from formats.forks import unresolved
from formats.incarnation import Incarnation
from formats.read_splits import ReadSplit
from formats.records.align import StreamComparison, compare_streams
from formats.records.compare import Comparison, compare
from formats.records.lineage_header import without_header as without
from formats.records.scope import RecordFilter
from formats.records.statistics import edges, within
from formats.records.transform import transform_named
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.read import SplitReader
from infra.contracts.cluster import TopicPartition
from infra.runtime.lifecycle import Clock

if TYPE_CHECKING:
    from pyarrow import RecordBatch

from replicator.verify.proven import Proven

SCANS = 3  # scans of a partition that changes meanwhile


@dataclass(slots=True)
class _Compared:
    disagreeing: list[str] = field(default_factory=list)
    subset_pairs: list[str] = field(default_factory=list)
    unsettled: set[Segment] = field(default_factory=set)  # segments of pairs that disagree or could not be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveVerdict:
    """The verdict on one partition of the archive alone."""

    source: SourcePartition
    offsets: OffsetRange | None  # from the first to the last covered
    objects: int
    size_bytes: int
    read: Mapping[Segment, Proven]  # decoded in this run, and whole
    skipped: int = 0  # proven before, and unchanged
    corrupt: Mapping[Segment, str] = field(default_factory=dict)
    disagreeing: Sequence[str] = ()  # pairs with different records at the same offset
    subset_pairs: Sequence[str] = ()  # pairs of which one holds a subset of the records: the source was compacted
    missing: Sequence[OffsetRange] = ()  # covered by no segment and no recorded gap
    recorded: Sequence[RecordedGap] = ()
    forks: Sequence[LogFork] = ()  # forks of the source's log that wait for an operator
    unsettled: Collection[Segment] = ()  # to be verified again, even if proven before
    unreadable: str = ""  # why it was not verified: a control object of it cannot be decoded

    @property
    def is_whole(self) -> bool:
        bad = self.corrupt or self.disagreeing or self.missing or self.forks or self.unreadable
        return not bad


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVerdict:
    """The verdict on a partition of the archive compared with its source topic, offset by offset."""

    source: SourcePartition
    topic: TopicPartition
    offsets: OffsetRange | None  # what both can hold: from the log's start to the archive's end
    comparison: Comparison
    source_compacted: bool  # the topic is compacted: it may hold fewer records than the archive
    missing: Sequence[OffsetRange] = ()  # offsets that the archive does not hold
    recorded: Sequence[RecordedGap] = ()  # decided gaps: records of the topic there are not compared
    unreadable: str = ""

    @property
    def is_equal(self) -> bool:
        c = self.comparison
        lost = c.only_second or (c.only_first and not self.source_compacted)
        return c.offset is None and not lost and not self.missing and not self.unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """The verdict on a partition of the archive, or of a source topic, compared with a topic that should hold the same
    records in the same order."""

    source: SourcePartition
    target: TopicPartition
    result: StreamComparison | None
    unreadable: str = ""  # why they could not be compared
    transform: str = ""  # name of the function that the compared records of the source went through; empty: none
    without_header: str = ""  # name of the header that both were compared without; empty: none

    @property
    def is_equal(self) -> bool:
        return self.result is not None and self.result.difference is None and not self.unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """As thread-safe as `stored` and `clock`. Holds one row group of each side in memory."""

    stored: Archive
    clock: Clock

    def archive(
        self,
        source: SourcePartition,
        proven: Mapping[Segment, Proven],
        *,
        read_again_after: timedelta | None,
        reported_end: int = 0,
    ) -> ArchiveVerdict:
        """Verify a partition. Unchanged `proven` objects that are not too old are not read. `reported_end`: the next
        offset up to which it has to be stored, as egress reported. Raises StoreUnavailable.

        Objects that are merged, removed or stored meanwhile are no damage: the partition is scanned again when a listed
        object is gone or offsets are not covered.
        """
        try:
            return self._archive(source, proven, read_again_after, reported_end)
        except MalformedEvent as error:  # of a gap, a fork, a begin or a claim: other partitions are verified still
            return ArchiveVerdict(source=source, offsets=None, objects=0, size_bytes=0, read={}, unreadable=str(error))

    def _archive(
        self,
        source: SourcePartition,
        proven: Mapping[Segment, Proven],
        read_again_after: timedelta | None,
        reported_end: int,
    ) -> ArchiveVerdict:
        read: dict[SegmentInfo, Proven] = {}
        corrupt: dict[SegmentInfo, str] = {}
        begin = self.stored.control.begins.of(source)
        for _ in range(SCANS):
            recorded = self.stored.control.gaps.of(source)
            infos = self.stored.segments.list(source)
            now, vanished = self.clock.now(), False
            known: dict[Segment, Proven] = {}
            for info in infos:
                before = proven.get(info.segment)
                if before is not None and _still_holds(before, info, now, read_again_after):
                    known[info.segment] = before
                elif info not in read and info not in corrupt:
                    try:
                        read[info] = self._prove(info, now)
                    except CorruptSegment as error:
                        corrupt[info] = error.what
                    except SegmentNotFound:
                        vanished = True
            news = {info.segment: read[info] for info in infos if info in read}
            extent = joined(segment.offsets for segment in (*known, *news))
            offsets = None if extent.start is None else OffsetRange(extent.start, (extent.next_offset or 1) - 1)
            covered = [*extent.runs, *(gap.offsets for gap in recorded)]
            whole = _whole(begin, offsets, reported_end)
            missing = uncovered(covered, whole) if whole is not None else ()
            if not vanished and not missing:
                break
        compared = self._compare([*known, *news], set(news))
        return ArchiveVerdict(
            source=source,
            offsets=offsets,
            objects=len(infos),
            size_bytes=sum(info.size_bytes for info in infos),
            # unsettled ones have to be verified again
            read={segment: one for segment, one in news.items() if segment not in compared.unsettled},
            skipped=len(known),
            corrupt={info.segment: corrupt[info] for info in infos if info in corrupt},
            disagreeing=compared.disagreeing,
            subset_pairs=compared.subset_pairs,
            missing=missing,
            recorded=recorded,
            forks=self._forks(source, recorded, extent.runs),
            unsettled=compared.unsettled,
        )

    def _forks(
        self, source: SourcePartition, recorded: Sequence[RecordedGap], covered: Sequence[OffsetRange]
    ) -> Sequence[LogFork]:
        """Unresolved forks. Empty if the archive continues after them in another path, as an operator decided."""
        waiting = unresolved(self.stored.control.forks.of(source), recorded, covered)
        if not waiting:
            return ()
        later = (
            Incarnation(source.topic, one) for one in self.stored.control.claims.later_ids(source.region, source.topic)
        )
        claims = (self.stored.control.claims.of(source.region, incarnation.path) for incarnation in later)
        return () if any(claim and claim.forked_from == source.path for claim in claims) else waiting

    def compare_with_source(
        self,
        source: SourcePartition,
        topic: TopicPartition,
        common: OffsetRange | None,
        records: Iterator[RecordBatch],
        *,
        source_compacted: bool,
        unreadable: str = "",
    ) -> SourceVerdict:
        """Compare the archive with `records` of the source topic.

        `common`: the offsets that both can hold; `unreadable`: why there are no records. Offsets that retention removed
        from the archive, or that an operator gave up, are not compared: that was decided. Raises StoreUnavailable, and
        what reading the topic raises.
        """
        if common is None:
            nothing = compare(iter(()), iter(()))
            return SourceVerdict(
                source=source,
                topic=topic,
                offsets=None,
                comparison=nothing,
                source_compacted=source_compacted,
                unreadable=unreadable,
            )
        for _ in range(SCANS):
            # gaps are read before the listing: retention records them before it removes segments
            gaps = [
                g
                for g in self.stored.control.gaps.of(source)
                if g.offsets.overlaps(common) and (g.is_accepted or not g.is_loss)
            ]
            extent = joined(info.segment.offsets for info in self.stored.segments.list(source))
            # offsets that a segment covers are compared: an object may have been put back after its gap was recorded
            given_up = [o for gap in gaps for o in uncovered(extent.runs, gap.offsets)]
            if not (missing := uncovered([*extent.runs, *given_up], common)):
                break  # else they may have been merged meanwhile
        compared = uncovered(given_up, common)
        try:
            comparison, unreadable = (
                compare(self.records(source, RecordFilter(), common), _inside(records, compared)),
                "",
            )
        except (CorruptSegment, SegmentNotFound) as error:
            comparison, unreadable = compare(iter(()), iter(())), str(error)
        return SourceVerdict(
            source=source,
            topic=topic,
            offsets=common,
            comparison=comparison,
            source_compacted=source_compacted,
            missing=missing,
            recorded=gaps,
            unreadable=unreadable,
        )

    def compare_with_target(
        self,
        source: SourcePartition,
        target: TopicPartition,
        scope: RecordFilter,
        records: Iterator[RecordBatch],
        transform: str = "",
        *,
        without_header: str = "",
    ) -> TargetVerdict:
        """Compare the archive with `records`, all of the target partition. Raises StoreUnavailable, and what reading it
        raises."""
        ours = self.records(source, scope)
        return compared_through(transform, source, target, ours, records, without_header=without_header)

    def records(
        self, source: SourcePartition, scope: RecordFilter, within: OffsetRange | None = None
    ) -> Iterator[RecordBatch]:
        """The records that a reader gets from a partition, gaps passed over. Raises as SplitReader does."""
        low, high = max(scope.offsets.low, 0), scope.offsets.high
        wanted = within or (OffsetRange(low, min(high, 2**63 - 2)) if low <= high else None)
        if wanted is None:
            return
        found = [info.segment for info in self.stored.segments.list(source)]
        chosen = tuple(step for step in parts(found, wanted) if isinstance(step, SegmentSlice))
        if chosen:
            yield from SplitReader(self.stored, scope).batches(ReadSplit(source, chosen))

    def _prove(self, info: SegmentInfo, now: datetime) -> Proven:
        """Decode an object. The reader checks each row group against its digest, and all of them against the footer."""
        segment = info.segment
        with self.stored.open(segment) as reader:
            count = sum(batch.num_rows for batch in reader.batches())
            if count != reader.footer.count:
                raise CorruptSegment(str(segment), found=f"{count} records", wanted=reader.footer.count)
            digest = reader.footer.digest.whole if reader.footer.digest is not None else ""
        return Proven(size_bytes=info.size_bytes, stored_at=info.stored_at, records=count, digest=digest, proven_at=now)

    def _compare(self, segments: Sequence[Segment], news: set[Segment]) -> _Compared:
        """Compare every segment with those that a reader chooses instead. Pairs proven before are not compared
        again."""
        chosen = [step for step in from_first(segments) if isinstance(step, SegmentSlice)]
        starts = [one.offsets.start for one in chosen]
        found = _Compared()
        for segment in segments:
            first = max(bisect_right(starts, segment.offsets.start) - 1, 0)
            for other in chosen[first : bisect_right(starts, segment.offsets.end)]:
                is_news = segment in news or other.segment in news
                if other.segment == segment or not is_news or not other.offsets.overlaps(segment.offsets):
                    continue
                low = max(other.offsets.start, segment.offsets.start)
                both = OffsetRange(low, min(other.offsets.end, segment.offsets.end))
                try:
                    chosen_records, others = (
                        self.stored.batches(SegmentSlice(one, both)) for one in (other.segment, segment)
                    )
                    result = compare(chosen_records, others)
                except SegmentNotFound:
                    found.unsettled |= {other.segment, segment}
                    continue
                except CorruptSegment as error:  # corrupted after it was proven
                    found.unsettled |= {other.segment, segment}
                    found.disagreeing.append(f"{other.segment} and {segment}: {error}")
                    continue
                if result.offset is not None:
                    found.unsettled |= {other.segment, segment}
                    found.disagreeing.append(f"{other.segment} and {segment}: offset {result.offset}, {result.detail}")
                elif not result.equal:
                    found.subset_pairs.append(f"{other.segment} and {segment}: {result.detail}")
        return found


def compared_through(
    transform: str,
    source: SourcePartition,
    target: TopicPartition,
    ours: Iterator[RecordBatch],
    theirs: Iterator[RecordBatch],
    *,
    without_header: str = "",
) -> TargetVerdict:
    """Compare `ours`, as the function named `transform` returns them, with `theirs`, both without headers of a name.
    Raises what reading either raises, except errors of the data."""

    def verdict(result: StreamComparison | None, unreadable: str = "") -> TargetVerdict:
        return TargetVerdict(
            source=source,
            target=target,
            result=result,
            unreadable=unreadable,
            transform=transform,
            without_header=without_header,
        )

    try:
        function = transform_named(transform)
        ours = (function(batch, source) for batch in ours)
        if without_header:
            ours = (without(batch, without_header) for batch in ours)
            theirs = (without(batch, without_header) for batch in theirs)
        return verdict(compare_streams(ours, theirs))
    except (CorruptSegment, SegmentNotFound, TransformFailed) as error:
        return verdict(None, str(error))


def _whole(begin: ArchiveBegin | None, offsets: OffsetRange | None, reported_end: int) -> OffsetRange | None:
    """What has to be covered: from the recorded begin of the archive, if known, since its first segments may be
    missing, too, to the reported end. None: nothing. `offsets`: from the first to the last that is."""
    starts = [*([begin.offset] if begin is not None else []), *([offsets.start] if offsets is not None else [])]
    start, end = min(starts, default=0), max(reported_end, 0 if offsets is None else offsets.next_offset)
    return OffsetRange(start, end - 1) if start < end else None


def _inside(batches: Iterator[RecordBatch], ranges: Sequence[OffsetRange]) -> Iterator[RecordBatch]:
    """The records at offsets in one of `ranges`, which are in order and disjoint."""
    for batch in batches:
        first, last = edges(batch)
        for offsets in ranges[max(bisect_right(ranges, first, key=lambda r: r.start) - 1, 0) :]:
            if offsets.start > last:
                break
            part = within(batch, offsets)
            if part.num_rows:
                yield part


def _still_holds(before: Proven, info: SegmentInfo, now: datetime, read_again_after: timedelta | None) -> bool:
    same = before.size_bytes == info.size_bytes and before.stored_at == info.stored_at
    return same and (read_again_after is None or now - before.proven_at < read_again_after)
