"""What a cluster says about the clusters upstream of it: the functions of MirrorMaker 2's `MirrorClient` and
`RemoteClusterUtils`.

    with MirrorClient({"bootstrap.servers": "kafka.eu:9092"}) as client:
        client.replication_hops("us")        1
        client.upstream_clusters()           {"us"}
        client.translated_offsets("us", "billing")

Topics are found by their names, and records are those of MirrorMaker 2, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TypeVar

from formats.errors import MalformedEvent, TargetError
from formats.messages.mirrormaker import (
    MirrorCheckpoint,
    MirrorHeartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
)
from formats.policies import upstream
from formats.policies.names import DefaultReplicationPolicy, ReplicationPolicy
from infra.contracts.cluster import ClusterAdmin, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.whole_topic import read_whole

T = TypeVar("T")
Records = Sequence[tuple[bytes | None, bytes | None]]


class MirrorClient:
    """A context manager; for one thread. Raises BrokerUnavailable, and TargetError when something may not be read."""

    def __init__(
        self,
        properties: Mapping[str, str],
        policy: ReplicationPolicy | None = None,
        *,
        within: timedelta = timedelta(minutes=1),
        admin: ClusterAdmin | None = None,
        read: Callable[[str], Records] | None = None,
    ) -> None:
        """`properties`: of the Kafka client. `policy`: by which topics are named; default: MirrorMaker 2's. `within`:
        limit of one read. `admin`, `read`: instead of those of the cluster. Raises ConfigError."""
        self.policy = policy or DefaultReplicationPolicy()
        self._admin = admin or KafkaAdmin(properties)
        self._read = read or (lambda topic: read_whole(properties, topic, within=within))

    def __enter__(self) -> MirrorClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    # --- by name ---

    def topics(self) -> frozenset[str]:
        return frozenset(self._admin.topics())

    def heartbeat_topics(self) -> frozenset[str]:
        return upstream.heartbeat_topics(self.policy, self.topics())

    def checkpoint_topics(self) -> frozenset[str]:
        return upstream.checkpoint_topics(self.policy, self.topics())

    def remote_topics(self, source: str | None = None) -> frozenset[str]:
        """Of every upstream cluster, or of the cluster `source`."""
        return upstream.remote_topics(self.policy, self.topics(), source)

    def upstream_clusters(self) -> frozenset[str]:
        return upstream.upstream_clusters(self.policy, self.topics())

    def replication_hops(self, alias: str) -> int | None:
        """None: no heartbeat of the cluster `alias` arrives."""
        return upstream.replication_hops(self.policy, self.topics(), alias)

    # --- by their records ---

    def heartbeats(self, topic: str) -> Sequence[MirrorHeartbeat]:
        """In the order of the topic; records that are none are left out."""
        return self._decoded(topic, decode_heartbeat)

    def checkpoints(self, topic: str) -> Sequence[MirrorCheckpoint]:
        return self._decoded(topic, decode_checkpoint)

    def offset_syncs(self, topic: str) -> Sequence[OffsetSync]:
        return self._decoded(topic, decode_offset_sync)

    def translated_offsets(self, alias: str, group: str) -> Mapping[TopicPartition, int]:
        """Where the group stands here, by the checkpoints of the cluster `alias`: the next offset by remote partition.
        Raises TargetError when the cluster has no checkpoints of it."""
        topic = self.policy.checkpoints_topic(alias)
        if topic not in self.topics():
            raise TargetError(f"there is no topic {topic}: no checkpoints of {alias} arrive in this cluster")
        return {
            TopicPartition(one.topic, one.partition): one.downstream_offset
            for one in self.checkpoints(topic)
            if one.group == group
        }

    def _decoded(self, topic: str, decode: Callable[[bytes, bytes], T]) -> Sequence[T]:
        found: list[T] = []
        for key, value in self._read(topic):
            if key is None or value is None:
                continue
            try:
                found.append(decode(key, value))
            except MalformedEvent:
                continue
        return found
