"""Writes single records to the checkpoint topic, each acknowledged before the next: those that no delivery writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from formats.messages.delivery_checkpoint import (
    Checkpoint,
    CheckpointKey,
    Parked,
    Skipped,
    Waiting,
    encode,
    encode_key,
    encode_parked,
    encode_parked_key,
    encode_skipped,
    encode_skipped_key,
    encode_waiting,
    encode_waiting_key,
)
from formats.messages.group_claim import GroupClaim, encode_claim, encode_claim_key
from infra.kafka.client.acknowledged_writer import AcknowledgedWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.internal_topics.ensure import CHECKPOINT_PARTITION
from infra.runtime.crash_points import Step, durable

MEMORY_BYTES = 1 << 20


class KafkaCheckpointEditor:
    """A CheckpointEditor."""

    def __init__(
        self, properties: Mapping[str, object], topic: str, *, write_within: timedelta = timedelta(seconds=30)
    ) -> None:
        """Connects on first use. Raises ConfigError."""
        unbatched = {**producer_properties(properties, memory_bytes=MEMORY_BYTES), "linger.ms": 0}
        self._writer = AcknowledgedWriter(unbatched, topic, write_within, partition=CHECKPOINT_PARTITION)

    def park(self, key: CheckpointKey, parked: Parked | None) -> None:
        with durable(Step.PARK):
            self._writer.write([(encode_parked_key(key), None if parked is None else encode_parked(parked))])

    def seed(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        with durable(Step.SEED_CHECKPOINT):
            self._writer.write([(encode_key(key), encode(checkpoint))])

    def skip(self, skipped: Skipped) -> None:
        with durable(Step.RECORD_SKIP):
            self._writer.write([(encode_skipped_key(skipped), encode_skipped(skipped))])

    def wait(self, key: CheckpointKey, waiting: Waiting | None) -> None:
        with durable(Step.RECORD_WAITING):
            self._writer.write([(encode_waiting_key(key), None if waiting is None else encode_waiting(waiting))])

    def claim(self, claim: GroupClaim) -> None:
        with durable(Step.CLAIM_GROUP):
            self._writer.write([(encode_claim_key(claim), encode_claim(claim))])

    def withdraw(self, claim: GroupClaim) -> None:
        with durable(Step.WITHDRAW_CLAIM):
            self._writer.write([(encode_claim_key(claim), None)])

    def close(self) -> None:
        """May be called twice."""
        self._writer.close()
