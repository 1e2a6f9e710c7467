"""A load of so many records a second, and when each of them arrives at the target."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import OFFSET_BEGINNING

TICK = timedelta(milliseconds=20)
VALUE = b"x" * 200


class Arrival(NamedTuple):
    partition: int
    produced_at: float  # seconds of the system's clock, as its timestamp says
    seconds: float  # from its timestamp until a consumer of the target had it


@dataclass(slots=True)
class SteadyLoad:
    """Produces with the `with` statement, to all partitions in turn. Safe to read from any thread."""

    bootstrap: str
    topic: str
    partitions: int
    per_second: int
    sent_at: list[float] = field(default_factory=list)  # of each record, by the system's clock
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    @property
    def sent(self) -> int:
        return len(self.sent_at)

    def sent_at_of(self, partition: int, offset: int) -> float:
        """Of a record, where nothing else is in the topic."""
        return self.sent_at[offset * self.partitions + partition]

    def __enter__(self) -> SteadyLoad:
        self._thread = threading.Thread(target=self._run, name=f"load of {self.topic}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        began = time.monotonic()
        while not self._stop.wait(TICK.total_seconds()):
            for _ in range(int((time.monotonic() - began) * self.per_second) - self.sent):
                producer.produce(self.topic, VALUE, partition=self.sent % self.partitions)
                self.sent_at.append(time.time())
            producer.poll(0)
        producer.flush(30)


@dataclass(slots=True)
class Arrivals:
    """Reads the target with the `with` statement. Safe to read from any thread."""

    bootstrap: str
    topic: str
    partitions: int
    seen: list[Arrival] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Arrivals:
        self._thread = threading.Thread(target=self._run, name=f"arrivals in {self.topic}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "arrivals",  # the client wants one; it joins none
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(self.partitions)])
        while not self._stop.is_set():
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    produced_at, partition = message.timestamp()[1] / 1000, message.partition()
                    assert partition is not None
                    self.seen.append(Arrival(partition, produced_at, time.time() - produced_at))
        consumer.close()


def p99(seconds: Sequence[float]) -> float:
    """Infinite when there are none."""
    return sorted(seconds)[int(len(seconds) * 0.99)] if seconds else math.inf
