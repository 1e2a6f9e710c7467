"""Where ingress works: the group's assignment of the destination topics, and nothing of their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from infra.kafka.errors import told
from infra.kafka.membership import Membership
from infra.kafka.settings import placement_properties
from replicator.errors import BrokerUnavailable
from replicator.metrics import Metrics, NoMetrics
from replicator.protocols import ConsumerDisturbed, GroupListener, TopicPartition

ANSWER = timedelta(seconds=15)


class KafkaPlacement:
    """Every partition stays paused from the moment it comes, so no position matters and polling only keeps the
    membership. Not paused, it would fetch what ingress itself has just produced."""

    def __init__(self, properties: Mapping[str, str], *, group_id: str, metrics: Metrics | None = None) -> None:
        self._group_id = group_id
        config = placement_properties(properties, group_id=group_id)
        self._member = Membership(config, metrics=metrics or NoMetrics())
        self._fence: object = self._member.client.consumer_group_metadata()

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, listener)

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]:
        """Raises OwnershipLost when this member can never go on."""
        messages = self._member.consume(1, timeout)
        # Here, and not when somebody asks: that would wait until no callback is at work (seen), under the very lock
        # that a revocation waits for. It may be newer than what the listener was told: what the group takes in the new
        # generation stays this member's until the listener was told, so what is written under it is still its own.
        self._fence = self._member.client.consumer_group_metadata()
        for message in messages:  # a record that was under way when its partition was paused
            if (error := message.error()) is not None:
                self._member.count_error(error)
        return self._member.disturbances()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._member.held

    def fence(self) -> object:
        """See Placement. The client's opaque group metadata, for `send_offsets_to_transaction`."""
        return self._fence

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """See Placement. The offsets themselves say nothing: groups expire, are reset, and may be shared. But under
        `read_committed` the broker does not answer while a transaction of any member holds one of them (seen)."""
        asked = [ClientPartition(p.topic, p.partition) for p in partitions]
        try:
            answered = self._member.client.committed(asked, timeout=ANSWER.total_seconds())
        except KafkaException as error:
            raise BrokerUnavailable(f"offsets of {self._group_id}: {told(error.args[0])}") from error
        for each in answered:
            if each.error is not None:
                raise BrokerUnavailable(
                    f"offset of {self._group_id} for {each.topic}/{each.partition}: {told(each.error)}"
                )

    def close(self, timeout: timedelta) -> None:
        self._member.close(timeout)
