"""Which target partitions an ingress process has: its assignment in the group on the destination topics. No records are
read."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from confluent_kafka import KafkaException

from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, GroupListener
from infra.kafka.client.errors import translate
from infra.kafka.client.properties import lookup_properties, placement_properties
from infra.kafka.cluster.group_offsets import GroupOffsets
from infra.kafka.consumer.group_member import POLL_TIMEOUT, Membership
from infra.kafka.consumer.group_metadata import group_metadata, names_member
from infra.runtime.lifecycle import Deadline
from infra.runtime.metrics import Metrics, NoMetrics
from infra.runtime.poll_record import PollRecord

ANSWER_TIMEOUT = timedelta(seconds=15)


class KafkaPlacement:
    """A Placement. Every partition is paused as soon as it is assigned, so positions do not matter and polling only
    keeps the membership. An unpaused partition would fetch the records that ingress itself has just produced."""

    def __init__(self, properties: Mapping[str, str], *, group_id: str, metrics: Metrics | None = None) -> None:
        self._group_id = group_id
        config = placement_properties(properties, group_id=group_id)
        self._member = Membership(config, group_id=group_id, metrics=metrics or NoMetrics())
        # of a client of its own: the member's would take no other call until the answer, not even a poll
        self._offsets = GroupOffsets(lookup_properties(config), timeout=ANSWER_TIMEOUT)
        self._fence: bytes | None = None
        self._polls = PollRecord()

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, listener)

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]:
        """Raises OwnershipLost when this member can never continue, BrokerUnavailable."""
        messages = self._member.consume(1, timeout)
        self._polls.polled(time.monotonic())
        # Read here and not in `fence`: the client's call waits while a callback runs (seen), and the caller of `fence`
        # has the lock that a revocation waits for. The generation may be newer than the listener's last notification:
        # partitions that the group revokes in it stay this member's until the listener is called, so that writes under
        # it are still the owner's.
        self._fence = self._generation()
        for message in messages:  # a record may have been in flight when its partition was paused
            if (error := message.error()) is not None:
                self._member.count_error(error)
        return self._member.disturbances()

    def is_kept_up(self) -> bool:
        """Whether this member has polled in time, so that it still owns every partition whose revocation was not
        delivered to it. From any thread; never waits."""
        return self._fence is not None and self._polls.is_kept_up(time.monotonic())

    def assignment(self) -> frozenset[TopicPartition]:
        return self._member.assignment

    @property
    def problem(self) -> str:
        """See Placement."""
        return self._member.problem

    def fence(self) -> object | None:
        """See Placement. The client's opaque group metadata, for `send_offsets_to_transaction`."""
        return self._fence

    def _generation(self) -> bytes | None:
        """The group metadata; None while the member is in no generation: a broker accepts metadata without member and
        generation from any client, whichever member owns the partitions (seen)."""
        try:
            metadata = group_metadata(self._member.client)
        except KafkaException as error:
            raise translate(error, f"the generation of a member of {self._group_id}") from error
        return metadata if names_member(self._member.client, metadata) else None

    def wait_until_settled(self, partitions: Collection[TopicPartition]) -> None:
        """See Placement. The offsets themselves are not used: groups expire, are reset, and may be shared. But under
        `read_committed` the broker does not answer while a transaction of any member has a pending offset for one of
        the partitions (seen)."""
        self._offsets.committed(partitions)

    def close(self, timeout: timedelta) -> None:
        deadline = Deadline(timeout)
        self._member.close(timeout)
        # waits for the answer of a question under way: not on this thread
        closer = threading.Thread(target=self._offsets.close, name="kafka-offsets-close", daemon=True)
        closer.start()
        closer.join(max(deadline.left, POLL_TIMEOUT).total_seconds())
