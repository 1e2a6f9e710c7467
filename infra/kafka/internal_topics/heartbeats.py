"""MirrorMaker 2's heartbeats in topics of this cluster: its records, written to the first partition."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import ReplicatorError
from formats.messages.mirrormaker import MirrorHeartbeat, encode_heartbeat
from formats.policies.heartbeats import HEARTBEAT_CONFIGS, why_not_heartbeats
from formats.policies.names import HEARTBEATS
from formats.records.milliseconds import ms_at_or_before
from infra.contracts.cluster import ClusterAdmin
from infra.contracts.internal_topics import HeartbeatWriter
from infra.kafka.client.acknowledged_writer import AcknowledgedWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.internal_topics.ensure import ensure_topic
from infra.runtime.crash_points import Step, durable

PARTITION = 0  # MirrorMaker 2's
MEMORY_BYTES = 1 << 20


class KafkaHeartbeatWriter:
    """A HeartbeatWriter. Calls from several threads are serialised, since a shutdown closes it while it may write."""

    def __init__(self, producer: Mapping[str, object], *, within: timedelta = timedelta(seconds=5)) -> None:
        """`within`: limit of a write. Connects on first use. Raises ConfigError."""
        unbatched = {**producer_properties(producer, memory_bytes=MEMORY_BYTES), "linger.ms": 0}
        self._writer = AcknowledgedWriter(unbatched, HEARTBEATS, within, partition=PARTITION)
        self._lock = threading.Lock()

    def write(self, topic: str, beat: MirrorHeartbeat) -> None:
        with self._lock, durable(Step.WRITE_HEARTBEAT):
            self._writer.write([encode_heartbeat(beat)], topic=topic)

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            self._writer.close()


@dataclass(slots=True)
class OwnHeartbeats:
    """The topic `heartbeats` of a source cluster. Blocks: use from one thread of its own."""

    admin: ClusterAdmin
    writer: HeartbeatWriter
    region: str
    _is_checked: bool = field(default=False)

    def write(self, at: datetime) -> None:
        """Write a heartbeat of that time. Raises BrokerUnavailable, and TargetError when the topic is missing and may
        not be created, is another kind of topic, or may not be written to."""
        if not self._is_checked:
            ensure_topic(self.admin, HEARTBEATS, configs=HEARTBEAT_CONFIGS, check=why_not_heartbeats)
            self._is_checked = True
        # the cluster that is read, and the one that is written to, in KIP-382's words
        beat = MirrorHeartbeat(source_alias=self.region, target_alias=self.region, timestamp_ms=ms_at_or_before(at))
        try:
            self.writer.write(HEARTBEATS, beat)
        except ReplicatorError:
            self._is_checked = False  # it may have been deleted
            raise
