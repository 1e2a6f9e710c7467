"""Writes records outside transactions: each call returns once the broker has acknowledged them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from formats.errors import BrokerUnavailable, TargetError
from infra.kafka.client.errors import UNAUTHORISED, describe_error, translate
from infra.kafka.client.idempotent_producer import BY_KEY, IdempotentProducer
from infra.runtime.lifecycle import Deadline


class AcknowledgedWriter:
    """Connects on first use and reconnects after a failure. Use from one thread only."""

    def __init__(
        self, properties: Mapping[str, object], topic: str, within: timedelta, *, partition: int = BY_KEY
    ) -> None:
        """`properties`: those of an idempotent producer. `within`: limit for each `write`."""
        self._properties, self._topic, self._within, self._partition = properties, topic, within, partition
        self._producer: IdempotentProducer[str] | None = None

    def write(self, records: Iterable[tuple[bytes, bytes | None]], *, topic: str = "") -> None:
        """Write (key, value) pairs; their order is kept within a partition. `topic`: instead of the writer's.

        Raises BrokerUnavailable, and TargetError when the principal may not write to the topic; after either, any
        part of the records may be in the topic."""
        topic = topic or self._topic
        if self._producer is None:
            self._producer = IdempotentProducer(self._properties)
        deadline = Deadline(self._within)

        def wait() -> None:
            if deadline.expired:
                raise BrokerUnavailable(f"write to {topic}: no acknowledgement within {self._within}")

        try:
            for key, value in records:
                self._producer.put(topic, key=key, value=value, owner="", wait=wait, partition=self._partition)
            for failure in self._producer.settle(wait=wait, grace=timedelta(seconds=1)).values():
                operation = f"write to {topic}"
                if failure.code() in UNAUTHORISED:
                    raise translate(failure, operation, needs="WRITE")
                raise BrokerUnavailable(f"{operation}: {describe_error(failure)}")
        except (BrokerUnavailable, TargetError):
            self.close()  # records still queued must not arrive after those of the next call
            raise

    def close(self) -> None:
        """May be called twice."""
        if self._producer is not None:
            self._producer.close(timedelta())
            self._producer = None
