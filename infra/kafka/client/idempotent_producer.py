"""One idempotent producer of the Kafka client, made safe to build on.

What the client leaves to us (each seen on a broker):
  - A *fatal* error (anything that would break order, under `enable.gapless.guarantee`) is raised by the client while
    delivery reports are being served: the next report is called with that exception pending, and `poll` or `flush`
    then raise KafkaException or SystemError. Reports must take the pending exception, and every call that serves
    reports must expect both; the remaining reports come with the next call.
  - Successes are counted in C (`delivery.report.only.error`): a record handed over that is no longer in the queue and
    was not reported is in the target.
  - `close` waits for the queue without limit, so the queue is purged first.
  - `purge` goes on in the background after it returned and takes records produced later: only at the end of a life.
  - The queue's byte limit counts values only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from formats.errors import ConfigError
from infra.contracts.producer import TargetRun
from infra.kafka.client.encode import DeliveryCallback, Produce, pieces, send
from infra.kafka.client.log import client_log
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import ERROR, NEXT

PINNED: Mapping[str, object] = {
    "enable.idempotence": True,  # retries neither repeat nor reorder
    "acks": "all",
    "enable.gapless.guarantee": True,  # a batch refused for good stops what follows it, else the order breaks
    "delivery.report.only.error": True,  # no Python frame per delivered record
    "partitioner": "murmur2_random",  # Java's: one key has one partition, whoever writes it
    "allow.auto.create.topics": False,  # topics are made on purpose, with their settings
}
"""What the guarantees rest on; a configuration that says otherwise is refused."""

DEFAULTS: Mapping[str, object] = {
    "message.timeout.ms": 0,  # no limit: a batch given up and a later one delivered would change the order
    "linger.ms": 10,  # full batches; nobody waits for a single record here
    "compression.type": "lz4",  # the cheapest codec, on the client's own threads; saves the target's disks and network
    "batch.size": 1_000_000,
    # a record larger than the broker's socket.request.max.bytes (100 MiB) would close the connection for ever
    "message.max.bytes": 100_000_000,
}

BY_KEY = -1  # in place of a partition: the one that the record's key belongs to
RECORD_OVERHEAD_BYTES = 300  # what the client keeps per queued record beside its bytes; 230 measured without headers
SECONDARY = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Codes of records that failed because of another one: they say nothing of the record's own fate."""

Owner = TypeVar("Owner", bound=Hashable)  # what failures are filed under

SLICE = timedelta(milliseconds=100)  # longest wait in the client before anybody is asked whether to go on

log = logging.getLogger(__name__)


def producer_properties(user: Mapping[str, object], *, memory_bytes: int) -> dict[str, Any]:
    """The client's properties: ours, then the user's, then what cannot be changed. Raises ConfigError."""
    problems = [
        f'kafka.producer."{name}": {user[name]!r} would break the delivery guarantee; leave it out (it is {value!r})'
        for name, value in PINNED.items()
        if name in user and _text(user[name]) != _text(value)
    ]
    if problems:
        raise ConfigError(problems, source="Kafka producer properties")
    limits = {
        "queue.buffering.max.kbytes": max(memory_bytes // 1024, 1),
        "queue.buffering.max.messages": max(memory_bytes // RECORD_OVERHEAD_BYTES, 1),
    }
    return {**DEFAULTS, **limits, **user, **PINNED}


def transactional_properties(
    user: Mapping[str, object], *, memory_bytes: int, transaction_timeout: timedelta
) -> dict[str, Any]:
    """The same for transactions: a failure aborts one, so the order needs no more protection, and a record cannot wait
    longer than its transaction. Raises ConfigError."""
    timeout_ms = int(transaction_timeout.total_seconds() * 1000)
    properties = producer_properties(user, memory_bytes=memory_bytes)
    del properties["enable.gapless.guarantee"]
    return properties | {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms}


class IdempotentProducer(Generic[Owner]):
    """A producer and what became of its records, by owner. One thread. Of no use any more once `fatal` is set."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        """`properties` as `producer_properties` makes them. Connects in the background. Raises ConfigError."""
        try:
            self._client = Producer(dict(properties), logger=client_log)
        except KafkaException as error:
            raise ConfigError([str(error.args[0])], source="Kafka producer properties") from error
        self.failures: dict[Owner, KafkaError] = {}  # first cause for each owner
        self.refused_here: set[Owner] = set()  # by the client itself: no size of batches would help
        self.fatal: KafkaError | None = None
        self._ended = False

    def __len__(self) -> int:
        """Records handed over whose fate is not known yet."""
        return len(self._client)

    @property
    def produce(self) -> Produce:
        return self._client.produce

    def reporter(self, owner: Owner) -> DeliveryCallback:
        """A delivery report that files failures under `owner`."""
        return partial(self._reported, owner)

    def put(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        owner: Owner,
        wait: Callable[[], None],
        partition: int = BY_KEY,
    ) -> None:
        """Hand over one record. A full queue is waited for; `wait` is called meanwhile and raises to give up. A record
        refused by the client is filed as a failure."""
        while True:
            try:
                self._client.produce(topic, value, key, partition, on_delivery=self.reporter(owner))
                return
            except BufferError:
                wait()
                self.serve(SLICE)
            except KafkaException as error:
                self.refused(owner, error)
                return

    def send(self, run: TargetRun, owner: Owner, *, memory_bytes: int, wait: Callable[[], None]) -> None:
        """Hand the records of a run over, in order, and nothing after a failure of `owner`. `wait` is called now and
        then, and raises to give up. What the client itself refuses is filed as a failure: what is queued of the run
        goes out, what follows must not, it would leave a gap in the order."""
        record_bytes = run.size_bytes // max(run.count, 1) + RECORD_OVERHEAD_BYTES
        most = max(memory_bytes // record_bytes, 1)  # records; the client's own limit leaves out keys and headers

        def going() -> bool:
            wait()
            return self.fatal is None and owner not in self.failures

        def wait_for_room() -> bool:
            self.serve(SLICE)
            return going()

        report = self.reporter(owner)
        try:
            for batch in run.batches:
                for piece in pieces(batch, piece_bytes=memory_bytes // 8):
                    self.serve(timedelta())
                    while going() and len(self) >= most:
                        self.serve(SLICE)
                    if not going() or not send(
                        piece, produce=self.produce, partition=run.partition, report=report, wait_for_room=wait_for_room
                    ):
                        self.fail(owner, self.fatal or KafkaError(KafkaError._FATAL))
                        return
        except KafkaException as error:
            self.refused_here.add(owner)
            self.refused(owner, error)

    def refused(self, owner: Owner, error: KafkaException) -> None:
        """File what `produce` raised."""
        if error.args[0].code() == KafkaError._FATAL:  # told here first, if no report was served since
            self._died(error)
        self.fail(owner, error.args[0])

    def fail(self, owner: Owner, error: KafkaError) -> None:
        """File a failure; the first that says something of the owner's own records stays."""
        known = self.failures.get(owner)
        if known is None or (known.code() in SECONDARY and error.code() not in SECONDARY):
            self.failures[owner] = error

    def topic_error(self, topic: str, *, within: timedelta) -> KafkaError | None:
        """What the cluster has against writing there; None when the topic is there, or when nobody answers in time. A
        missing right to write does not show."""
        try:
            found = self._client.list_topics(topic, timeout=within.total_seconds()).topics.get(topic)
        except KafkaException:
            return None
        return None if found is None else found.error

    def serve(self, timeout: timedelta) -> None:
        """Let reports come in; returns as soon as some came, or after `timeout`."""
        self._guarded(lambda: self._client.poll(timeout.total_seconds()))

    def settle(self, *, wait: Callable[[], None], grace: timedelta) -> dict[Owner, KafkaError]:
        """Wait until the fate of every record is known, and answer the failures, by owner. `wait` is called now and
        then, and raises to give up. After a fatal error, answers about records already sent are waited for no longer
        than `grace`; records that stay unknown are failures with a code of `SECONDARY`."""
        while len(self._client) and self.fatal is None:
            self._guarded(lambda: self._client.flush(SLICE.total_seconds()))
            if len(self._client):
                wait()
        if self.fatal is not None:
            self._purge(grace)
        failures, self.failures = self.failures, {}
        return failures

    def close(self, grace: timedelta) -> None:
        """Drop what was not sent, wait up to `grace` for answers about what was, release everything. May be called
        twice."""
        self._purge(grace)
        self._guarded(self._client.close)

    def _purge(self, grace: timedelta) -> None:
        """The end of this producer: see above."""
        deadline = Deadline(grace)
        self._ended = True
        for in_flight in (False, True):
            self._client.purge(in_queue=True, in_flight=in_flight)
            while len(self._client) and (in_flight or not deadline.expired):
                # once purged, there is nothing to wait for: only reports are left to serve
                self._guarded(lambda: self._client.flush(SLICE.total_seconds()))

    def _reported(self, owner: Owner, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        try:
            error.code()  # takes an exception that the client left pending
        except SystemError as pending:
            self._died(pending)
        self.fail(owner, error)

    def _guarded(self, call: Callable[[], object]) -> None:
        """Run something that serves reports."""
        try:
            call()
        except (KafkaException, SystemError) as error:
            self._died(error)

    def _died(self, raised: BaseException) -> None:
        if self.fatal is not None:
            return
        # the client chains its own exception to the SystemError, or says nothing when a report took it
        error = next(
            (e.args[0] for e in (raised, raised.__cause__, raised.__context__) if isinstance(e, KafkaException)), None
        )
        self.fatal = error or KafkaError(KafkaError._FATAL, str(raised))
        if not self._ended:  # a purge in flight is fatal, too
            log.warning(
                "producer_died", extra={ERROR: self.fatal.str(), NEXT: "nothing: a new producer takes its place"}
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
