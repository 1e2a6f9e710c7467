"""The offset map as a writer continues it: the runs that it delivered become pages of the map's topic.

    run acknowledged ─> its offsets at the target ─> the partition's last page, longer, or new pages ─> written
    written and, with transactions, committed ─> the last page is remembered

A page is continued only while this writer is sure that nothing was delivered after it: in the same ownership of the
partition, from the position where it ended, to the same incarnation of the destination. Else a new page begins, which
costs a few bytes and needs no read of what others wrote.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from pyarrow import Int64Array

from formats.messages.map_key import MapKey
from formats.messages.offset_map import MapPage, encode_page, encode_page_key, pages
from formats.records.offset_runs import NO_RUNS, OffsetRuns, contiguous, scattered
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.kafka.client.delivery_reports import Reports, RunReports
from infra.kafka.client.idempotent_producer import IdempotentProducer

REMEMBERED = 4096  # partitions whose last page is continued; of one that is forgotten, a new page begins


@dataclass(frozen=True, slots=True)
class SentRun:
    """A run that the client has, and what it reported of it."""

    run: TargetRun  # without its records
    offsets: OffsetRuns  # at the target from 0 on
    reports: Reports
    sources: Sequence[Int64Array] = ()  # offsets of the records, where that of each is kept
    known: OffsetRuns | None = None  # where the records are, when that needs no report

    @classmethod
    def of(cls, run: TargetRun, reports: Reports) -> SentRun:
        """Before the records are dropped."""
        columns = [batch.column("offset") for batch in run.batches]
        offsets = contiguous(columns, 0) if run.count else NO_RUNS
        return cls(run.without_records, offsets, reports, columns if reports.keeps_each else ())

    @classmethod
    def preserved(cls, run: TargetRun) -> SentRun:
        """Of a run whose records have the offsets of the source."""
        if not run.count:
            return cls(run.without_records, NO_RUNS, RunReports(0), known=NO_RUNS)
        runs = contiguous([batch.column("offset") for batch in run.batches], 0)
        return cls(run.without_records, runs, RunReports(0), known=OffsetRuns(runs.source, runs.source, runs.count))

    @property
    def is_mapped(self) -> bool:
        """Whether the offset of every record is known."""
        if not self.run.count or self.known is not None:
            return True
        return self.reports.is_contiguous or self.reports.each_offset is not None

    @property
    def placed(self) -> OffsetRuns:
        """Where the records are. Those between which others wrote, and whose own offsets were not kept, lie after what
        this says, never before it: a consumer that begins there reads some again, and skips none."""
        if self.known is not None:
            return self.known
        each = self.reports.each_offset
        if each is None:
            return self.offsets.moved(self.reports.first_offset)
        return scattered(self.sources, each)


@dataclass(frozen=True, slots=True)
class _Tail:
    page: MapPage
    epoch: int
    next_offset: int  # at the source

    def is_continued_by(self, run: TargetRun, placed: OffsetRuns) -> bool:
        """Not by records that lie before it: the destination was created again, or its log lost its tail."""
        follows = not len(placed) or placed.target_start >= self.page.runs.target_end
        return follows and (self.epoch, self.next_offset) == (run.epoch, run.position) and not self.page.is_full


def send_run(
    producer: IdempotentProducer[TopicPartition],
    run: TargetRun,
    *,
    interleaved: Collection[TopicPartition],
    memory_bytes: int,
    wait: Callable[[], None],
) -> SentRun:
    """`interleaved`: partitions to which others write, too: the offset of each record is kept. See
    IdempotentProducer.send."""
    reports = producer.send(
        run, run.partition, memory_bytes=memory_bytes, wait=wait, each_offset=run.partition in interleaved
    )
    return SentRun.of(run, reports)


class OffsetPages:
    """Use from one thread."""

    def __init__(self) -> None:
        self._tails: OrderedDict[MapKey, _Tail] = OrderedDict()  # as written
        self._staged: dict[MapKey, _Tail] = {}

    def records(self, delivered: Iterable[SentRun]) -> Sequence[tuple[bytes, bytes]]:
        """The pages to write: in the transaction of the records, or before their checkpoints. `confirm` or `drop`
        follows."""
        self._staged = {}
        changed: dict[tuple[MapKey, int], MapPage] = {}
        for sent in delivered:
            run, key = sent.run, MapKey(sent.run.key, sent.run.checkpoint.destination_topic_id)
            placed = sent.placed if run.count else NO_RUNS
            tail = self._staged.get(key) or self._tails.get(key)
            if tail is not None and tail.is_continued_by(run, placed):
                written = list(tail.page.extended(placed)) if len(placed) else [tail.page]
            else:
                written = list(pages(key, run.position, placed))
            if not written:  # without records there is nothing to map, and no page to continue
                continue
            if len(placed):
                changed |= {(key, page.start): page for page in written}
            self._staged[key] = _Tail(written[-1], run.epoch, run.checkpoint.next_offset)
        return [(encode_page_key(page), encode_page(page)) for page in changed.values()]

    def confirm(self) -> None:
        """The pages are in the topic."""
        for key, tail in self._staged.items():
            self._tails[key] = tail
            self._tails.move_to_end(key)
        self._staged = {}
        while len(self._tails) > REMEMBERED:
            self._tails.popitem(last=False)

    def drop(self) -> None:
        """The pages may or may not be in the topic: none of them is continued."""
        for key in self._staged:
            self._tails.pop(key, None)
        self._staged = {}
