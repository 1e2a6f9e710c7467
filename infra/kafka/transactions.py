"""Exactly-once delivery: records, checkpoints and the fence in one transaction of the target.

    begin ─> records ─> all acknowledged ─> checkpoints ─> fence: group offsets under the snapshot ─> commit
       │ crash up to the commit: nothing is visible; the next owner waits for the abort, and finds the old checkpoints
       │ crash behind it: everything is visible, checkpoints too
       ├ a run is refused: abort; it alone is answered as failed, the others are to be delivered again at once
       ├ the generation has moved on: the fence is refused, abort
       └ the answer to the commit is lost: `unknown`; the next producer of this id finishes or aborts it first

The group offsets are a fence and nothing else. The position is the checkpoint.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from infra.kafka.errors import told
from infra.kafka.idempotent import SECONDARY, SLICE, IdempotentProducer, transactional_properties
from infra.kafka.owner import Owner
from infra.kafka.refusals import BATCH_BYTES, BatchSizes, run_failed
from replicator.checkpoint import Author, encode, encode_key
from replicator.durable import Step, durable
from replicator.errors import BrokerUnavailable, OwnershipLost, ReplicatorError
from replicator.lifecycle import Deadline
from replicator.protocols import Fate, RunFailed, TargetRun, TopicPartition

STALLED_AFTER = timedelta(seconds=10)  # without an acknowledgement: some partition has no leader, or too few replicas
ABORT_WITHIN = timedelta(seconds=10)
FENCED_WITHIN = timedelta(seconds=10)
COMMITTED_WITHIN = timedelta(seconds=20)
STEP = timedelta(seconds=1)  # longest call of the client before anybody is asked whether to go on
CHECKPOINTS = TopicPartition("", -1)  # under which failures of checkpoint records are filed


class _Refused(ReplicatorError):
    """The transaction has to be aborted: nothing of it will be in the target. `abortable`: the client said so itself,
    and goes on after an abort."""

    def __init__(self, reason: str, *, abortable: bool = True) -> None:
        super().__init__(reason)
        self.abortable = abortable


class _Unknown(ReplicatorError):
    """The transaction may have been committed."""


class TransactionalWriter:
    """A TargetWriter whose every call is one transaction."""

    author = Author.EXACTLY_ONCE

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        transactional_id: str,
        exclusive: bool = True,
        transaction_timeout: timedelta,
        checkpoint_topic: str,
        memory_bytes: int,
    ) -> None:
        """Connects when first used. Of two processes with one id the older is fenced: not `exclusive`, because somebody
        chose it, that is the end of the older one; a made-up id is only fenced when its owner was frozen for longer
        than the timeout, and then goes on. A process that dies in a transaction holds up whoever takes its partitions
        for `transaction_timeout`. Raises ConfigError."""
        self._properties = transactional_properties(
            properties, memory_bytes=memory_bytes, transaction_timeout=transaction_timeout
        )
        self._id = transactional_id
        self._exclusive = exclusive
        self._checkpoint_topic = checkpoint_topic
        self._memory_bytes = memory_bytes
        self._sizes = BatchSizes()
        self._producers: dict[int, _Transactions] = {}  # by batch size
        self._owner: Owner | None = None  # asked after each init; None: a group fences

    def lane(self, topic: str) -> int:
        return self._sizes.of(topic)

    def take_over(self, within: timedelta, owner: Owner) -> None:
        """When this returns, whoever had this id before can write nothing more, and its transactions have ended: what
        is read now holds. Raises BrokerUnavailable."""
        deadline = Deadline(within)
        for lane in BATCH_BYTES:
            self._connect(lane, lambda: deadline.expired)
        for lane in BATCH_BYTES:  # each has an id of its own: the word of each keeps out who comes back to that one
            self._say(lane, owner.record, lambda: deadline.expired)
        for lane in BATCH_BYTES[1:]:  # seldom needed again
            self._producers.pop(lane).end(timedelta())
        self._owner = owner

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        """See TargetWriter. Raises OwnershipLost when another process has taken this one's place."""
        coming = iter(runs)
        first = next(coming, None)
        if first is None:
            return []
        lane, last = self.lane(first.partition.topic), dict[TopicPartition, TargetRun]()
        producer = self._begun(lane, should_stop)
        try:
            with durable(Step.PRODUCE_RECORDS):
                for run in chain([first], coming):
                    last[run.partition] = replace(run, batches=())
                    producer.send(run, run.partition, memory_bytes=self._memory_bytes, wait=producer.going(should_stop))
                producer.acknowledged(should_stop)
            self._checkpoint(producer, last, should_stop)
            if fence is not None:
                with durable(Step.SEND_OFFSETS):
                    producer.fence(last.values(), fence, should_stop)
            with durable(Step.COMMIT_TRANSACTION):
                producer.commit(should_stop)
        except _Unknown as error:
            self._renew(lane, producer)
            raise BrokerUnavailable(f"whether a transaction was committed is not known: {error}") from error
        except _Refused as error:
            return self._aborted(lane, producer, last, error)
        except BrokerUnavailable:  # told to stop: the partitions may be leaving, so no more time than it takes
            self._producers.pop(lane, None)
            producer.end(STEP)
            raise
        except BaseException:
            self._renew(lane, producer)  # the caller's own failure: nothing of it may become visible
            raise
        return []

    def close(self, timeout: timedelta) -> None:
        """Abort what is open and release everything. May be called twice; the next `deliver` connects again."""
        deadline = Deadline(timeout)
        while self._producers:
            _, producer = self._producers.popitem()
            producer.end(deadline.left)

    def _begun(self, lane: int, should_stop: Callable[[], bool]) -> _Transactions:
        producer = self._producers[lane] if lane in self._producers else self._connect(lane, should_stop)
        try:
            with durable(Step.BEGIN_TRANSACTION):
                producer.begin()
        except _Refused as error:
            self._renew(lane, producer)
            raise BrokerUnavailable(f"begin a transaction: {error}") from error
        return producer

    def _connect(self, lane: int, should_stop: Callable[[], bool]) -> _Transactions:
        """Fences whoever had this id before, and waits for the end of its transaction."""
        size = {} if lane == BATCH_BYTES[0] else {"batch.size": lane}
        producer = _Transactions({**self._properties, **size, "transactional.id": f"{self._id}.{lane}"})
        try:
            producer.init(should_stop)
        except (_Refused, BrokerUnavailable) as error:
            producer.end(timedelta())
            raise BrokerUnavailable(f"transactional id {self._id}.{lane}: {error}") from error
        if self._owner is not None:
            try:
                self._owner.confirm()
            except ReplicatorError:
                producer.end(timedelta())
                raise
        self._producers[lane] = producer
        return producer

    def _say(self, lane: int, record: tuple[bytes, bytes], should_stop: Callable[[], bool]) -> None:
        producer = self._producers[lane]
        try:
            producer.begin()
            self._write(producer, [record], should_stop)
            with durable(Step.TAKE_OVER):
                producer.commit(should_stop)
        except (_Refused, _Unknown) as error:
            self._producers.pop(lane).end(timedelta())
            raise BrokerUnavailable(f"take over the transactional id {self._id}.{lane}: {error}") from error

    def _renew(self, lane: int, producer: _Transactions) -> None:
        """A new producer, at once if it can be: the checkpoint topic cannot be read past an open transaction."""
        self._producers.pop(lane, None)
        producer.end(timedelta())
        fenced = producer.fatal is not None and producer.fatal.code() == KafkaError._FENCED
        if fenced and not self._exclusive and self._owner is None:  # an owner is asked, once connected
            raise OwnershipLost(
                f"another process has the transactional id {self._id}, or this one was frozen: is the same "
                "group.instance.id given twice? This process ends; start it again if it is the right one"
            )
        deadline = Deadline(ABORT_WITHIN)
        try:
            self._connect(lane, lambda: deadline.expired)
        except BrokerUnavailable:
            return  # the next `deliver` tries again, and says so; the broker aborts by timeout meanwhile

    def _checkpoint(
        self, producer: _Transactions, last: Mapping[TopicPartition, TargetRun], should_stop: Callable[[], bool]
    ) -> None:
        with durable(Step.PRODUCE_CHECKPOINT):
            self._write(producer, [(encode_key(r.key), encode(r.checkpoint)) for r in last.values()], should_stop)

    def _write(
        self, producer: _Transactions, records: Iterable[tuple[bytes, bytes]], should_stop: Callable[[], bool]
    ) -> None:
        """Into the checkpoint topic, acknowledged."""
        for key, value in records:
            producer.put(
                self._checkpoint_topic, key=key, value=value, owner=CHECKPOINTS, wait=producer.going(should_stop)
            )
        producer.acknowledged(should_stop)

    def _aborted(
        self,
        lane: int,
        producer: _Transactions,
        last: Mapping[TopicPartition, TargetRun],
        error: ReplicatorError,
    ) -> Sequence[RunFailed]:
        """Who is to blame, once nothing of the transaction can become visible."""
        stalled, refused_here = producer.stalled, producer.refused_here.copy()
        with durable(Step.ABORT_TRANSACTION):
            # The client's own abort purges its queues, which goes on in the background and takes records of the next
            # transaction, too (seen). So the next producer of this id aborts, as it begins.
            self._renew(lane, producer)
        causes = producer.failures
        found: dict[TopicPartition, RunFailed] = {}
        for partition, cause in causes.items():
            if partition == CHECKPOINTS or (cause.code() in SECONDARY and not stalled):
                continue
            if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE and partition not in refused_here:
                found[partition] = self._sizes.refused(partition, cause)
            elif stalled and cause.code() in SECONDARY:
                reason = (
                    f"no acknowledgement for {STALLED_AFTER}: is it without a leader, or below min.insync.replicas?"
                )
                found[partition] = RunFailed(partition, "STALLED", reason, Fate.STALLED)
            else:
                found[partition] = run_failed(partition, cause)
        if found:
            return [found.get(p) or _innocent(p, error) for p in last]
        if CHECKPOINTS in causes:
            what = f"their checkpoint in {self._checkpoint_topic} is refused: "
            return [replace(run_failed(p, causes[CHECKPOINTS], prefix=what), partition=p) for p in last]
        return [RunFailed(p, "ABORTED", str(error), Fate.RETRY) for p in last]


def _innocent(partition: TopicPartition, error: ReplicatorError) -> RunFailed:
    return RunFailed(partition, "ABORTED", f"another partition's failure: {error}", Fate.AT_ONCE)


class _Transactions(IdempotentProducer[TopicPartition]):
    """A transactional producer. Raises _Refused when the transaction has to be aborted, _Unknown when it may have been
    committed, BrokerUnavailable when told to stop before either."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        super().__init__(properties)
        self.stalled = False
        self._left, self._since = 0, time.monotonic()
        timeout_ms = int(str(properties["transaction.timeout.ms"]))
        # as long as the transaction of somebody who died may last
        self._init_within = timedelta(milliseconds=timeout_ms) + ABORT_WITHIN
        self._hangs = False  # a call into the client never came back: nothing may touch it any more

    def init(self, should_stop: Callable[[], bool]) -> None:
        self._bounded(
            lambda: self._client.init_transactions(STEP.total_seconds()), should_stop, within=self._init_within
        )

    def begin(self) -> None:
        self.stalled, self.failures, self._left = False, {}, 0
        self._until(self._client.begin_transaction, lambda: True)

    def going(self, should_stop: Callable[[], bool]) -> Callable[[], None]:
        """To be called while waiting: raises when the transaction cannot succeed any more."""

        def check() -> None:
            self._refuse_failures()
            if len(self) != self._left:
                self._left, self._since = len(self), time.monotonic()
            elif self._left and time.monotonic() - self._since > STALLED_AFTER.total_seconds():
                self.stalled = True
                raise _Refused(f"{self._left} records are not acknowledged for {STALLED_AFTER}")
            if should_stop():
                raise BrokerUnavailable("told to stop before the transaction was complete")

        return check

    def acknowledged(self, should_stop: Callable[[], bool]) -> None:
        """Everything handed over so far is in the target's log."""
        check = self.going(should_stop)
        while len(self) and not self.failures and self.fatal is None:
            self._guarded(lambda: self._client.flush(SLICE.total_seconds()))
            if len(self):
                check()
        self._refuse_failures()

    def fence(self, runs: Iterable[TargetRun], fence: Any, should_stop: Callable[[], bool]) -> None:
        """The target takes the transaction only while `fence` names the group's generation."""
        offsets = [
            ClientPartition(run.partition.topic, run.partition.partition, run.checkpoint.next_offset) for run in runs
        ]
        self._bounded(
            lambda: self._client.send_offsets_to_transaction(offsets, fence, STEP.total_seconds()),
            should_stop,
            within=FENCED_WITHIN,
        )

    def commit(self, should_stop: Callable[[], bool]) -> None:
        try:
            self._bounded(
                lambda: self._client.commit_transaction(STEP.total_seconds()), should_stop, within=COMMITTED_WITHIN
            )
        except BrokerUnavailable as error:
            raise _Unknown(str(error)) from error
        except _Refused as error:
            if not error.abortable:
                raise _Unknown(str(error)) from error
            raise

    def end(self, grace: timedelta) -> None:
        """Abort if it can be done within `grace`; a new producer of this id, or the timeout, does it else."""
        if self._hangs:
            return
        if grace > timedelta() and self.fatal is None:
            deadline = Deadline(grace)
            with contextlib.suppress(ReplicatorError):  # no transaction was open, or it ends by itself
                self._until(
                    lambda: self._client.abort_transaction(min(STEP, grace).total_seconds()), lambda: deadline.expired
                )
        self.close(timedelta())

    def _refuse_failures(self) -> None:
        if self.failures:
            owner, cause = next(iter(self.failures.items()))
            raise _Refused(f"{owner}: {told(cause)}")
        if self.fatal is not None:
            raise _Refused(told(self.fatal), abortable=False)

    def _bounded(self, call: Callable[[], object], should_stop: Callable[[], bool], *, within: timedelta) -> None:
        """`_until`, but not for ever. The client's own time limits do not always hold: when the connection to a
        coordinator was lost, a call may never return (librdkafka issue 5456; seen). So it is made on a thread that can
        be left behind, with its client; the next producer of this id ends the transaction."""
        answer: Future[None] = Future()

        def run() -> None:
            try:
                self._until(call, should_stop)
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        threading.Thread(target=run, name="transaction", daemon=True).start()
        deadline = Deadline(within)
        while not wait([answer], SLICE.total_seconds()).done:
            if should_stop() and deadline.left > 2 * STEP:
                deadline = Deadline(2 * STEP)  # the call itself notices within one
            if deadline.expired:
                self._hangs = True
                raise _Refused(f"the client did not answer within {within}", abortable=False)
        answer.result()

    def _until(self, call: Callable[[], object], should_stop: Callable[[], bool]) -> None:
        """Again while the client says that it may be called again: it goes on where it was."""
        while True:
            try:
                call()
                return
            except KafkaException as raised:
                error = raised.args[0]
                if error.fatal():
                    self._died(raised)
                    raise _Refused(told(error), abortable=False) from raised
                if error.txn_requires_abort() or not error.retriable():
                    raise _Refused(f"{error.name()}: {told(error)}", abortable=error.txn_requires_abort()) from raised
                if should_stop():
                    raise BrokerUnavailable(told(error)) from raised
