"""One idempotent producer of the Kafka client, with workarounds for the client's pitfalls.

The pitfalls (each seen on a broker):
  - A *fatal* error (anything that would break order, under `enable.gapless.guarantee`) is raised by the client while
    it serves delivery reports: the next callback runs with that exception pending, and `poll` or `flush` then raise
    KafkaException or SystemError. Callbacks must clear the pending exception, and every call that serves reports must
    expect both exceptions; the remaining reports arrive with the next call.
  - The callbacks of a run's records are C functions (`infra.kafka.client.delivery_reports`), which clear nothing: after
    a fatal error the first of them is reported as failed itself, and has kept its report all the same.
  - `close` waits for the queue without limit, so the queue is purged first.
  - `purge` continues in the background after it has returned and drops records produced later: it is called only at
    the end of a producer's life.
  - The queue's byte limit counts values only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

from formats.errors import ConfigError
from infra.contracts.producer import TargetRun
from infra.kafka.client.delivery_reports import Reports, RunReports
from infra.kafka.client.encode import DeliveryCallback, Produce, send, slices
from infra.kafka.client.log import client_log
from infra.kafka.client.produce_native import open_producer
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import ERROR, NEXT

if TYPE_CHECKING:
    from pyarrow import RecordBatch

PINNED: Mapping[str, object] = {
    "enable.idempotence": True,  # retries neither duplicate nor reorder records
    "acks": "all",
    "enable.gapless.guarantee": True,  # a permanently rejected batch stops those after it, else the order breaks
    "delivery.report.only.error": False,  # the acknowledgements say which offsets the records have
    "partitioner": "murmur2_random",  # Java's: a key has the same partition for every producer
    "allow.auto.create.topics": False,  # topics are created explicitly, with their configs
}
"""Properties that the guarantees rest on; a configuration with other values is rejected."""

QUEUE_LIMIT, LARGEST = "queue.buffering.max.kbytes", "message.max.bytes"
LARGEST_BYTES = 100_000_000

DEFAULTS: Mapping[str, object] = {
    "message.timeout.ms": 0,  # no limit: delivering a batch after an expired one would change the order
    "linger.ms": 10,  # full batches; no caller waits for a single record
    "compression.type": "lz4",  # the cheapest codec, on the client's own threads; saves the target's disks and network
    "batch.size": 1_000_000,
    # the broker closes the connection on a request above its socket.request.max.bytes (100 MiB), on every retry
    LARGEST: LARGEST_BYTES,
}

BY_KEY = -1  # instead of a partition number: the partitioner chooses by the record's key
RECORD_OVERHEAD_BYTES = 300  # the client's memory per queued record beside its bytes; 230 measured without headers
SECONDARY = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Codes of records that failed because of another record: they do not say what is wrong with the record itself."""

FailureOwner = TypeVar("FailureOwner", bound=Hashable)  # failures are recorded by owner
T = TypeVar("T")

POLL_TIMEOUT = timedelta(milliseconds=100)  # longest wait inside the client between two calls of `wait`

log = logging.getLogger(__name__)


def producer_properties(user: Mapping[str, object], *, memory_bytes: int) -> dict[str, Any]:
    """The client's properties: our defaults, overridden by the user's, then the pinned ones. Raises ConfigError."""
    problems = [
        f'kafka.producer."{name}": {user[name]!r} would break the delivery guarantee; leave it out (it is {value!r})'
        for name, value in PINNED.items()
        if name in user and _text(user[name]) != _text(value)
    ]
    room = _number(user.get(QUEUE_LIMIT))
    largest = LARGEST_BYTES if room is None else min(LARGEST_BYTES, room * 1024)  # unless the user says it
    if LARGEST in user:
        largest = _number(user[LARGEST]) or LARGEST_BYTES
    if room is not None and room * 1024 < largest:
        problems.append(
            f'kafka.producer."{QUEUE_LIMIT}": {room} KiB leave no room for a record of {LARGEST} ({largest} bytes): '
            f"such a record would wait for ever; leave it out, set it to at least {-(-largest // 1024)}, or set "
            f'"{LARGEST}" to at most {room * 1024}'
        )
    if problems:
        raise ConfigError(problems, source="Kafka producer properties")
    # a record above the queue's limit would never be taken; `send` bounds memory itself, so the limit may be above it
    queue_bytes = max(memory_bytes, largest)
    limits = {
        QUEUE_LIMIT: -(-queue_bytes // 1024),
        "queue.buffering.max.messages": max(memory_bytes // RECORD_OVERHEAD_BYTES, 1),
    }
    return {**DEFAULTS, LARGEST: largest, **limits, **user, **PINNED}


def transactional_properties(
    user: Mapping[str, object], *, memory_bytes: int, transaction_timeout: timedelta
) -> dict[str, Any]:
    """The same for a transactional producer: a failure aborts the transaction, so the order needs no other protection,
    and a record cannot wait longer than its transaction. Raises ConfigError."""
    timeout_ms = int(transaction_timeout.total_seconds() * 1000)
    properties = producer_properties(user, memory_bytes=memory_bytes)
    del properties["enable.gapless.guarantee"]
    return properties | {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms}


class IdempotentProducer(Generic[FailureOwner]):
    """A producer that records delivery failures by owner. Use from one thread only. Unusable once `fatal` is set."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        """`properties`: the result of `producer_properties`. Connects in the background. Raises ConfigError."""
        try:
            self._client, self._native = open_producer(properties, client_log)
        except KafkaException as error:
            raise ConfigError([str(error.args[0])], source="Kafka producer properties") from error
        self.failures: dict[FailureOwner, KafkaError] = {}  # first cause by owner
        # rejected by the client itself: smaller batches would not help
        self.rejected_by_client: set[FailureOwner] = set()
        self.fatal: KafkaError | None = None
        self._ended = self._closed = False
        self._reports: list[tuple[FailureOwner, Reports]] = []  # of runs that are not acknowledged whole yet
        self._owners: set[FailureOwner] = set()  # of runs whose outcome was not asked for yet

    def __len__(self) -> int:
        """Number of queued or sent records without a known outcome, and of the client's events that `serve` has yet to
        take, such as errors of connections: 0 only if every outcome is known."""
        return len(self._client)

    @property
    def produce(self) -> Produce:
        return self._client.produce

    def reporter(self, owner: FailureOwner) -> DeliveryCallback:
        """A delivery callback that records failures for `owner`."""
        return partial(self._reported, owner)

    def put(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        owner: FailureOwner,
        wait: Callable[[], None],
        partition: int = BY_KEY,
    ) -> None:
        """Queue one record. Blocks while the queue is full; `wait` is called meanwhile and raises to give up. A record
        rejected by the client is recorded as a failure."""
        while True:
            try:
                self._client.produce(topic, value, key, partition, on_delivery=self.reporter(owner))
                return
            except BufferError:
                wait()
                self.serve(POLL_TIMEOUT)
            except KafkaException as error:
                self.record_rejection(owner, error)
                return

    def send(
        self,
        run: TargetRun,
        owner: FailureOwner,
        *,
        memory_bytes: int,
        wait: Callable[[], None],
        each_offset: bool = False,
    ) -> Reports:
        """Queue the records of a run, in order, and none after a failure of `owner`. `wait` is called from time to time
        and raises to give up. A record that the client itself rejects is recorded as a failure: records of the run
        that are already queued are sent, those after it must not be, since that would leave a gap in the order.
        `each_offset`: keep the offset of every record. The reports are complete once every record is acknowledged."""
        record_bytes = run.size_bytes // max(run.count, 1) + RECORD_OVERHEAD_BYTES
        max_records = max(memory_bytes // record_bytes, 1)  # records; the client's own limit ignores keys and headers

        def may_continue() -> bool:
            wait()
            return self.fatal is None and owner not in self.failures

        def wait_for_room() -> bool:
            self.serve(POLL_TIMEOUT)
            return may_continue()

        def before_slice() -> bool:
            self.serve(timedelta())
            while may_continue() and len(self) >= max_records:
                self.serve(POLL_TIMEOUT)
            return may_continue()

        reports, send_batch, ended = self._begin(run, memory_bytes // 8, before_slice, wait_for_room, each=each_offset)
        self._reports.append((owner, reports))
        self._owners.add(owner)
        try:
            for batch in run.batches:
                if not send_batch(batch):
                    self.fail(owner, self.fatal or KafkaError(KafkaError._FATAL))
                    break
        except KafkaException as error:
            self.rejected_by_client.add(owner)
            self.record_rejection(owner, error)
        finally:
            ended()
        return reports

    def _begin(
        self,
        run: TargetRun,
        slice_bytes: int,
        before_slice: Callable[[], bool],
        wait_for_room: Callable[[], bool],
        *,
        each: bool,
    ) -> tuple[Reports, Callable[[RecordBatch], bool], Callable[[], None]]:
        """The run's reports, what queues a batch or returns False to give up, and what to call after the last one."""
        native = self._native
        if native is not None and not each:
            lent = native.begin(run)
            send_batch = partial(
                native.send,
                lent=lent,
                slice_bytes=slice_bytes,
                partition=run.partition,
                before_slice=before_slice,
                wait_for_room=wait_for_room,
            )
            return lent, send_batch, lent.end
        reports = RunReports(run.count, each=each)
        callbacks = iter([(reports.first_callback, reports.other_callback)])

        def send_plainly(batch: RecordBatch) -> bool:
            return all(
                before_slice()
                and send(
                    batch_slice,
                    produce=self.produce,
                    partition=run.partition,
                    reports=next(callbacks, (reports.other_callback,) * 2),
                    wait_for_room=wait_for_room,
                )
                for batch_slice in slices(batch, slice_bytes=slice_bytes)
            )

        return reports, send_plainly, lambda: None

    def record_rejection(self, owner: FailureOwner, error: KafkaException) -> None:
        """Record an exception raised by `produce`."""
        # `produce` is the first to raise it if no report was served since
        if error.args[0].code() == KafkaError._FATAL:
            self._set_fatal(error)
        self.fail(owner, error.args[0])

    def fail(self, owner: FailureOwner, error: KafkaError) -> None:
        """Record a failure. The first one caused by the owner's own records is kept."""
        known = self.failures.get(owner)
        if known is None or (known.code() in SECONDARY and error.code() not in SECONDARY):
            self.failures[owner] = error

    def topic_error(self, topic: str, *, within: timedelta) -> KafkaError | None:
        """The topic's error in the cluster's metadata; None when the topic exists, or when no broker answers in time. A
        missing WRITE permission is not detected."""
        try:
            found = self._client.list_topics(topic, timeout=within.total_seconds()).topics.get(topic)
        except KafkaException:
            return None
        return None if found is None else found.error

    def serve(self, timeout: timedelta) -> None:
        """Serve delivery reports; returns as soon as some were served, or after `timeout`."""
        if self._guarded(lambda: self._client.poll(timeout.total_seconds())) != 0:
            self._note_failures()

    def forget_reports(self) -> None:
        """Later reports of these runs record no failure any more."""
        self._reports.clear()
        self._owners.clear()
        if self._native is not None:
            self._native.take_back()

    def settle(self, *, wait: Callable[[], None], grace: timedelta) -> dict[FailureOwner, KafkaError]:
        """Wait until the outcome of every record is known, and return the failures by owner. `wait` is called from time
        to time and raises to give up. After a fatal error, the wait for records already sent lasts `grace` at most;
        records that stay unknown are failures with a code of `SECONDARY`."""
        while len(self._client) and self.fatal is None:
            self._flush()
            if len(self._client):
                wait()
        if self.fatal is not None:
            self._purge(grace)
            self._fail_without_a_cause(self.fatal)
        failures, self.failures = self.failures, {}
        self.forget_reports()
        return failures

    def close(self, grace: timedelta) -> None:
        """Drop unsent records, wait up to `grace` for acknowledgements of the others, and release everything. May be
        called twice."""
        if self._closed:
            return
        self._closed = True
        self._purge(grace)
        self._guarded(self._client.close)
        if self._native is not None:
            self._native.closed()

    def _purge(self, grace: timedelta) -> None:
        """Empty the queue. Ends this producer: see the module's docstring on `purge`."""
        deadline = Deadline(grace)
        self._ended = True
        for in_flight in (False, True):
            self._client.purge(in_queue=True, in_flight=in_flight)
            while len(self._client) and (in_flight or not deadline.expired):
                # after the purge of in-flight records, only delivery reports remain to be served
                self._flush()

    def _flush(self) -> None:
        """Serve delivery reports until none is outstanding, or for POLL_TIMEOUT."""
        self._guarded(lambda: self._client.flush(POLL_TIMEOUT.total_seconds()))
        self._note_failures()

    def _note_failures(self) -> None:
        outstanding = []
        for owner, reports in self._reports:
            if not reports.collect():
                outstanding.append((owner, reports))
            for error in reports.errors:
                self.fail(owner, error)
        self._reports = outstanding
        if self._native is not None:
            self._native.take_back()

    def _fail_without_a_cause(self, fatal: KafkaError) -> None:
        """After a fatal error: runs that are not acknowledged whole have failed, whatever was reported of them; and if
        nothing that was reported is a cause, its report got lost, and any run may be the one it was about."""
        is_named = any(error.code() not in SECONDARY for error in self.failures.values())
        for owner in self._owners if not is_named else [owner for owner, _ in self._reports]:
            self.fail(owner, fatal)

    def _reported(self, owner: FailureOwner, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        try:
            error.code()  # raises, and thereby clears, an exception that the client left pending
        except SystemError as pending:
            self._set_fatal(pending)
        self.fail(owner, error)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """Run a call that serves delivery reports. None when it failed."""
        try:
            return call()
        except (KafkaException, SystemError) as error:
            self._set_fatal(error)
            return None

    def _set_fatal(self, raised: BaseException) -> None:
        if self.fatal is not None:
            return
        # the client chains its own exception to the SystemError, except when a callback has cleared it
        error = next(
            (e.args[0] for e in (raised, raised.__cause__, raised.__context__) if isinstance(e, KafkaException)), None
        )
        self.fatal = error or KafkaError(KafkaError._FATAL, str(raised))
        if not self._ended:  # purging in-flight records is fatal, too
            log.warning(
                "producer_died", extra={ERROR: self.fatal.str(), NEXT: "nothing: a new producer takes its place"}
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: object) -> int | None:
    """As the client reads it, decimal or hexadecimal; None for what is not one, which the client judges."""
    try:
        return int(_text(value), 0)
    except ValueError:
        return None
