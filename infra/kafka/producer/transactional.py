"""Exactly-once delivery: records, checkpoints and the fence in one transaction of the target.

    begin ─> records ─> all acknowledged ─> offset map, checkpoints ─> fence: group offsets under the snapshot ─> commit
       │ crash before the commit: nothing is visible; the next owner waits for the abort and finds the old checkpoints
       │ crash after it: everything is visible, including the checkpoints
       ├ a run is rejected: abort; it alone is returned as failed, the others are to be delivered again at once
       ├ others write to a destination, too: abort; its runs are to be delivered again, each offset checked
       ├ the writer or its checkpoints are rejected: abort, WriterRefused; no run is the cause
       ├ the group has a newer generation: the fence is rejected, abort
       └ the answer to the commit is lost: `unknown`; the next producer of this id first completes or aborts it

The group offsets serve as a fence only. The position is the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import timedelta
from functools import partial
from itertools import chain

from confluent_kafka import KafkaError

from formats.errors import BrokerUnavailable, OwnershipLost, ReplicatorError, WriterRefused
from formats.messages.delivery_checkpoint import (
    Author,
    CheckpointKey,
    Skipped,
    encode,
    encode_key,
    encode_skipped,
    encode_skipped_key,
)
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.kafka.client.admin_answers import CONNECTED
from infra.kafka.client.errors import describe_error
from infra.kafka.client.idempotent_producer import SECONDARY, transactional_properties
from infra.kafka.internal_topics.ensure import CHECKPOINT_PARTITION
from infra.kafka.producer.abort_causes import Abort, attribute_failures
from infra.kafka.producer.offset_pages import OffsetPages, SentRun, send_run
from infra.kafka.producer.own_topics import OwnTopics
from infra.kafka.producer.ownership import Owner
from infra.kafka.producer.rejections import (
    BATCH_BYTES,
    BatchSizes,
    writer_rejection,
)
from infra.kafka.producer.transactional_producer import (
    ABORT_WITHIN,
    CALL_TIMEOUT,
    STALLED_AFTER,
    MustAbort,
    OutcomeUnknown,
    TransactionalProducer,
)
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import DESTINATION, NEXT

OWN_TOPICS = TopicPartition("", -1)  # the owner under which failures of records of our topics are recorded

log = logging.getLogger(__name__)


_Commit = Callable[[TransactionalProducer, Callable[[], bool]], None]


class _CheckpointsRejected(ReplicatorError):
    """The records are acknowledged, but what our topics say of them is not: the transaction has to be aborted."""

    def __init__(self, reason: str, topic: str, refused: WriterRefused | None) -> None:
        super().__init__(reason)
        self.topic = topic
        self.refused = refused  # None: the cause may be temporary


class _Interleaved(ReplicatorError):
    """Others write to these partitions, too, so it is not known which offset each record has: the transaction has to be
    aborted."""

    def __init__(self, partitions: Set[TopicPartition]) -> None:
        super().__init__(f"others write to {', '.join(map(str, sorted(partitions)))}, too")
        self.partitions = partitions


class TransactionalWriter:
    """A TargetWriter that uses one transaction per call of `deliver`."""

    author = Author.EXACTLY_ONCE

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        transactional_id: str,
        exclusive: bool = True,
        transaction_timeout: timedelta,
        checkpoint_topic: str,
        offset_map_topic: str,
        memory_bytes: int,
    ) -> None:
        """Connects on first use. Of two processes with the same id, the older one is fenced. `exclusive`: the id is
        generated, so its owner is fenced only after it was frozen for longer than the timeout, and then continues. An
        id that a user chose is not exclusive: a fenced process ends. A process that dies within a transaction blocks
        the next owner of its partitions for `transaction_timeout`. Raises ConfigError."""
        self._properties = transactional_properties(
            properties, memory_bytes=memory_bytes, transaction_timeout=transaction_timeout
        )
        self._id = transactional_id
        self._exclusive = exclusive
        self._topics = OwnTopics(checkpoint_topic, offset_map_topic)
        self._offset_pages = OffsetPages()
        self._interleaved: set[TopicPartition] = set()  # others write to them, too
        self._memory_bytes = memory_bytes
        self._sizes = BatchSizes()
        self._producers: dict[int, TransactionalProducer] = {}  # by batch size
        self._owner: Owner | None = None  # checked after each init; None: a group fences

    def batch_size_class(self, topic: str) -> int:
        return self._sizes.of(topic)

    def take_over(self, within: timedelta, owner: Owner) -> None:
        """Fence all earlier owners of the id. Once this returns, they cannot write any more and their transactions have
        ended, so that positions read from now on stay valid. Raises BrokerUnavailable."""
        deadline = Deadline(within)
        for batch_size_class in BATCH_BYTES:
            self._connect(batch_size_class, lambda: deadline.expired)
        # each class has an id of its own: the owner record written under it keeps an earlier owner of that id out
        for batch_size_class in BATCH_BYTES:
            self._write_alone(batch_size_class, owner.record, _take_over, lambda: deadline.expired)
        for batch_size_class in BATCH_BYTES[1:]:  # rarely needed again
            self._producers.pop(batch_size_class).end(timedelta())
        self._owner = owner

    def record_cut(self, record: tuple[bytes, bytes], should_stop: Callable[[], bool]) -> None:
        """Write the cut of a restore to the checkpoint topic, by a producer that a successor fences. After `take_over`.
        Raises OwnershipLost, BrokerUnavailable."""
        if BATCH_BYTES[0] not in self._producers:
            self._connect(BATCH_BYTES[0], should_stop)
        self._write_alone(BATCH_BYTES[0], record, _record_cut, should_stop)

    def prove_ownership(self, should_stop: Callable[[], bool]) -> None:
        """Write the owner record once more, in a transaction that a successor fences: until it began, there was none.
        After `take_over`. Raises OwnershipLost, BrokerUnavailable."""
        assert self._owner is not None
        if BATCH_BYTES[0] not in self._producers:
            self._connect(BATCH_BYTES[0], should_stop)
        try:
            self._write_alone(BATCH_BYTES[0], self._owner.record, _take_over, should_stop)
        except BrokerUnavailable:  # fenced, perhaps: a new producer finds out by whom
            self._connect(BATCH_BYTES[0], should_stop)
            self._write_alone(BATCH_BYTES[0], self._owner.record, _take_over, should_stop)

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        """See TargetWriter. Raises OwnershipLost when another process has replaced this one. After WriterRefused
        because of the checkpoint topic, the next call checks that topic before it sends anything."""
        remaining = iter(runs)
        first = next(remaining, None)
        if first is None:
            return []
        batch_size_class, last = self.batch_size_class(first.partition.topic), dict[CheckpointKey, TargetRun]()
        skipped: list[Skipped] = []
        sent: list[SentRun] = []
        producer = self._begin(batch_size_class, should_stop)
        try:
            with durable(Step.PRODUCE_RECORDS):
                for run in chain([first], remaining):
                    last[run.key] = run.without_records
                    skipped += run.skipped
                    sent.append(
                        send_run(
                            producer,
                            run,
                            interleaved=self._interleaved,
                            memory_bytes=self._memory_bytes,
                            wait=producer.progress_check(should_stop),
                        )
                    )
                producer.acknowledged(should_stop)
            self._checkpoint(producer, last, skipped, sent, should_stop)
            producer.progress_check(should_stop)()  # nothing above may have waited, and so have noticed the stop
            if fence is not None:
                with durable(Step.SEND_OFFSETS):
                    producer.fence(last.values(), fence, should_stop)
            with durable(Step.COMMIT_TRANSACTION):
                producer.commit(should_stop)
        except _Interleaved as error:
            return self._aborted_as_interleaved(batch_size_class, producer, last, error)
        except OutcomeUnknown as error:
            self._offset_pages.drop()
            self._renew(batch_size_class, producer)
            raise BrokerUnavailable(f"it is unknown whether a transaction was committed: {error}") from error
        except _CheckpointsRejected as error:
            with durable(Step.ABORT_TRANSACTION):
                self._renew(batch_size_class, producer)
            if error.refused is not None:
                self._topics.rejecting = error.topic
                raise error.refused from error
            return [RunFailed(p, "ABORTED", str(error), FailureKind.RETRY_LATER) for p in _partitions(last)]
        except MustAbort as error:
            return self._aborted(batch_size_class, producer, last, error)
        except BrokerUnavailable:  # stopped: the partitions may be about to be revoked, so end quickly
            self._producers.pop(batch_size_class, None)
            producer.end(CALL_TIMEOUT)
            raise
        except BaseException:
            self._renew(batch_size_class, producer)  # the caller's own failure: no record may become visible
            raise
        self._offset_pages.confirm()
        self._topics.rejecting = ""
        return []

    def close(self, timeout: timedelta) -> None:
        """Abort an open transaction and release everything. May be called twice; the next `deliver` connects again."""
        deadline = Deadline(timeout)
        while self._producers:
            _, producer = self._producers.popitem()
            producer.end(deadline.left)

    def _begin(self, batch_size_class: int, should_stop: Callable[[], bool]) -> TransactionalProducer:
        producer = (
            self._producers[batch_size_class]
            if batch_size_class in self._producers
            else self._connect(batch_size_class, should_stop)
        )
        self._topics.check(partial(producer.topic_error, within=CALL_TIMEOUT))
        try:
            with durable(Step.BEGIN_TRANSACTION):
                producer.begin()
        except MustAbort as error:
            self._renew(batch_size_class, producer)
            operation = "begin a transaction"
            raise writer_rejection(error.cause, operation) or BrokerUnavailable(f"{operation}: {error}") from error
        return producer

    def _connect(self, batch_size_class: int, should_stop: Callable[[], bool]) -> TransactionalProducer:
        """Create a producer: fences earlier users of the id, and waits for the end of their transactions."""
        size = {} if batch_size_class == BATCH_BYTES[0] else {"batch.size": batch_size_class}
        # connected to every broker from the start: else it may find its coordinator by a timer of 500 ms
        producer = TransactionalProducer(
            {**CONNECTED, **self._properties, **size, "transactional.id": f"{self._id}.{batch_size_class}"}
        )
        try:
            producer.init(should_stop)
        except (MustAbort, BrokerUnavailable) as error:
            producer.end(timedelta())
            operation, cause = (
                f"transactional id {self._id}.{batch_size_class}",
                error.cause if isinstance(error, MustAbort) else None,
            )
            raise writer_rejection(cause, operation) or BrokerUnavailable(f"{operation}: {error}") from error
        if self._owner is not None:
            try:
                self._owner.confirm()
            except ReplicatorError:
                producer.end(timedelta())
                raise
        self._producers[batch_size_class] = producer
        return producer

    def _write_alone(
        self, batch_size_class: int, record: tuple[bytes, bytes], commit: _Commit, should_stop: Callable[[], bool]
    ) -> None:
        """One record of the checkpoint topic, in a transaction of its own."""
        producer = self._producers[batch_size_class]
        try:
            producer.begin()
            self._write(producer, self._topics.checkpoints, [record], should_stop)
            commit(producer, should_stop)
        except (MustAbort, OutcomeUnknown, _CheckpointsRejected) as error:
            self._producers.pop(batch_size_class).end(timedelta())
            if isinstance(error, _CheckpointsRejected) and error.refused is not None:
                raise error.refused from error
            raise BrokerUnavailable(f"transactional id {self._id}.{batch_size_class}: {error}") from error

    def _renew(self, batch_size_class: int, producer: TransactionalProducer) -> None:
        """Replace the producer, at once if possible: the checkpoint topic cannot be read past an open transaction."""
        self._producers.pop(batch_size_class, None)
        producer.end(timedelta())
        fenced = producer.fatal is not None and producer.fatal.code() == KafkaError._FENCED
        if fenced and not self._exclusive and self._owner is None:  # with an owner, `_connect` checks its record
            raise OwnershipLost(
                f"another process uses the transactional id {self._id}, or this one was frozen: is the same "
                "group.instance.id configured twice? This process ends; restart it if it is the right one"
            )
        deadline = Deadline(ABORT_WITHIN)
        try:
            self._connect(batch_size_class, lambda: deadline.expired)
        except (BrokerUnavailable, WriterRefused):
            return  # the next `deliver` tries again and reports it; meanwhile the broker aborts by timeout

    def _checkpoint(
        self,
        producer: TransactionalProducer,
        last: Mapping[CheckpointKey, TargetRun],
        skipped: Iterable[Skipped],
        sent: Sequence[SentRun],
        should_stop: Callable[[], bool],
    ) -> None:
        """Write where the records are, the skipped offsets and the positions after them, in the same transaction.
        Raises _Interleaved when it is not known where some are."""
        unmapped = [one for one in sent if not one.is_mapped]
        if lost := [one.run.partition for one in unmapped if not one.reports.is_interleaved]:
            raise MustAbort(f"{lost[0]}: not every record was acknowledged with its offset")
        if unmapped:
            raise _Interleaved({one.run.partition for one in unmapped})
        records = [(encode_skipped_key(one), encode_skipped(one)) for one in skipped]
        records += [(encode_key(run.key), encode(run.checkpoint)) for run in last.values()]
        with durable(Step.PRODUCE_OFFSET_MAP):
            self._write(producer, self._topics.offset_map, self._offset_pages.records(sent), should_stop)
        with durable(Step.PRODUCE_CHECKPOINT):
            self._write(producer, self._topics.checkpoints, records, should_stop)

    def _write(
        self,
        producer: TransactionalProducer,
        topic: str,
        records: Iterable[tuple[bytes, bytes]],
        should_stop: Callable[[], bool],
    ) -> None:
        """Write records to one of our topics and wait for their acknowledgement. All earlier records are already
        acknowledged, so any failure is theirs. Raises _CheckpointsRejected."""
        try:
            for key, value in records:
                producer.put(
                    topic,
                    key=key,
                    value=value,
                    owner=OWN_TOPICS,
                    wait=producer.progress_check(should_stop),
                    partition=CHECKPOINT_PARTITION,
                )
            producer.acknowledged(should_stop)
        except MustAbort as error:
            named = producer.failures.get(OWN_TOPICS)
            cause = named if named is not None and named.code() not in SECONDARY else error.cause or producer.cause()
            refused = self._topics.rejection(topic, cause) or writer_rejection(cause, "deliver")
            # a record for a topic that does not exist stays in the client until its transaction times out
            refused = refused or self._topics.rejection(topic, producer.topic_error(topic, within=CALL_TIMEOUT))
            raise _CheckpointsRejected(f"cannot write to {topic}: {error}", topic, refused) from error

    def _aborted_as_interleaved(
        self,
        batch_size_class: int,
        producer: TransactionalProducer,
        last: Mapping[CheckpointKey, TargetRun],
        error: _Interleaved,
    ) -> Sequence[RunFailed]:
        """The next attempt keeps the offset of each record of these partitions."""
        with durable(Step.ABORT_TRANSACTION):
            self._renew(batch_size_class, producer)
        for partition in sorted(error.partitions - self._interleaved):
            log.warning(
                "others_write_to_destination",
                extra={DESTINATION: str(partition), NEXT: "nothing is lost; offsets are checked one by one, slower"},
            )
        # offsets that stay unknown are those of records that the broker had already: sent again, they are new ones
        self._interleaved |= error.partitions
        return [RunFailed(p, "ABORTED", str(error), FailureKind.RETRY_NOW) for p in _partitions(last)]

    def _aborted(
        self,
        batch_size_class: int,
        producer: TransactionalProducer,
        last: Mapping[CheckpointKey, TargetRun],
        error: MustAbort,
    ) -> Sequence[RunFailed]:
        """The failures by partition, once no record of the transaction can become visible."""
        cause = error.cause or producer.cause()  # before `_renew` closes the client
        stalled, rejected_by_client = producer.stalled, producer.rejected_by_client.copy()
        with durable(Step.ABORT_TRANSACTION):
            # The client's own abort purges its queues, which continues in the background and drops records of the next
            # transaction, too (seen). Therefore the next producer of this id aborts the transaction in its init.
            self._renew(batch_size_class, producer)
        abort = Abort(
            partitions=_partitions(last),
            failures=producer.failures,
            rejected_by_client=rejected_by_client,
            stalled=f"no acknowledgement for {STALLED_AFTER}" if stalled else "",
            cause=cause,
            reason=str(error) if cause is None else describe_error(cause),
        )
        return attribute_failures(abort, self._sizes)


def _partitions(runs: Mapping[CheckpointKey, TargetRun]) -> Sequence[TopicPartition]:
    """Each partition once: several sources may have the same target."""
    return list(dict.fromkeys(run.partition for run in runs.values()))


def _take_over(producer: TransactionalProducer, should_stop: Callable[[], bool]) -> None:
    with durable(Step.TAKE_OVER):
        producer.commit(should_stop)


def _record_cut(producer: TransactionalProducer, should_stop: Callable[[], bool]) -> None:
    with durable(Step.RECORD_CUT):
        producer.commit(should_stop)
