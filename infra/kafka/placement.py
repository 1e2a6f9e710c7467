"""Where ingress works: the group's assignment of the destination topics, and nothing of their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from infra.kafka.membership import Membership
from infra.kafka.settings import placement_properties
from replicator.metrics import Metrics, NoMetrics
from replicator.protocols import ConsumerDisturbed, GroupListener, TopicPartition


class KafkaPlacement:
    """Every partition stays paused from the moment it comes, so no position matters and polling only keeps the
    membership. Not paused, it would fetch what ingress itself has just produced."""

    def __init__(self, properties: Mapping[str, str], *, group_id: str, metrics: Metrics | None = None) -> None:
        config = placement_properties(properties, group_id=group_id)
        self._member = Membership(config, metrics=metrics or NoMetrics())

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, listener)

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]:
        """Raises OwnershipLost when this member can never go on."""
        for message in self._member.consume(1, timeout):  # a record that was under way when its partition was paused
            if (error := message.error()) is not None:
                self._member.count_error(error)
        return self._member.disturbances()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._member.held

    def group_metadata(self) -> Any:
        """This member and its generation, as the client's opaque object: what `send_offsets_to_transaction` fences
        with. Take it under the lock that the revocation takes, and keep it for the whole transaction."""
        return self._member.client.consumer_group_metadata()

    def close(self, timeout: timedelta) -> None:
        self._member.close(timeout)
