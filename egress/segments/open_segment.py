"""A segment in the making: records that wait to be encoded, and the spool file that holds the encoded ones."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from egress.segments.spool import SpoolFile
from formats.registry import SegmentFormat, SegmentWriter
from formats.segment import Segment, SourcePartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class SerialExecutor:
    """Runs the jobs of one segment one after another on a pool, and occupies no thread between them."""

    def __init__(self, pool: Executor) -> None:
        self._pool, self._mutex = pool, threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._running = False

    def submit(self, job: Callable[[], None]) -> None:
        with self._mutex:
            self._jobs.append(job)
            if self._running:
                return
            self._running = True
        self._pool.submit(self._run)

    def _run(self) -> None:
        with self._mutex:
            job = self._jobs.popleft()
        try:
            job()
        finally:  # the jobs behind it have outcomes of their own
            with self._mutex:
                self._running = has_more = bool(self._jobs)
            if has_more:
                self._pool.submit(self._run)


@dataclass(slots=True, eq=False)
class OpenSegment:
    source: SourcePartition
    start: int
    format: SegmentFormat
    file: SpoolFile
    executor: SerialExecutor
    pending: list[RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    oldest_ms: int | None = None  # timestamp of the first record
    leader_epoch: int | None = None
    # stored segments with some of the same offsets; this one must agree with them
    overlapping: tuple[Segment, ...] = ()
    # an earlier segment that has to be stored first: until then this one may be of another log than the archive
    predecessor: OpenSegment | None = None
    stored: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)  # uploads of the segments that wait for this one
    writer: SegmentWriter | None = None  # encoder threads only, from here on
    failed: bool = False
    dropped: bool = False  # its outcome is not needed any more
    uploading: bool = False  # only the upload thread removes the file then: it must not shrink while it is read

    def take_pending(self) -> tuple[list[RecordBatch], int]:
        """Remove and return the batches to encode, with the count of their raw bytes."""
        batches, count = self.pending, self.pending_bytes
        self.pending, self.pending_bytes = [], 0
        return batches, count

    def remove(self) -> None:
        """Abort the writer and remove the file, unless an upload reads it. Runs on the executor."""
        if self.writer is not None:
            self.writer.abort()
        if not self.uploading:
            self.file.remove()
