"""Fills holes of one target partition by aborted transactions, on a transactional id of its own.

    take over: init ─> transactions of earlier owners have ended ─> the log's end stays, unless others write
    Fillers    begin ─> one record, then the others ─> acknowledged, where expected ─> abort ─> the marker is in the log
    Marker     begin ─> one record queued, never sent: the client registers its partition ─> abort ─> the same

`EndTxn` answers before the marker is in the log, and a record produced then might land before it (seen): each step
ends when the end of the stable log shows the marker. An abort that comes before the partition is registered leaves no
marker, and no trace. Then the transaction is ended for certain by another init, and tried again with more time.

A coordinator that takes the place of one that died writes the marker of an unfinished transaction again. It has done so
before the next transaction's first record is accepted. So that record shows where the hole really begins: where
the hole has room for what came in between, the transaction ends at once, and the next step fills what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn, assert_never

import pyarrow as pa
from confluent_kafka import KafkaError

from formats.errors import BrokerUnavailable, ReplicatorError
from formats.holes import Fillers, Marker, Overtaken, next_step
from formats.records.schema import SCHEMA
from infra.contracts.producer import FailureKind, TargetRun
from infra.kafka.client.errors import describe_error
from infra.kafka.client.idempotent_producer import SECONDARY
from infra.kafka.producer.preserve_failures import RunEnded, not_acknowledged
from infra.kafka.producer.rejections import REJECTIONS, run_failed
from infra.kafka.producer.transactional_producer import MustAbort, TransactionalProducer
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Deadline

FILLER_KEY = b""  # a compacted topic accepts no record without a key
REGISTERED_AFTER, AT_MOST = timedelta(milliseconds=3), timedelta(seconds=1)  # for the client to register a partition
MARKED_WITHIN = timedelta(milliseconds=500)  # the marker of an aborted transaction is in the log, else there is none
VISIBLE_WITHIN = timedelta(seconds=20)  # the high watermark follows the replicas
NO_TRANSACTION = KafkaError.INVALID_TXN_STATE
SERVED_EVERY = timedelta(milliseconds=1)  # between two requests for the log's end


class NotAsExpected(ReplicatorError):
    """The log has an offset that is not ours: others write to the partition."""


def _unsent(properties: Mapping[str, object]) -> Mapping[str, object]:
    """For as long as the client allows, what is queued is not sent without a flush: where the process stands still
    within a step, the client's own thread sends what has lingered. At the timeout it expires instead."""
    return {"linger.ms": int(str(properties["message.timeout.ms"])) - 1}


class HoleFiller:
    """Of one partition. Use from one thread. Its methods raise BrokerUnavailable when stopped or when no broker
    answers: take over again. They raise WriterRefused when the target rejects the writer, RunEnded when it rejects what
    is written to this partition, or acknowledges none of it, NotAsExpected when others write."""

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        transactional_id: str,
        sample: TargetRun,
        stable_end: Callable[[], int],
        memory_bytes: int,
    ) -> None:
        """`properties`: the result of `transactional_properties`. `sample`: any run to the partition."""
        self._properties = {**properties, **_unsent(properties), "transactional.id": transactional_id}
        self._id, self._partition = transactional_id, sample.partition
        self._sample, self._stable_end, self._memory_bytes = sample.without_records, stable_end, memory_bytes
        self._pause = REGISTERED_AFTER
        self.has_met_others = False  # in the last `fill`
        self._producer: TransactionalProducer | None = None

    def take_over(self, should_stop: Callable[[], bool]) -> None:
        """Return once no transaction of this id is open, by whichever process, and none can be any more."""
        self.close()
        producer = TransactionalProducer(self._properties)
        try:
            with durable(Step.TAKE_OVER):
                producer.init(should_stop)
        except (MustAbort, BrokerUnavailable) as error:
            producer.end(timedelta())
            self._raise(error, f"transactional id {self._id}")
        self._producer = producer

    def fill(self, end: int, wanted: int, should_stop: Callable[[], bool], *, most: int) -> int:
        """Bring the log from `end` to `wanted`, or some way there: at least one step, and until `most` offsets are
        filled. Returns the new end. `has_met_others` says whether others have written into the hole meanwhile."""
        begun_at, self.has_met_others = end, False
        while (step := next_step(end, wanted)) is not None and end - begun_at < most:
            match step:
                case Overtaken():
                    raise NotAsExpected(f"it ends at {end}, and {wanted} is expected")
                case Fillers(count=count):
                    end = self._fillers(end, count, should_stop)
                case Marker():
                    end = self._marker(end, should_stop)
                case _:
                    assert_never(step)
        return end

    def close(self) -> None:
        """An open transaction is ended by the next owner of the id, or by its timeout. May be called twice."""
        if self._producer is not None:
            self._producer.end(timedelta())
            self._producer = None

    def _fillers(self, end: int, count: int, should_stop: Callable[[], bool]) -> int:
        producer = self._begun(should_stop)
        lies = self._sent(producer, end, 1, should_stop)
        is_ours = lies == end
        if is_ours and count > 1:
            is_ours = self._sent(producer, end + 1, count - 1, should_stop) == end + 1
        if not self._abort(producer, should_stop):
            self.close()
            raise BrokerUnavailable(f"the transaction of {self._id} has ended before its time")
        if is_ours:
            return self._seen(end + count + 1, should_stop)
        if not end < lies < end + count:
            raise NotAsExpected(f"fillers lie from {lies} on, and {end} is expected")
        self.has_met_others = True
        return self._seen(lies + 2, should_stop)

    def _sent(self, producer: TransactionalProducer, first: int, count: int, should_stop: Callable[[], bool]) -> int:
        """Where the first of so many fillers lies; -1: not in a row."""
        run = self._run(count)
        try:
            with durable(Step.FILL_HOLE):
                reports = producer.send(
                    run, self._partition, memory_bytes=self._memory_bytes, wait=producer.progress_check(should_stop)
                )
                producer.acknowledged(should_stop)
        except (MustAbort, BrokerUnavailable) as error:
            self._raise(error, f"fill {count} offsets of {self._partition} from {first} on")
        return reports.first_offset if reports.is_contiguous else -1

    def _marker(self, end: int, should_stop: Callable[[], bool]) -> int:
        producer = self._begun(should_stop)
        with durable(Step.FILL_HOLE):
            producer.put(
                self._partition.topic,
                key=FILLER_KEY,
                value=None,
                owner=self._partition,
                wait=producer.progress_check(should_stop),
                partition=self._partition.partition,
            )
            deadline = Deadline(self._pause)
            while not deadline.expired:
                producer.serve(deadline.left)
            if (cause := self._cause(producer)) is not None:  # it is never registered: time does not help
                reason = MustAbort(describe_error(cause), cause=cause)
                self._raise(reason, f"fill offset {end} of {self._partition}")
        was_registered = self._abort(producer, should_stop)
        deadline = Deadline(MARKED_WITHIN if was_registered else timedelta())
        while not deadline.expired:
            if self._stable_end() > end:
                return self._seen(end + 1, should_stop)
            producer.serve(SERVED_EVERY)
        self._pause = min(self._pause * 2, AT_MOST)
        if should_stop():
            raise BrokerUnavailable(f"stopped before offset {end} of {self._partition} was filled")
        self.take_over(should_stop)
        return self._seen(end, should_stop) if self._stable_end() == end else self._seen(end + 1, should_stop)

    def _begun(self, should_stop: Callable[[], bool]) -> TransactionalProducer:
        if self._producer is None:
            self.take_over(should_stop)
        assert self._producer is not None
        try:
            with durable(Step.BEGIN_TRANSACTION):
                self._producer.begin()
        except MustAbort as error:
            self._raise(error, f"begin a transaction of {self._id}")
        return self._producer

    def _abort(self, producer: TransactionalProducer, should_stop: Callable[[], bool]) -> bool:
        """False: there was none, since no partition was registered yet."""
        try:
            with durable(Step.END_HOLE):
                producer.abort(should_stop)
        except (MustAbort, BrokerUnavailable) as error:
            if isinstance(error, MustAbort) and error.cause is not None and error.cause.code() == NO_TRANSACTION:
                return False
            self._raise(error, f"abort a transaction of {self._id}")
        return True

    def _seen(self, expected: int, should_stop: Callable[[], bool]) -> int:
        """Wait until the stable log ends at `expected`."""
        assert self._producer is not None
        deadline = Deadline(VISIBLE_WITHIN)
        while (end := self._stable_end()) < expected:
            if should_stop() or deadline.expired:
                raise BrokerUnavailable(f"{self._partition} ends at {end}, and {expected} is written already")
            self._producer.serve(SERVED_EVERY)
        if end > expected:
            raise NotAsExpected(f"it ends at {end}, and {expected} is expected")
        return end

    def _run(self, count: int) -> TargetRun:
        """Fillers: records without a value, of now, since topics refuse old timestamps."""
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        same = {"timestamp": pa.scalar(now_ms, SCHEMA.field("timestamp").type), "key": pa.scalar(FILLER_KEY)}
        columns = [
            pa.repeat(same[field.name], count).cast(field.type)
            if field.name in same
            else pa.array(range(count), field.type)
            if field.name == "offset"
            else pa.repeat(pa.scalar(0, field.type), count)
            if field.name == "timestamp_type"
            else pa.nulls(count, field.type)
            for field in SCHEMA
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return replace(self._sample, batches=(batch,), count=count, size_bytes=count)

    def _cause(self, producer: TransactionalProducer) -> KafkaError | None:
        """Why the open transaction has to be aborted. It has one partition, so the cause is about that."""
        named = producer.failures.get(self._partition)
        return named if named is not None and named.code() not in SECONDARY else producer.cause()

    def _raise(self, error: MustAbort | BrokerUnavailable, operation: str) -> NoReturn:
        cause = error.cause if isinstance(error, MustAbort) else None
        if cause is None and isinstance(error, MustAbort) and self._producer is not None:
            cause = self._cause(self._producer)
        is_stalled = self._producer is not None and self._producer.stalled
        self.close()
        if cause is not None and cause.code() in REJECTIONS:
            refused = run_failed(self._partition, cause, prefix=f"{operation}: ")  # raises WriterRefused
            raise RunEnded(replace(refused, kind=FailureKind.DENIED)) from error  # no record of a run is at fault
        reason = f"{operation}: {error if cause is None else describe_error(cause)}"
        if is_stalled:  # of this partition alone
            raise RunEnded(not_acknowledged(self._partition, reason)) from error
        raise BrokerUnavailable(reason) from error
