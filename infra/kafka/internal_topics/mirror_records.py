"""Records of MirrorMaker 2's topics of this cluster, read whole and written to their one partition."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from infra.kafka.client.acknowledged_writer import AcknowledgedWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.internal_topics.whole_topic import KeyValue, read_whole
from infra.runtime.crash_points import Step, durable

PARTITION = 0  # MirrorMaker 2's
MEMORY_BYTES = 8 << 20


class KafkaMirrorRecordLog:
    """A MirrorRecordLog. Calls are serialised, since a shutdown closes it while it may write."""

    def __init__(
        self,
        consumer: Mapping[str, object],
        producer: Mapping[str, object],
        *,
        within: timedelta = timedelta(seconds=30),
    ) -> None:
        """`within`: limit of a read, and of a write. Connects on first use. Raises ConfigError."""
        self._consumer, self._within = consumer, within
        properties = producer_properties(producer, memory_bytes=MEMORY_BYTES)
        self._writer = AcknowledgedWriter(properties, "", within, partition=PARTITION)
        self._lock = threading.Lock()

    def read(self, topic: str) -> Sequence[KeyValue]:
        return read_whole(self._consumer, topic, within=self._within)

    def write(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        with self._lock, durable(Step.WRITE_CHECKPOINTS):
            self._writer.write(records, topic=topic)

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            self._writer.close()
