"""From runs to stored segments: buffers, encoding and uploads of every open and sealed segment of a process.

    append ──> pending batches ──(row group full, or memory short)──> encoder pool ──> spool file
    seal   ──> footer ──> is it still the same topic? ──> upload pool ──> Outcome

The poll thread calls in; pools do the work; `outcomes` brings back facts. Raw records are accounted against one budget
over all partitions: when it is exceeded the caller pauses fetching until `relieved`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from queue import Empty, Queue
from typing import TYPE_CHECKING

from egress.partition import Seal
from egress.segments.open_segment import OpenSegment, SerialExecutor
from egress.segments.outcomes import (
    SegmentStored,
    SpoolLost,
    TopicRecreated,
    UploadConflict,
    UploadFailed,
    UploadOutcome,
)
from egress.segments.spool import Spool, as_binary
from egress.topics.incarnation_check import Confirm
from formats.errors import DataError, TargetError, TransientError
from formats.footer import SegmentFooter, SegmentOrigin
from formats.records.statistics import first_timestamp_ms
from formats.registry import SegmentFormat, SegmentWriter
from formats.segment import LEVEL_STREAMING, OffsetRange, Segment, SourcePartition
from infra.archive.upload import Uploader
from infra.contracts.consumer import Run

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

ROW_GROUP_BYTES = 8 * 1024 * 1024  # raw; encoded as soon as a segment has so much
SPOOLED = 8  # times the memory for raw records: what encoded segments may take


class SegmentBuilder:
    """One poll thread calls; `close` from there too."""

    def __init__(
        self,
        *,
        format: SegmentFormat,  # noqa: A002
        confirm: Confirm,
        uploader: Uploader,
        spool: Spool,
        memory_bytes: int,
        encode_threads: int,
        upload_threads: int,
    ) -> None:
        """`memory_bytes`: raw records held, being encoded ones included."""
        self._format, self._confirm, self._uploader, self._spool = format, confirm, uploader, spool
        self._limit = memory_bytes
        self._encoders = ThreadPoolExecutor(encode_threads, "encode")
        self._uploads = ThreadPoolExecutor(upload_threads, "upload")
        self._open: dict[SourcePartition, OpenSegment] = {}
        self._sealed: dict[tuple[SourcePartition, OffsetRange], OpenSegment] = {}
        self._pending_bytes = 0
        self._encoding_bytes = 0
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._uploading: Counter[SourcePartition] = Counter()
        self._outcomes: Queue[UploadOutcome] = Queue()  # see Delivery.reports

    @property
    def held_bytes(self) -> int:
        """Raw records in memory."""
        return self._pending_bytes + self._encoding_bytes

    @property
    def spool_most(self) -> int:
        """Bytes that encoded segments may take, on a disk that has room for them."""
        return SPOOLED * self._limit

    @property
    def spool_limit(self) -> int:
        """The same on the disk as it is now."""
        return self._spool.limit_bytes(self.spool_most)

    @property
    def pressed(self) -> bool:
        """Stop fetching: too many raw records in memory, or too many encoded ones in the spool."""
        return self.held_bytes > self._limit or self._spool.size_bytes > self.spool_limit

    @property
    def relieved(self) -> bool:
        return self.held_bytes < self._limit // 2 and self._spool.size_bytes <= self.spool_limit * 3 // 4

    def heaviest_open(self) -> list[SourcePartition]:
        """Sources whose open segments fill the spool: sealing these leaves room, once they are stored."""
        limit = self.spool_limit // 2
        waiting = sum(b.file.size_bytes for b in self._open.values())
        if waiting < limit:
            return []
        heaviest = sorted(self._open.values(), key=lambda b: b.file.size_bytes, reverse=True)
        chosen: list[SourcePartition] = []
        for building in heaviest:
            if waiting < limit:
                break
            waiting -= building.file.size_bytes
            chosen.append(building.source)
        return chosen

    @property
    def spool_bytes(self) -> int:
        return self._spool.size_bytes

    def leader_epoch(self, source: SourcePartition) -> int | None:
        """Of the last record of the open segment."""
        building = self._open.get(source)
        return building.leader_epoch if building else None

    def oldest_ms(self, source: SourcePartition) -> int | None:
        """Stamp of the oldest record of `source` that is not stored."""
        held = [b for (s, _), b in self._sealed.items() if s == source]
        if source in self._open:
            held.append(self._open[source])
        return min((b.oldest_ms for b in held if b.oldest_ms is not None), default=None)

    def append(self, source: SourcePartition, start: int, run: Run) -> None:
        """`start`: of the open range, in case this is its first run."""
        building = self._open.get(source)
        if building is None:
            building = self._open[source] = OpenSegment(
                source, start, self._spool.file(), SerialExecutor(self._encoders)
            )
        if building.oldest_ms is None:
            building.oldest_ms = first_timestamp_ms(run.batch)
        building.pending.append(run.batch)
        building.pending_bytes += run.size_bytes
        building.leader_epoch = run.last_leader_epoch
        self._pending_bytes += run.size_bytes
        if building.pending_bytes >= ROW_GROUP_BYTES:
            self._encode(building)
        else:
            self.shed()

    def seal(self, source: SourcePartition, seal: Seal, origin: SegmentOrigin, beside: Sequence[Segment] = ()) -> None:
        """`beside`: stored segments that cover some of these offsets, which the new one must agree with. Until it is
        known that it does, nothing behind it is stored."""
        building = self._open.pop(source, None)
        if building is None:  # a range without a record
            start = seal.offsets.start
            building = OpenSegment(source, start, self._spool.file(), SerialExecutor(self._encoders))
        building.beside = tuple(beside)
        building.behind = next(
            (b for (s, _), b in reversed(self._sealed.items()) if s == source and b.beside and not b.stored), None
        )
        self._encode(building)
        self._sealed[source, seal.offsets] = building
        sealed_at = time.monotonic()
        segment = Segment(source, LEVEL_STREAMING, seal.offsets)
        building.strand.submit(lambda: self._close(building, segment, seal, origin, sealed_at))

    def discard(self, source: SourcePartition, from_offset: int = 0) -> None:
        """Drop the open segment and the sealed ones from there on; uploads under way may still finish."""
        gone = [key for key in self._sealed if key[0] == source and key[1].start >= from_offset]
        self._drop(source, [self._sealed.pop(key) for key in gone])

    def forsake(self, source: SourcePartition) -> None:
        """The log is gone. Drop what may hold records of another; what was confirmed is uploaded all the same, since it
        exists nowhere else any more, and its outcome is nobody's."""
        buildings = [self._sealed.pop(key) for key in list(self._sealed) if key[0] == source]
        self._drop(source, [b for b in buildings if not b.uploading])

    def _drop(self, source: SourcePartition, buildings: list[OpenSegment]) -> None:
        if source in self._open:
            buildings.append(self._open.pop(source))
        for building in buildings:
            _, count = building.take_pending()
            self._pending_bytes -= count
            building.dropped = True
            building.strand.submit(building.remove)

    def uploading(self, source: SourcePartition) -> bool:
        """Something of it is being stored just now, discarded meanwhile or not."""
        with self._mutex:
            return self._uploading[source] > 0

    def outcomes(self, timeout_seconds: float = 0) -> list[UploadOutcome]:
        """What finished since the last call; waits for the first one at most `timeout_seconds`."""
        found: list[UploadOutcome] = []
        try:
            found.append(
                self._outcomes.get(timeout=timeout_seconds) if timeout_seconds else self._outcomes.get_nowait()
            )
            while True:
                found.append(self._outcomes.get_nowait())
        except Empty:
            pass
        for outcome in found:
            if isinstance(outcome, SegmentStored):
                self._sealed.pop((outcome.source, outcome.seal.offsets), None)
        return found

    def close(self, timeout: timedelta = timedelta(seconds=30)) -> None:
        """Ends the pools. Uploads not begun are dropped; those under way are waited for until `timeout`, and left alone
        after that: a request that hangs is no reason to hang. The spool is the caller's."""
        self._encoders.shutdown(wait=True, cancel_futures=True)
        self._uploads.shutdown(wait=False, cancel_futures=True)
        with self._idle:
            self._idle.wait_for(lambda: not self._uploading, timeout.total_seconds())

    def shed(self) -> None:
        """Encode the fattest segments early when memory is short, at the price of smaller row groups."""
        if self._pending_bytes <= self._limit // 2:
            return
        for building in sorted(self._open.values(), key=lambda b: b.pending_bytes, reverse=True):
            self._encode(building)
            if self._pending_bytes <= self._limit // 4:
                break

    def _encode(self, building: OpenSegment) -> None:
        batches, count = building.take_pending()
        if not batches:
            return
        self._pending_bytes -= count
        with self._mutex:
            self._encoding_bytes += count
        building.strand.submit(lambda: self._write(building, batches, count))

    # --- encoder threads ---

    def _write(self, building: OpenSegment, batches: list[RecordBatch], count: int) -> None:
        try:
            if not (building.dropped or building.failed):
                self._writer(building).write(batches)
                building.file.settle()
        except Exception as error:  # whatever it was, these records must be read again
            self._outcomes.put(self._failed(building, error))
        finally:
            batches.clear()
            with self._mutex:
                self._encoding_bytes -= count

    def _close(
        self, building: OpenSegment, segment: Segment, seal: Seal, origin: SegmentOrigin, sealed_at: float
    ) -> None:
        if building.dropped or building.failed:
            return
        try:
            footer = self._writer(building).close(segment, origin)
            building.file.settle()
        except Exception as error:
            self._outcomes.put(self._failed(building, error))
            return

        def told(same: bool) -> None:
            # back on the strand: what discards the segment runs there too
            with suppress(RuntimeError):  # the pools ended meanwhile: nothing is uploaded any more
                building.strand.submit(lambda: self._confirmed(building, segment, seal, footer, sealed_at, same=same))

        self._confirm(segment.source.topic, origin, told)

    def _confirmed(
        self,
        building: OpenSegment,
        segment: Segment,
        seal: Seal,
        footer: SegmentFooter,
        sealed_at: float,
        *,
        same: bool,
    ) -> None:
        if building.dropped:
            return
        if not same:
            building.remove()
            self._outcomes.put(TopicRecreated(building.source, seal.offsets))
            return

        def upload() -> None:
            building.uploading = True
            self._uploads.submit(self._upload, building, segment, seal, footer, sealed_at)

        with self._mutex:
            if building.behind is not None and not building.behind.stored:
                building.behind.waiting.append(upload)
                return
        upload()

    def _writer(self, building: OpenSegment) -> SegmentWriter:
        if building.writer is None:
            building.writer = self._format.create(as_binary(building.file))
        return building.writer

    def _failed(self, building: OpenSegment, error: Exception) -> SpoolLost:
        building.failed = True
        log.error("segment_lost_before_it_was_stored", exc_info=error)
        building.remove()
        return SpoolLost(building.source, building.start, f"{type(error).__name__}: {error}")

    # --- upload threads ---

    def _upload(
        self, building: OpenSegment, segment: Segment, seal: Seal, footer: SegmentFooter, sealed_at: float
    ) -> None:
        with self._mutex:
            self._uploading[building.source] += 1
        try:
            if not building.dropped:  # asked when it is counted: what is dropped before is never begun
                outcome = self._uploaded(building, segment, seal, footer, sealed_at)
                building.file.remove()  # first: whoever hears of the outcome finds the room that it left
                self._outcomes.put(outcome)
                if isinstance(outcome, SegmentStored):
                    self._release(building)
        finally:
            building.file.remove()
            with self._idle:
                self._uploading[building.source] -= 1
                self._uploading += Counter()  # without those at 0
                self._idle.notify_all()

    def _release(self, building: OpenSegment) -> None:
        with self._mutex:
            building.stored = True
            waiting, building.waiting = building.waiting, []
        with suppress(RuntimeError):  # the pools ended meanwhile
            for upload in waiting:
                upload()

    def _uploaded(
        self, building: OpenSegment, segment: Segment, seal: Seal, footer: SegmentFooter, sealed_at: float
    ) -> UploadOutcome:
        source, size = building.source, building.file.size_bytes
        try:
            new = self._uploader.upload(segment, building.file, footer, building.beside)
        except TransientError as error:
            return UploadFailed(source, seal.offsets, error)
        except (DataError, TargetError) as error:
            return UploadConflict(source, seal.offsets, error)
        except Exception as error:  # the spool file cannot be read, most likely
            return self._failed(building, error)
        return SegmentStored(source, seal, footer, size, time.monotonic() - sealed_at, new)
