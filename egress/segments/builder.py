"""Buffers, encodes and uploads every open and sealed segment of a process.

    append ──> pending batches ──(row group full, or memory short)──> encoder pool ──> spool file
    seal   ──> footer ──> is it still the same topic? ──> upload pool ──> Outcome

The poll thread calls; pools do the work; `outcomes` returns the results. Raw records count against one budget over all
partitions: when it is exceeded, the caller pauses fetching until `relieved`.
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

ROW_GROUP_BYTES = 8 * 1024 * 1024  # raw bytes pending in a segment at which they are encoded
SPOOLED = 8  # spool for encoded segments, as a multiple of the memory for raw records


class SegmentBuilder:
    """Use from the poll thread only, `close` included."""

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
        """`memory_bytes`: budget for raw records in memory, including those being encoded."""
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
        """Bytes of raw records in memory."""
        return self._pending_bytes + self._encoding_bytes

    @property
    def spool_most(self) -> int:
        """Bytes that encoded segments may take on a disk with room for them."""
        return SPOOLED * self._limit

    @property
    def spool_limit(self) -> int:
        """Bytes that encoded segments may take on the disk as it is now."""
        return self._spool.limit_bytes(self.spool_most)

    @property
    def pressed(self) -> bool:
        """Whether fetching has to stop: too many raw records in memory, or too many encoded bytes in the spool."""
        return self.held_bytes > self._limit or self._spool.size_bytes > self.spool_limit

    @property
    def relieved(self) -> bool:
        return self.held_bytes < self._limit // 2 and self._spool.size_bytes <= self.spool_limit * 3 // 4

    def heaviest_open(self) -> list[SourcePartition]:
        """Sources whose open segments fill the spool: sealing them frees space once they are stored."""
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
        """Leader epoch of the last record of the open segment."""
        building = self._open.get(source)
        return building.leader_epoch if building else None

    def oldest_ms(self, source: SourcePartition) -> int | None:
        """Timestamp of the oldest record of `source` that is not stored."""
        unstored = [b for (s, _), b in self._sealed.items() if s == source]
        if source in self._open:
            unstored.append(self._open[source])
        return min((b.oldest_ms for b in unstored if b.oldest_ms is not None), default=None)

    def append(self, source: SourcePartition, start: int, run: Run) -> None:
        """`start`: first offset of the open range; used when this is its first run."""
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
        """`beside`: stored segments that cover some of these offsets; the new segment must agree with them. Later
        segments are not stored until it is known that it does."""
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
        """Drop the open segment, and the sealed ones that start at or after `from_offset`. Uploads in flight may still
        finish."""
        gone = [key for key in self._sealed if key[0] == source and key[1].start >= from_offset]
        self._drop(source, [self._sealed.pop(key) for key in gone])

    def forsake(self, source: SourcePartition) -> None:
        """Called when the log is gone. Drop the segments that may hold records of another log. Segments that are
        confirmed are still uploaded, since their records exist nowhere else; nothing waits for their outcome."""
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
        """Whether an upload of `source` is in flight, even of a discarded segment."""
        with self._mutex:
            return self._uploading[source] > 0

    def outcomes(self, timeout_seconds: float = 0) -> list[UploadOutcome]:
        """Outcomes since the last call; waits at most `timeout_seconds` for the first."""
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
        """Shut the pools down. Uploads that have not started are dropped. Those in flight are awaited until `timeout`
        and then abandoned, so that a hanging request does not block the shutdown. The caller closes the spool."""
        self._encoders.shutdown(wait=True, cancel_futures=True)
        self._uploads.shutdown(wait=False, cancel_futures=True)
        with self._idle:
            self._idle.wait_for(lambda: not self._uploading, timeout.total_seconds())

    def shed(self) -> None:
        """Encode the largest segments early when memory is short, at the price of smaller row groups."""
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
        except Exception as error:  # whatever the cause, these records must be read again
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

        def on_confirmed(same: bool) -> None:
            # on the strand again, since the discarding of the segment runs there too
            with suppress(RuntimeError):  # the pools were shut down: nothing is uploaded any more
                building.strand.submit(lambda: self._confirmed(building, segment, seal, footer, sealed_at, same=same))

        self._confirm(segment.source.topic, origin, on_confirmed)

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
            if not building.dropped:  # checked after counting: a segment dropped earlier is never uploaded
                outcome = self._uploaded(building, segment, seal, footer, sealed_at)
                building.file.remove()  # before the outcome, so that its reader finds the space freed
                self._outcomes.put(outcome)
                if isinstance(outcome, SegmentStored):
                    self._release(building)
        finally:
            building.file.remove()
            with self._idle:
                self._uploading[building.source] -= 1
                self._uploading += Counter()  # drops the entries at 0
                self._idle.notify_all()

    def _release(self, building: OpenSegment) -> None:
        with self._mutex:
            building.stored = True
            waiting, building.waiting = building.waiting, []
        with suppress(RuntimeError):  # the pools were shut down
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
