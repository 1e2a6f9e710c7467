"""A transactional producer of the Kafka client, with workarounds for the client's pitfalls.

Every call into the client may raise errors of three kinds: those that pass when the call is repeated, those after which
the transaction has to be aborted, and those that leave open whether it was committed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import BrokerUnavailable, ReplicatorError
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.kafka.client.errors import describe_error
from infra.kafka.client.idempotent_producer import POLL_TIMEOUT, IdempotentProducer
from infra.runtime.lifecycle import Deadline

STALLED_AFTER = timedelta(seconds=10)  # without an acknowledgement: a partition has no leader, or too few replicas
ABORT_WITHIN = timedelta(seconds=10)
FENCED_WITHIN = timedelta(seconds=10)
COMMITTED_WITHIN = timedelta(seconds=20)
CALL_TIMEOUT = timedelta(seconds=1)  # longest call into the client between two checks of `should_stop`


class MustAbort(ReplicatorError):
    """The transaction has to be aborted: none of it will be visible in the target. `abortable`: the client itself
    requires the abort and can continue after it. `cause`: the error of a call into the client."""

    def __init__(self, reason: str, *, abortable: bool = True, cause: KafkaError | None = None) -> None:
        super().__init__(reason)
        self.abortable = abortable
        self.cause = cause


class OutcomeUnknown(ReplicatorError):
    """The transaction may have been committed."""


class TransactionalProducer(IdempotentProducer[TopicPartition]):
    """Its methods raise MustAbort when the transaction has to be aborted, OutcomeUnknown when it may have been
    committed, and BrokerUnavailable when stopped before either."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        super().__init__(properties)
        self.stalled = False
        self._unacknowledged, self._progress_at = 0, time.monotonic()
        timeout_ms = int(str(properties["transaction.timeout.ms"]))
        # init waits for the transaction of a dead process, until its timeout
        self._init_within = timedelta(milliseconds=timeout_ms) + ABORT_WITHIN
        self._is_stuck = False  # a call into the client did not return: the client must not be used any more

    def init(self, should_stop: Callable[[], bool]) -> None:
        self._call_within(
            lambda: self._client.init_transactions(CALL_TIMEOUT.total_seconds()), should_stop, within=self._init_within
        )

    def begin(self) -> None:
        self.stalled, self.failures, self._unacknowledged = False, {}, 0
        self.forget_reports()
        self._repeat(self._client.begin_transaction, lambda: True)

    def progress_check(self, should_stop: Callable[[], bool]) -> Callable[[], None]:
        """A check to call while waiting; it raises when the transaction cannot succeed any more."""

        def check() -> None:
            self._refuse_failures()
            if len(self) != self._unacknowledged:
                self._unacknowledged, self._progress_at = len(self), time.monotonic()
            elif self._unacknowledged and time.monotonic() - self._progress_at > STALLED_AFTER.total_seconds():
                self.stalled = True
                raise MustAbort(f"{self._unacknowledged} records are not acknowledged for {STALLED_AFTER}")
            if should_stop():
                raise BrokerUnavailable("stopped before the transaction was complete")

        return check

    def acknowledged(self, should_stop: Callable[[], bool]) -> None:
        """Wait until all records queued so far are in the target's log."""
        check = self.progress_check(should_stop)
        while len(self) and not self.failures and self.fatal is None:
            self._flush()
            if len(self):
                check()
        self._refuse_failures()

    def fence(self, runs: Iterable[TargetRun], fence: Any, should_stop: Callable[[], bool]) -> None:
        """Add group offsets: the target accepts the transaction only while `fence` is of the group's generation."""
        # one offset for each partition, from any of its sources: the value is not used
        nexts = {run.partition: run.checkpoint.next_offset for run in runs}
        offsets = [ClientPartition(p.topic, p.partition, next_offset) for p, next_offset in nexts.items()]
        self._call_within(
            lambda: self._client.send_offsets_to_transaction(offsets, fence, CALL_TIMEOUT.total_seconds()),
            should_stop,
            within=FENCED_WITHIN,
        )

    def commit(self, should_stop: Callable[[], bool]) -> None:
        try:
            self._call_within(
                lambda: self._client.commit_transaction(CALL_TIMEOUT.total_seconds()),
                should_stop,
                within=COMMITTED_WITHIN,
            )
        except BrokerUnavailable as error:
            raise OutcomeUnknown(str(error)) from error
        except MustAbort as error:
            if not error.abortable:
                raise OutcomeUnknown(str(error)) from error
            raise

    def abort(self, should_stop: Callable[[], bool]) -> None:
        """Abort the transaction on purpose; records that are not sent yet never are. Its marker may follow later."""
        self._call_within(
            lambda: self._client.abort_transaction(CALL_TIMEOUT.total_seconds()), should_stop, within=ABORT_WITHIN
        )
        self.failures = {}
        self.forget_reports()

    def cause(self) -> KafkaError | None:
        """The client's reason why the transaction has to be aborted; None when it has none."""
        if self._is_stuck:
            return None
        try:
            # `begin_transaction` within a transaction fails; its error is the cause of the abort, if there is one
            self._call_within(self._client.begin_transaction, lambda: True, within=CALL_TIMEOUT)
        except MustAbort as error:
            return None if error.cause is None or error.cause.code() == KafkaError._STATE else error.cause
        except BrokerUnavailable:
            return None
        return None

    def end(self, grace: timedelta) -> None:
        """Abort if possible within `grace`, else leave that to the next producer of this id or to the timeout; close
        the client."""
        if self._is_stuck:
            return
        if grace > timedelta() and self.fatal is None:
            deadline = Deadline(grace)
            with contextlib.suppress(ReplicatorError):  # no transaction is open, or it will time out
                self._repeat(
                    lambda: self._client.abort_transaction(min(CALL_TIMEOUT, grace).total_seconds()),
                    lambda: deadline.expired,
                )
        self.close(timedelta())

    def _refuse_failures(self) -> None:
        if self.failures:
            owner, cause = next(iter(self.failures.items()))
            raise MustAbort(f"{owner}: {describe_error(cause)}")
        if self.fatal is not None:
            raise MustAbort(describe_error(self.fatal), abortable=False, cause=self.fatal)

    def _call_within(self, call: Callable[[], object], should_stop: Callable[[], bool], *, within: timedelta) -> None:
        """`_repeat` with a time limit. The client's own timeouts do not always hold: after the connection to a
        coordinator was lost, a call may never return (librdkafka issue 5456; seen). Therefore the call runs on a thread
        that can be abandoned, together with its client; the next producer of this id ends the transaction."""
        answer: Future[None] = Future()

        def run() -> None:
            try:
                self._repeat(call, should_stop)
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        threading.Thread(target=run, name="transaction", daemon=True).start()
        deadline = Deadline(within)
        while not wait([answer], POLL_TIMEOUT.total_seconds()).done:
            if should_stop() and deadline.left > 2 * CALL_TIMEOUT:
                deadline = Deadline(2 * CALL_TIMEOUT)  # the call itself notices the stop within one CALL_TIMEOUT
            if deadline.expired:
                self._is_stuck = True
                raise MustAbort(f"the client did not answer within {within}", abortable=False)
        answer.result()

    def _repeat(self, call: Callable[[], object], should_stop: Callable[[], bool]) -> None:
        """Repeat the call while its error is retriable: the client continues where it was."""
        while True:
            try:
                call()
                return
            except KafkaException as raised:
                error = raised.args[0]
                if error.fatal():
                    self._set_fatal(raised)
                    raise MustAbort(describe_error(error), abortable=False, cause=error) from raised
                if error.txn_requires_abort() or not error.retriable():
                    raise MustAbort(
                        describe_error(error), abortable=error.txn_requires_abort(), cause=error
                    ) from raised
                if should_stop():
                    raise BrokerUnavailable(describe_error(error)) from raised
