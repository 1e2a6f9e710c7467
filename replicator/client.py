"""What a cluster says about the clusters upstream of it: the functions of MirrorMaker 2's `MirrorClient` and
`RemoteClusterUtils`, and how far delivery is behind.

    with MirrorClient({"bootstrap.servers": "kafka.eu:9092"}) as client:      asks Kafka only
        client.replication_hops("us")        1
        client.upstream_clusters()           {"us"}
        client.remote_consumer_offsets("us", "billing")
    translate_offsets({"bootstrap.servers": "kafka.eu:9092"}, "us", "billing")      the same in one call

    lag(load("eu.toml"))                                                      asks the bucket, too

Topics are found by their names, and records are those of MirrorMaker 2, whichever program wrote them.
"""

# ruff: noqa: PLC0415  -- what single functions need is not loaded by those that ask Kafka only

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

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
from infra.contracts.cluster import ClusterAdmin, Committed, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.whole_topic import KeyValue, read_each

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.status.lag import PartitionLag

T = TypeVar("T")
OnMalformed = Callable[[MalformedEvent], None]


class ReadTopic(Protocol):
    def __call__(self, topic: str, *, follow: bool) -> Iterable[KeyValue]:
        """Keys and values from the topic's begin to its end, or for ever."""


@dataclass(frozen=True, slots=True)
class _KafkaTopics:
    properties: Mapping[str, str]
    patience: timedelta

    def __call__(self, topic: str, *, follow: bool) -> Iterable[KeyValue]:
        return read_each(self.properties, topic, follow=follow, patience=self.patience)


class MirrorClient:
    """A context manager; for one thread. Raises BrokerUnavailable, and TargetError when something does not exist or may
    not be read. Kafka shows only the topics that the principal may describe."""

    def __init__(
        self,
        properties: Mapping[str, str],
        policy: ReplicationPolicy | None = None,
        *,
        patience: timedelta = timedelta(minutes=1),
        own_topics: Collection[str] = (),
        admin: ClusterAdmin | None = None,
        read: ReadTopic | None = None,
    ) -> None:
        """`properties`: of the Kafka client. `policy`: by which topics are named; default: MirrorMaker 2's. `patience`:
        without progress while a topic is read. `own_topics`: those of the replicator besides `replicator.*`, which come
        from no other cluster. `admin`, `read`: instead of those of the cluster. Raises ConfigError."""
        self.policy = policy or DefaultReplicationPolicy()
        self._own_topics = frozenset(own_topics)
        self._properties = properties
        self._admin = admin or KafkaAdmin(properties)
        self._read = read or _KafkaTopics(properties, patience)

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

    def offset_sync_topics(self) -> frozenset[str]:
        return upstream.offset_sync_topics(self.policy, self.topics())

    def remote_topics(self, source: str | None = None) -> frozenset[str]:
        """Of every upstream cluster, or of the cluster `source`; without the replicator's own."""
        return upstream.remote_topics(self.policy, self.topics(), source, self._own_topics)

    def scram_users(self) -> frozenset[str]:
        """Of this cluster; they do not cross. Needs DESCRIBE on the cluster."""
        from infra.kafka.cluster.scram_users import scram_users

        return scram_users(KafkaAdmin(self._properties).connection)

    def upstream_clusters(self) -> frozenset[str]:
        return upstream.upstream_clusters(self.policy, self.topics())

    def replication_hops(self, alias: str) -> int | None:
        """None: no heartbeats of the cluster `alias` arrive. MirrorMaker 2 answers -1 then."""
        return upstream.replication_hops(self.policy, self.topics(), alias)

    # --- by their records ---

    def heartbeats(
        self, topic: str, *, follow: bool = False, on_malformed: OnMalformed | None = None
    ) -> Iterator[MirrorHeartbeat]:
        """In the order of the topic, to its end at the time of the call, or for ever, in bounded memory. Records that
        are no heartbeats are left out, and given to `on_malformed`; deletions are left out, too."""
        return self._decoded(topic, decode_heartbeat, follow=follow, on_malformed=on_malformed)

    def checkpoints(
        self, topic: str, *, follow: bool = False, on_malformed: OnMalformed | None = None
    ) -> Iterator[MirrorCheckpoint]:
        """As `heartbeats`."""
        return self._decoded(topic, decode_checkpoint, follow=follow, on_malformed=on_malformed)

    def offset_syncs(
        self, topic: str, *, follow: bool = False, on_malformed: OnMalformed | None = None
    ) -> Iterator[OffsetSync]:
        """As `heartbeats`."""
        return self._decoded(topic, decode_offset_sync, follow=follow, on_malformed=on_malformed)

    def remote_consumer_offsets(self, alias: str, group: str) -> Mapping[TopicPartition, Committed]:
        """Where the consumer group stands here, by the checkpoints of the cluster `alias`: of each remote partition the
        next offset and the group's metadata. Empty for a group without checkpoints; a deleted one is none. Raises
        TargetError when no checkpoints of the cluster arrive."""
        return self.remote_offsets_of_groups(alias, re.escape(group)).get(group, {})

    def remote_offsets_of_groups(
        self, alias: str, pattern: str = ".*"
    ) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        """The same of each group whose whole name the expression matches."""
        topic = self.policy.checkpoints_topic(alias)
        if topic not in self.topics():
            raise TargetError(f"there is no topic {topic}: no checkpoints of {alias} arrive in this cluster")
        wanted = re.compile(pattern)
        newest: dict[bytes, MirrorCheckpoint] = {}
        for key, value in self._read(topic, follow=False):
            if value is None:
                newest.pop(key or b"", None)
                continue
            with suppress(MalformedEvent):
                one = decode_checkpoint(key or b"", value)
                if wanted.fullmatch(one.group):
                    newest[key or b""] = one
        found: dict[str, dict[TopicPartition, Committed]] = {}
        for one in newest.values():
            offsets = found.setdefault(one.group, {})
            offsets[TopicPartition(one.topic, one.partition)] = Committed(one.downstream_offset, one.metadata)
        return found

    def _decoded(
        self, topic: str, decode: Callable[[bytes, bytes], T], *, follow: bool, on_malformed: OnMalformed | None
    ) -> Iterator[T]:
        for key, value in self._read(topic, follow=follow):
            if value is None:
                continue
            try:
                yield decode(key or b"", value)
            except MalformedEvent as error:
                if on_malformed is not None:
                    on_malformed(error)


def translate_offsets(
    properties: Mapping[str, str], alias: str, group: str, policy: ReplicationPolicy | None = None
) -> Mapping[TopicPartition, Committed]:
    """`RemoteClusterUtils.translateOffsets`: `remote_consumer_offsets` of a client of its own. Raises ConfigError."""
    with MirrorClient(properties, policy) as client:
        return client.remote_consumer_offsets(alias, group)


def lag(config: Config) -> Sequence[PartitionLag]:
    """How far each partition that ingress delivers is behind its source's log, by the watermarks and segments that have
    arrived in the bucket. Raises ConfigError without [ingress], StoreUnavailable, BrokerUnavailable, TargetError."""
    from infra.runtime.lifecycle import SystemClock
    from replicator.services.clients import Clients
    from replicator.services.ingress_status import partition_lags

    with Clients(config, with_logs=False) as clients:
        return partition_lags(clients, SystemClock().now())
