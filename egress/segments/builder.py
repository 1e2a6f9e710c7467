"""Buffers, encodes and uploads every open and sealed segment of a process.

    append ──> pending batches ──(row group full, or memory short)──> encoder pool ──> spool file
    seal   ──> footer ──> is it still the same topic? ──> upload pool ──> Outcome

The poll thread calls; pools do the work; `outcomes` returns the results. Raw records count against one budget over all
partitions: when it is exceeded, the caller pauses fetching until `may_resume`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from infra.contracts.cluster import TopicPartition
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
        format_of: Callable[[SourcePartition], SegmentFormat],
        confirm: Confirm,
        uploader: Uploader,
        spool: Spool,
        memory_bytes: int,
        encode_threads: int,
        upload_threads: int,
    ) -> None:
        """`format_of`: asked when a segment of the source begins. `memory_bytes`: budget for raw records in memory,
        including those being encoded."""
        self._format_of, self._confirm, self._uploader, self._spool = format_of, confirm, uploader, spool
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
        self._outcomes: Queue[tuple[OpenSegment, UploadOutcome]] = Queue()  # see Delivery.reports

    @property
    def is_empty(self) -> bool:
        """Whether no segment is open, or waits to be stored."""
        return not self._open and not self._sealed

    @property
    def buffered_bytes(self) -> int:
        """Bytes of raw records in memory."""
        return self._pending_bytes + self._encoding_bytes

    @property
    def spool_maximum(self) -> int:
        """Bytes that encoded segments may take on a disk with room for them."""
        return SPOOLED * self._limit

    @property
    def spool_limit(self) -> int:
        """Bytes that encoded segments may take on the disk as it is now."""
        return self._spool.limit_bytes(self.spool_maximum)

    @property
    def must_pause(self) -> bool:
        """Whether fetching has to stop: too many raw records in memory, or too many encoded bytes in the spool."""
        return self.buffered_bytes > self._limit or self._spool.size_bytes > self.spool_limit

    @property
    def may_resume(self) -> bool:
        return self.buffered_bytes < self._limit // 2 and self._spool.size_bytes <= self.spool_limit * 3 // 4

    def heaviest_open(self) -> list[SourcePartition]:
        """Sources whose open segments fill the spool: sealing them frees space once they are stored."""
        limit = self.spool_limit // 2
        waiting = sum(b.file.size_bytes for b in self._open.values())
        if waiting < limit:
            return []
        heaviest = sorted(self._open.values(), key=lambda b: b.file.size_bytes, reverse=True)
        chosen: list[SourcePartition] = []
        for open_segment in heaviest:
            if waiting < limit:
                break
            waiting -= open_segment.file.size_bytes
            chosen.append(open_segment.source)
        return chosen

    @property
    def spool_bytes(self) -> int:
        return self._spool.size_bytes

    def leader_epoch(self, source: SourcePartition) -> int | None:
        """Leader epoch of the last record of the open segment."""
        open_segment = self._open.get(source)
        return open_segment.leader_epoch if open_segment else None

    def oldest_ms(self, source: SourcePartition) -> int | None:
        """Timestamp of the oldest record of `source` that is not stored."""
        unstored = [b for (s, _), b in self._sealed.items() if s == source]
        if source in self._open:
            unstored.append(self._open[source])
        return min((b.oldest_ms for b in unstored if b.oldest_ms is not None), default=None)

    def append(self, source: SourcePartition, start: int, run: Run) -> None:
        """`start`: first offset of the open range; used when this is its first run."""
        open_segment = self._open.get(source)
        if open_segment is None:
            open_segment = self._open[source] = self._begin(source, start)
        if open_segment.oldest_ms is None:
            open_segment.oldest_ms = first_timestamp_ms(run.batch)
        open_segment.pending.append(run.batch)
        open_segment.pending_bytes += run.size_bytes
        open_segment.leader_epoch = run.last_leader_epoch
        self._pending_bytes += run.size_bytes
        if open_segment.pending_bytes >= ROW_GROUP_BYTES:
            self._encode(open_segment)
        else:
            self.encode_early()

    def seal(
        self, source: SourcePartition, seal: Seal, origin: SegmentOrigin, overlapping: Sequence[Segment] = ()
    ) -> None:
        """`overlapping`: stored segments that cover some of these offsets; the new segment must agree with them. Later
        segments are not stored until it is known that it does."""
        open_segment = self._open.pop(source, None)
        if open_segment is None:  # a range without a record
            open_segment = self._begin(source, seal.offsets.start)
        open_segment.overlapping = tuple(overlapping)
        open_segment.predecessor = next(
            (b for (s, _), b in reversed(self._sealed.items()) if s == source and b.overlapping and not b.stored), None
        )
        self._encode(open_segment)
        self._sealed[source, seal.offsets] = open_segment
        sealed_at = time.monotonic()
        segment = Segment(source, LEVEL_STREAMING, seal.offsets)
        open_segment.executor.submit(lambda: self._close(open_segment, segment, seal, origin, sealed_at))

    def _begin(self, source: SourcePartition, start: int) -> OpenSegment:
        executor = SerialExecutor(self._encoders)
        return OpenSegment(source, start, self._format_of(source), self._spool.file(), executor)

    def discard(self, source: SourcePartition, from_offset: int = 0) -> bool:
        """Drop the open segment, and the sealed ones that start at or after `from_offset`. Returns whether uploads of
        some of them are in flight, which may still finish."""
        keys = [key for key in self._sealed if key[0] == source and key[1].start >= from_offset]
        gone = [self._sealed.pop(key) for key in keys]
        self._drop(source, gone)
        return any(b.uploading for b in gone)

    def discard_unconfirmed(self, source: SourcePartition) -> None:
        """Called when the log is gone. Drop the segments that may hold records of another log. Segments that are
        confirmed are still uploaded, since their records exist nowhere else; nothing waits for their outcome."""
        segments = [self._sealed.pop(key) for key in list(self._sealed) if key[0] == source]
        self._drop(source, [b for b in segments if not b.uploading])

    def _drop(self, source: SourcePartition, segments: list[OpenSegment]) -> None:
        if source in self._open:
            segments.append(self._open.pop(source))
        for open_segment in segments:
            _, count = open_segment.take_pending()
            self._pending_bytes -= count
            open_segment.dropped = True
            open_segment.executor.submit(open_segment.remove)

    def uploading(self, source: SourcePartition) -> bool:
        """Whether an upload of `source` is in flight, even of a discarded segment."""
        with self._mutex:
            return self._uploading[source] > 0

    def is_uploading_of(self, partition: TopicPartition) -> bool:
        """As `uploading`, in any archive path of the partition."""
        with self._mutex:
            return any((s.topic, s.partition) == (partition.topic, partition.partition) for s in self._uploading)

    def outcomes(self, timeout_seconds: float = 0) -> list[UploadOutcome]:
        """Outcomes since the last call; waits at most `timeout_seconds` for the first. Left out is that of a segment
        which was stored after it had been discarded, if one of the same offsets was built since: the upload of that one
        finds out whether their records are the same."""
        found: list[tuple[OpenSegment, UploadOutcome]] = []
        try:
            found.append(
                self._outcomes.get(timeout=timeout_seconds) if timeout_seconds else self._outcomes.get_nowait()
            )
            while True:
                found.append(self._outcomes.get_nowait())
        except Empty:
            pass
        return [outcome for open_segment, outcome in found if self._counts(open_segment, outcome)]

    def _counts(self, open_segment: OpenSegment, outcome: UploadOutcome) -> bool:
        if not isinstance(outcome, SegmentStored):
            return True
        key = outcome.source, outcome.seal.offsets
        if self._sealed.get(key, open_segment) is not open_segment:
            return False
        self._sealed.pop(key, None)
        return True

    def close(self, timeout: timedelta = timedelta(seconds=30)) -> None:
        """Shut the pools down. Uploads that have not started are dropped. Those in flight are awaited until `timeout`
        and then abandoned, so that a hanging request does not block the shutdown. The caller closes the spool."""
        self._encoders.shutdown(wait=True, cancel_futures=True)
        self._uploads.shutdown(wait=False, cancel_futures=True)
        with self._idle:
            self._idle.wait_for(lambda: not self._uploading, timeout.total_seconds())

    def encode_early(self) -> None:
        """Encode the largest segments early when memory is short, at the price of smaller row groups."""
        if self._pending_bytes <= self._limit // 2:
            return
        for open_segment in sorted(self._open.values(), key=lambda b: b.pending_bytes, reverse=True):
            self._encode(open_segment)
            if self._pending_bytes <= self._limit // 4:
                break

    def _encode(self, open_segment: OpenSegment) -> None:
        batches, count = open_segment.take_pending()
        if not batches:
            return
        self._pending_bytes -= count
        with self._mutex:
            self._encoding_bytes += count
        open_segment.executor.submit(lambda: self._write(open_segment, batches, count))

    # --- encoder threads ---

    def _write(self, open_segment: OpenSegment, batches: list[RecordBatch], count: int) -> None:
        try:
            if not (open_segment.dropped or open_segment.failed):
                self._writer(open_segment).write(batches)
                open_segment.file.spill_if_needed()
        except Exception as error:  # whatever the cause, these records must be read again
            self._outcomes.put((open_segment, self._failed(open_segment, error)))
        finally:
            batches.clear()
            with self._mutex:
                self._encoding_bytes -= count

    def _close(
        self, open_segment: OpenSegment, segment: Segment, seal: Seal, origin: SegmentOrigin, sealed_at: float
    ) -> None:
        if open_segment.dropped or open_segment.failed:
            return
        try:
            footer = self._writer(open_segment).close(segment, origin)
            open_segment.file.spill_if_needed()
        except Exception as error:
            self._outcomes.put((open_segment, self._failed(open_segment, error)))
            return

        def on_confirmed(same: bool) -> None:
            # on the executor again, since the discarding of the segment runs there too
            with suppress(RuntimeError):  # the pools were shut down: nothing is uploaded any more
                open_segment.executor.submit(
                    lambda: self._confirmed(open_segment, segment, seal, footer, sealed_at, same=same)
                )

        self._confirm(segment.source.topic, origin, on_confirmed)

    def _confirmed(
        self,
        open_segment: OpenSegment,
        segment: Segment,
        seal: Seal,
        footer: SegmentFooter,
        sealed_at: float,
        *,
        same: bool,
    ) -> None:
        if open_segment.dropped:
            return
        if not same:
            open_segment.remove()
            self._outcomes.put((open_segment, TopicRecreated(open_segment.source, seal.offsets)))
            return

        def upload() -> None:
            open_segment.uploading = True
            self._uploads.submit(self._upload, open_segment, segment, seal, footer, sealed_at)

        with self._mutex:
            if open_segment.predecessor is not None and not open_segment.predecessor.stored:
                open_segment.predecessor.waiting.append(upload)
                return
        upload()

    def _writer(self, open_segment: OpenSegment) -> SegmentWriter:
        if open_segment.writer is None:
            open_segment.writer = open_segment.format.create(as_binary(open_segment.file))
        return open_segment.writer

    def _failed(self, open_segment: OpenSegment, error: Exception) -> SpoolLost:
        open_segment.failed = True
        log.error("segment_lost_before_it_was_stored", exc_info=error)
        open_segment.remove()
        return SpoolLost(open_segment.source, open_segment.start, f"{type(error).__name__}: {error}")

    # --- upload threads ---

    def _upload(
        self, open_segment: OpenSegment, segment: Segment, seal: Seal, footer: SegmentFooter, sealed_at: float
    ) -> None:
        with self._mutex:
            self._uploading[open_segment.source] += 1
        try:
            if not open_segment.dropped:  # checked after counting: a segment dropped earlier is never uploaded
                outcome = self._uploaded(open_segment, segment, seal, footer, sealed_at)
                open_segment.file.remove()  # before the outcome, so that its reader finds the space freed
                open_segment.uploading = False
                self._outcomes.put((open_segment, outcome))
                if isinstance(outcome, SegmentStored):
                    self._release(open_segment)
        finally:
            open_segment.file.remove()
            with self._idle:
                self._uploading[open_segment.source] -= 1
                self._uploading += Counter()  # drops the entries at 0
                self._idle.notify_all()

    def _release(self, open_segment: OpenSegment) -> None:
        with self._mutex:
            open_segment.stored = True
            waiting, open_segment.waiting = open_segment.waiting, []
        with suppress(RuntimeError):  # the pools were shut down
            for upload in waiting:
                upload()

    def _uploaded(
        self, open_segment: OpenSegment, segment: Segment, seal: Seal, footer: SegmentFooter, sealed_at: float
    ) -> UploadOutcome:
        source, size = open_segment.source, open_segment.file.size_bytes
        try:
            new = self._uploader.upload(segment, open_segment.file, footer, open_segment.overlapping)
        except TransientError as error:
            return UploadFailed(source, seal.offsets, error)
        except (DataError, TargetError) as error:
            return UploadConflict(source, seal.offsets, error)
        except Exception as error:  # the spool file cannot be read, most likely
            return self._failed(open_segment, error)
        return SegmentStored(source, seal, footer, size, time.monotonic() - sealed_at, new)
