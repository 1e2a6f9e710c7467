"""Runs of records that the client works on after the call that queued them: what it has of ours, and until when.

Lent is the memory in which the client's own threads count the outcomes of the records (`run_t` of
`infra/kafka/native/produce.c`), and the Arrow batches, whose values the client reads where they are. Keys, header names
and header values are copied when a record is queued.

Rules
  1. The client gives each record that it has queued exactly one outcome: acknowledged, or failed with a code, such as
     too large for the topic, expired, purged, or in flight when the producer died. An aborted transaction, a fence and
     a broker that went away are such outcomes, too. Before it, the client may read the value, repeatedly; it never does
     afterwards, since its own copies are freed then as well. The outcome is counted last.
  2. A record that the client rejects (queue full, larger than message.max.bytes, no transaction open, producer dead) is
     not queued: nothing of it is kept, and it has no outcome.
  3. So a run comes back, with its memory and its batches, when no more of it is queued (`end`) and each queued record
     has its outcome. What was counted stays known.
  4. Closing a client ends its threads: whatever is lent comes back. A client that could not be closed, because a call
     into it never returned, or that was dropped unclosed, may read and count for as long as the process runs: what it
     has stays lent for ever. Leaked memory is the price; freed memory would be somebody else's records in a log.
  5. The interpreter frees its objects when it ends, and the client's threads may still run then. So what is lent has a
     reference that belongs to no Python object, and memory that Python does not manage.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from infra.kafka.client.delivery_reports import NO_OFFSET
from infra.kafka.client.librdkafka import compiled

if TYPE_CHECKING:
    from pyarrow import Int64Array, RecordBatch

CODES = 16

_keep = ctypes.pythonapi.Py_IncRef
_give_up = ctypes.pythonapi.Py_DecRef
_keep.argtypes = _give_up.argtypes = (ctypes.py_object,)
_keep.restype = _give_up.restype = None


class _Counts(ctypes.Structure):
    """The begin of `run_t`."""

    _fields_ = (
        ("queued", ctypes.c_int64),
        ("reported", ctypes.c_int64),
        ("acknowledged", ctypes.c_int64),
        ("first_offset", ctypes.c_int64),
        ("last_offset", ctypes.c_int64),
        ("codes", ctypes.c_int32),
        ("code", ctypes.c_int32 * CODES),
    )


class LentRun:
    """The Reports of a run of `count` records, which the client sends in order to one partition. Use from one thread,
    that of the producer."""

    __slots__ = ("_acknowledged", "_batches", "_counts", "_ended", "_last_offset", "_queued", "_reported", "count",
                 "errors", "first_offset", "state")  # fmt: skip

    keeps_each = False
    each_offset: Int64Array | None = None

    def __init__(self, count: int) -> None:
        self.count, self._ended = count, False
        self.errors: list[KafkaError] = []  # each code once, in the order of their coming
        self.first_offset = self._last_offset = NO_OFFSET
        self._acknowledged = self._reported = self._queued = 0
        # memory and reference: from here on the client may have them, see the rules
        self.state: int | None = compiled("produce").quick("replicator_run_new", ctypes.c_void_p)()
        if self.state is None:
            raise MemoryError
        self._counts = _Counts.from_address(self.state)
        self._batches: list[RecordBatch] | None = []
        _keep(self._batches)

    def collect(self) -> bool:
        """Whether every record is acknowledged, as far as the reports show."""
        self._read()
        return self.is_contiguous

    @property
    def queued(self) -> int:
        """Records that the client has taken, as counted where it takes them."""
        self._read()
        return self._queued

    @property
    def is_back(self) -> bool:
        """Whether the client has nothing of it any more."""
        return self.state is None

    @property
    def is_contiguous(self) -> bool:
        """Whether every record is acknowledged, and they lie one after the other from `first_offset` on."""
        return self._is_placed and self._last_offset - self.first_offset + 1 == self.count

    @property
    def is_interleaved(self) -> bool:
        """Whether every record is acknowledged, with those of others between them."""
        return self._is_placed and self._last_offset - self.first_offset + 1 > self.count

    @property
    def _is_placed(self) -> bool:
        return self._acknowledged == self.count and self.first_offset >= 0 and self._last_offset >= 0

    def lend(self, batch: RecordBatch) -> None:
        """Before any record of it is queued."""
        assert self._batches is not None
        self._batches.append(batch)

    def end(self) -> None:
        """No more of its records are queued."""
        self._ended = True

    def come_back(self, *, closed: bool = False) -> bool:
        """Take back what the client has no use for any more. `closed`: the client's threads have ended."""
        if self.state is None:
            return True
        self._read()
        if not closed and not (self._ended and self._reported == self._queued):
            return False
        assert self._batches is not None
        compiled("produce").quick("replicator_run_free", None, ctypes.c_void_p)(self.state)
        _give_up(self._batches)
        self.state = self._batches = None
        return True

    def _read(self) -> None:
        if self.state is None:
            return
        counts = self._counts
        self._queued = counts.queued
        self._reported = counts.reported  # first: what belongs to so many reports is there already
        self._acknowledged = counts.acknowledged
        self.first_offset, self._last_offset = counts.first_offset, counts.last_offset
        for code in counts.code[len(self.errors) : counts.codes]:
            self.errors.append(KafkaError(code))
