"""Live records: produces a few per second to the source topic, and measures their latency to the target topic.

sender     produce ──> acknowledged by the source (t0)
receiver                       … read back from the target (t1)          latency = t1 − t0
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from infra.local.errors import LocalStackError
from infra.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from infra.kafka.client.encode import Header

HEADER = "live"  # its value is the record's number
KEYS = 100  # number of different keys
TURN_SECONDS = 0.1
FLUSH_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A topic in its cluster."""

    bootstrap: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of the delivered records, in rising order."""

    sent: int
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if list(self.seconds) != sorted(self.seconds):
            raise ValueError("seconds must be in rising order")

    def percentile(self, percent: int) -> float | None:
        """The smallest latency that `percent` of the records do not exceed; None without records."""
        if not self.seconds:
            return None
        rank = -(-len(self.seconds) * percent // 100)  # rounded up: the nearest rank
        return self.seconds[max(rank, 1) - 1]


class LiveTraffic:
    """A context manager that runs a sender and a receiver thread. The properties may be read from any thread."""

    def __init__(
        self, source: Endpoint, target: Endpoint, *, target_ends: Mapping[int, int], count: int, per_second: float
    ) -> None:
        """`target_ends`: next offset of each target partition before the first live record."""
        self._source, self._target = source, target
        self._target_ends = dict(target_ends)
        self._count, self._per_second = count, per_second
        self._acknowledged: dict[int, float] = {}  # times on the monotonic clock, by record number
        self._read: dict[int, float] = {}
        self._refused: list[str] = []
        self._stop = Stop()
        self._pool = ThreadPoolExecutor(2, "live")
        self._running: tuple[Future[None], ...] = ()

    def __enter__(self) -> Self:
        self._running = (self._pool.submit(self._send), self._pool.submit(self._receive))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()

    @property
    def sent(self) -> int:
        """Acknowledged by the source."""
        return len(self._acknowledged)

    @property
    def seen(self) -> int:
        """Read back from the target."""
        return len(self._read)

    @property
    def finished(self) -> bool:
        """Whether every record was sent and read back. Raises the error of a failed thread."""
        for thread in self._running:
            if thread.done():
                thread.result()
        return all(thread.done() for thread in self._running)

    def latencies(self) -> Latencies:
        """Latencies of the records read back so far."""
        both = self._acknowledged.keys() & dict(self._read).keys()
        seconds = sorted(max(self._read[number] - self._acknowledged[number], 0.0) for number in both)
        return Latencies(sent=self.sent, seconds=tuple(seconds))

    # --- sender thread ---

    def _send(self) -> None:
        with closing(Producer({"bootstrap.servers": self._source.bootstrap, "linger.ms": 0}, logger=log)) as producer:
            begin = time.monotonic()
            for number in range(self._count):
                due = begin + number / self._per_second
                while (left := due - time.monotonic()) > 0 and not self._stop.is_set():
                    producer.poll(min(left, TURN_SECONDS))  # callbacks take the time of acknowledgements meanwhile
                if self._stop.is_set():
                    producer.purge()
                    return
                value = json.dumps({"live": number, "sent_at": datetime.now(UTC).isoformat()}).encode()
                producer.produce(
                    self._source.topic,
                    value,
                    f"live-{number % KEYS}".encode(),
                    headers=[(HEADER, str(number).encode())],
                    on_delivery=partial(self._delivered, number),
                )
            producer.flush(FLUSH_SECONDS)
        if self._refused or self.sent < self._count:
            reason = self._refused[0] if self._refused else f"no acknowledgement within {FLUSH_SECONDS:.0f} s"
            raise LocalStackError(f"{self._source.topic} did not accept all live records: {reason}")

    def _delivered(self, number: int, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged[number] = time.monotonic()
        else:
            self._refused.append(error.str())

    # --- receiver thread ---

    def _receive(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._target.bootstrap,
                "group.id": f"demo-live-{uuid.uuid4().hex}",  # the client requires one; nothing is committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            },
            logger=log,
        )
        with closing(consumer):
            topic = self._target.topic
            consumer.assign([ClientPartition(topic, p, offset) for p, offset in self._target_ends.items()])
            while not self._stop.is_set() and self.seen < self._count:
                for message in consumer.consume(100, TURN_SECONDS):
                    self._arrived(message)

    def _arrived(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                return
            raise LocalStackError(f"cannot read {self._target.topic}: {error.str()}")
        for name, value in cast("list[Header]", message.headers() or []):
            if name == HEADER and isinstance(value, bytes):
                self._read.setdefault(int(value), time.monotonic())  # the first delivery counts
