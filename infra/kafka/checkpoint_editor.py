"""Single records into the checkpoint topic, each acknowledged before the next: what is not written with records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from infra.kafka.errors import told
from infra.kafka.idempotent import IdempotentProducer, producer_properties
from replicator.checkpoint import (
    Checkpoint,
    CheckpointKey,
    Parked,
    Skipped,
    encode,
    encode_key,
    encode_parked,
    encode_parked_key,
    encode_skipped,
    encode_skipped_key,
)
from replicator.durable import Step, durable
from replicator.errors import BrokerUnavailable
from replicator.lifecycle import Deadline

MEMORY_BYTES = 1 << 20


class KafkaCheckpointEditor:
    """A CheckpointEditor."""

    def __init__(
        self, properties: Mapping[str, object], topic: str, *, write_within: timedelta = timedelta(seconds=30)
    ) -> None:
        """Connects when first used. Raises ConfigError."""
        self._properties = {**producer_properties(properties, memory_bytes=MEMORY_BYTES), "linger.ms": 0}
        self._topic = topic
        self._write_within = write_within
        self._producer: IdempotentProducer[str] | None = None

    def park(self, key: CheckpointKey, parked: Parked | None) -> None:
        with durable(Step.PARK):
            self._write(encode_parked_key(key), None if parked is None else encode_parked(parked))

    def seed(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        with durable(Step.SEED_CHECKPOINT):
            self._write(encode_key(key), encode(checkpoint))

    def skip(self, skipped: Skipped) -> None:
        with durable(Step.RECORD_SKIP):
            self._write(encode_skipped_key(skipped), encode_skipped(skipped))

    def close(self) -> None:
        """May be called twice."""
        if self._producer is not None:
            self._producer.close(timedelta())
            self._producer = None

    def _write(self, key: bytes, value: bytes | None) -> None:
        if self._producer is None:
            self._producer = IdempotentProducer(self._properties)
        deadline = Deadline(self._write_within)

        def wait() -> None:
            if deadline.expired:
                raise BrokerUnavailable(f"write to {self._topic}: no acknowledgement within {self._write_within}")

        try:
            self._producer.put(self._topic, key=key, value=value, owner="", wait=wait)
            for failure in self._producer.settle(wait=wait, grace=timedelta(seconds=1)).values():
                raise BrokerUnavailable(f"write to {self._topic}: {told(failure)}")
        except BrokerUnavailable:
            self.close()  # what is still queued must not come behind what is written next
            raise
