"""Removes pages of the offset map from its topic. TargetWriter writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from formats.messages.map_key import MapKey, encode_map_key
from infra.kafka.client.acknowledged_writer import AcknowledgedWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.internal_topics.ensure import CHECKPOINT_PARTITION
from infra.runtime.crash_points import Step, durable

MEMORY_BYTES = 1 << 20


class KafkaOffsetMapEditor:
    """An OffsetMapEditor."""

    def __init__(
        self, properties: Mapping[str, object], topic: str, *, write_within: timedelta = timedelta(seconds=30)
    ) -> None:
        """Connects on first use. Raises ConfigError."""
        self._writer = AcknowledgedWriter(
            producer_properties(properties, memory_bytes=MEMORY_BYTES),
            topic,
            write_within,
            partition=CHECKPOINT_PARTITION,
        )

    def remove(self, key: MapKey, starts: Collection[int]) -> None:
        with durable(Step.TRIM_OFFSET_MAP):
            self._writer.write([(encode_map_key(key, start), None) for start in starts])

    def close(self) -> None:
        """May be called twice."""
        self._writer.close()
