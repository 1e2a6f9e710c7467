"""Where ingress works: the group's assignment of the destination topics, and nothing of their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, GroupListener
from infra.kafka.client.errors import translate
from infra.kafka.client.properties import placement_properties
from infra.kafka.consumer.group_member import Membership
from infra.runtime.metrics import Metrics, NoMetrics

ANSWER = timedelta(seconds=15)
NO_GENERATION = b"CGMDv2:\xff\xff\xff\xff"
"""How the client's group metadata begins when it is in no generation: its own magic, and -1."""


class KafkaPlacement:
    """Every partition stays paused from the moment it comes, so no position matters and polling only keeps the
    membership. Not paused, it would fetch what ingress itself has just produced."""

    def __init__(self, properties: Mapping[str, str], *, group_id: str, metrics: Metrics | None = None) -> None:
        self._group_id = group_id
        config = placement_properties(properties, group_id=group_id)
        self._member = Membership(config, group_id=group_id, metrics=metrics or NoMetrics())
        self._fence: bytes | None = None

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, listener)

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]:
        """Raises OwnershipLost when this member can never go on."""
        messages = self._member.consume(1, timeout)
        # Here, and not when somebody asks: that would wait until no callback is at work (seen), under the very lock
        # that a revocation waits for. It may be newer than what the listener was told: what the group takes in the new
        # generation stays this member's until the listener was told, so what is written under it is still its own.
        self._fence = self._generation()
        for message in messages:  # a record that was under way when its partition was paused
            if (error := message.error()) is not None:
                self._member.count_error(error)
        return self._member.disturbances()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._member.held

    @property
    def trouble(self) -> str:
        """See Placement."""
        return self._member.trouble

    def fence(self) -> object | None:
        """See Placement. The client's opaque group metadata, for `send_offsets_to_transaction`."""
        return self._fence

    def _generation(self) -> bytes | None:
        """None in no generation: a broker takes a fence that names neither member nor generation from anybody, whoever
        owns the partitions (seen). The member id is what the client documents; but it is asked for beside the metadata,
        and the client's own thread may forget it in between."""
        metadata: bytes = self._member.client.consumer_group_metadata()
        if not self._member.client.memberid() or metadata.startswith(NO_GENERATION):
            return None
        return metadata

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """See Placement. The offsets themselves say nothing: groups expire, are reset, and may be shared. But under
        `read_committed` the broker does not answer while a transaction of any member holds one of them (seen)."""
        asked = [ClientPartition(p.topic, p.partition) for p in partitions]
        try:
            answered = self._member.client.committed(asked, timeout=ANSWER.total_seconds())
        except KafkaException as error:
            raise translate(error, f"offsets of {self._group_id}") from error
        for each in answered:
            if each.error is not None:
                raise translate(each.error, f"offset of {self._group_id} for {each.topic}/{each.partition}")

    def close(self, timeout: timedelta) -> None:
        self._member.close(timeout)
