"""What ingress asks of the archive about assigned partitions: their segments, recorded gaps and begins, on a pool.

    ask           one partition:                   gaps ──> segments of each level ──> where the archive begins
    ask_firsts    partitions that begin together:  the same of their topic, by one listing each
                                                     └── it has many objects: each partition by itself

So partitions that begin in one turn take a request for the gaps of their topic, one for each thousand of its objects
and one for its begins, where each of them took five. Such a listing serves where `ahead` does: it never proves that
offsets are missing, which takes a full listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from formats.control.archive_begin import ArchiveBegin
from formats.coverage import joined
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.forward_listing import ahead, all_ahead, all_of_each, covered
from infra.archive.segments import SegmentStore
from infra.runtime.lookups import Question, ask
from ingress.assigned_partition import ListedSegments

PAGE = 1_000  # objects
MOST_PAGES = 5  # of a topic's listing, which are requested one after the other
SHARING = 4  # partitions for each of these pages; the first one is tried for any


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingRequest:
    """What is asked of one partition. `position`: the first offset of interest; `reach`: of its last listing; `full`:
    list every key; `begun_at`: where its delivery began once; `left_behind`: where that of earlier incarnations
    ended."""

    source: SourcePartition
    position: int
    reach: Mapping[int, int] = field(default_factory=dict)
    full: bool = False
    wants_begin: bool
    begun_at: int = 0
    left_behind: Mapping[SourcePartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class FirstListing:
    """The first listing of a partition; `answer` gets its outcome."""

    request: ListingRequest
    answer: Future[ListedSegments] = field(default_factory=Future)

    @property
    def source(self) -> SourcePartition:
        return self.request.source


@dataclass(frozen=True, slots=True)
class ArchiveListing:
    """Called on the controller's thread."""

    store: SegmentStore
    control: ControlStore
    pool: Executor

    def ask(self, request: ListingRequest) -> Question[ListedSegments]:
        return ask(self.pool, self.listed, request)

    def ask_firsts(self, firsts: Sequence[FirstListing]) -> None:
        """List these partitions; those of one topic together, if it has few objects. Those with earlier incarnations,
        whose segments lie elsewhere, by themselves."""
        topics: dict[tuple[str, str], list[FirstListing]] = {}
        for one in firsts:
            if one.request.left_behind:
                self._submit(one, partial(self.listed, one.request))
            else:
                topics.setdefault((one.source.region, one.source.path), []).append(one)
        for some in topics.values():
            self.pool.submit(self._answer_together, some)

    # --- on the pool ---

    def listed(self, request: ListingRequest) -> ListedSegments:
        store, source, position = self.store, request.source, request.position
        # gaps before segments, so that every segment stored before a gap was recorded is seen
        recorded = self.control.gaps.ranges(source)
        found = (
            all_ahead(store, source, position) if request.full else ahead(store, source, position, reach=request.reach)
        )
        return ListedSegments(
            recorded=recorded,
            infos=found.infos,
            # after segments: see `_offset`
            begin=_offset(self.control.begins.of(source)) if request.wants_begin else None,
            is_cut=found.is_cut,
            reach=found.reach,
            passed=covered(store, source, before=request.begun_at).runs if request.begun_at else (),
            left_behind={
                earlier: [info.segment.offsets for info in ahead(store, earlier, end).infos]
                for earlier, end in request.left_behind.items()
            },
        )

    def listed_together(self, firsts: Sequence[FirstListing]) -> Mapping[SourcePartition, ListedSegments] | None:
        """Of several partitions of one topic, without their begins; None when it has too many objects."""
        ((region, path),) = {(one.source.region, one.source.path) for one in firsts}
        pages = max(min(len(firsts) // SHARING, MOST_PAGES), 1)
        recorded = self.control.gaps.few_ranges(region, path, most=PAGE)  # before segments, as of one partition
        if recorded is None:
            return None
        found = all_of_each(self.store, region, path, [one.source for one in firsts], most=pages * PAGE)
        if found is None:
            return None
        return {
            one.source: ListedSegments(
                recorded=recorded.get(one.source.partition, ()),
                infos=[info for info in found[one.source] if info.segment.offsets.end >= one.request.position],
                passed=_covered(found[one.source], before=one.request.begun_at) if one.request.begun_at else (),
            )
            for one in firsts
        }

    def _answer_together(self, firsts: Sequence[FirstListing]) -> None:
        wanting = [one for one in firsts if one.request.wants_begin]
        try:
            found = self.listed_together(firsts)
            if found is not None and wanting:  # after segments: see `_offset`
                begins = self.control.begins.of_path(wanting[0].source.region, wanting[0].source.path)
        except Exception as error:  # raised again where each answer is collected
            for one in firsts:
                one.answer.set_exception(error)
            return
        if found is None:
            self._list_each(firsts)
            return
        for one in firsts:
            listed, number = found[one.source], one.source.partition
            if one.request.wants_begin and number in begins.partitions | begins.lowered:
                read = self.control.begins.of if number in begins.lowered else self.control.begins.first_of
                self._submit(one, partial(_with_begin, listed, read, one.source))
            else:
                one.answer.set_result(listed)

    def _list_each(self, firsts: Sequence[FirstListing]) -> None:
        for one in firsts:
            self._submit(one, partial(self.listed, one.request))

    def _submit(self, one: FirstListing, question: Callable[[], ListedSegments]) -> None:
        def answer() -> None:
            try:
                listed = question()
            except Exception as error:  # raised again where the answer is collected
                one.answer.set_exception(error)
            else:
                one.answer.set_result(listed)

        with suppress(RuntimeError):  # the pool is shut down: no answer is collected any more
            self.pool.submit(answer)


def _covered(infos: Iterable[SegmentInfo], *, before: int) -> Sequence[OffsetRange]:
    return joined(info.segment.offsets for info in infos if info.segment.offsets.start < before).runs


def _with_begin(
    listed: ListedSegments, read: Callable[[SourcePartition], ArchiveBegin | None], source: SourcePartition
) -> ListedSegments:
    return replace(listed, begin=_offset(read(source)))


def _offset(begin: ArchiveBegin | None) -> int | None:
    """Where the archive begins, read after the segments: it was recorded before any of them was stored, so in a bucket
    that keeps the order of writes it is visible once a segment is."""
    return None if begin is None else begin.offset
