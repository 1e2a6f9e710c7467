"""Single records into the checkpoint topic, each acknowledged before the next: what is not written with records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from infra.kafka.acknowledged import AcknowledgedWriter
from infra.kafka.idempotent import producer_properties
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

MEMORY_BYTES = 1 << 20


class KafkaCheckpointEditor:
    """A CheckpointEditor."""

    def __init__(
        self, properties: Mapping[str, object], topic: str, *, write_within: timedelta = timedelta(seconds=30)
    ) -> None:
        """Connects when first used. Raises ConfigError."""
        at_once = {**producer_properties(properties, memory_bytes=MEMORY_BYTES), "linger.ms": 0}
        self._writer = AcknowledgedWriter(at_once, topic, write_within)

    def park(self, key: CheckpointKey, parked: Parked | None) -> None:
        with durable(Step.PARK):
            self._writer.write([(encode_parked_key(key), None if parked is None else encode_parked(parked))])

    def seed(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        with durable(Step.SEED_CHECKPOINT):
            self._writer.write([(encode_key(key), encode(checkpoint))])

    def skip(self, skipped: Skipped) -> None:
        with durable(Step.RECORD_SKIP):
            self._writer.write([(encode_skipped_key(skipped), encode_skipped(skipped))])

    def close(self) -> None:
        """May be called twice."""
        self._writer.close()
