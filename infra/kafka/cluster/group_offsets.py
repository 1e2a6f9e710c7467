"""Committed offsets of a consumer group, readable from any thread."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.client.connect import connect
from infra.kafka.client.epochs import epoch_of
from infra.kafka.client.errors import UNREACHABLE, error_of, translate
from infra.runtime.lifecycle import Deadline, Stop

POLL_INTERVAL = timedelta(milliseconds=20)
MIN_TIMEOUT = timedelta(milliseconds=100)
REPLACED_AFTER = timedelta(seconds=10)  # the youngest client that is replaced


class GroupOffsets:
    """Uses a client of its own that never joins the group: the member's client blocks other threads while it consumes
    (seen: `committed` waits for `consume` to return). The client is created on first use, and replaced when it got no
    answer: see `infra.kafka.client.lost_brokers`. Safe to call from several threads."""

    def __init__(self, properties: Mapping[str, str], *, timeout: timedelta) -> None:
        self._properties = properties
        self._timeout = timeout
        self._group_id = properties["group.id"]
        self._lock = threading.Lock()
        self._client: Consumer | None = None
        self._is_new = Deadline(REPLACED_AFTER)
        self._never = Stop()

    def committed(
        self, partitions: Collection[TopicPartition], timeout: timedelta | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """Committed offsets; partitions without one are left out. Under `read_committed`, waits for pending
        transactional offsets. Raises BrokerUnavailable, and TargetError when reading the group is not permitted."""
        limit = self._timeout if timeout is None else min(timeout, self._timeout)
        if not partitions:
            return {}
        operation = f"read the committed offsets of group {self._group_id}"
        with self._lock:
            if self._client is None:
                self._client = connect(Consumer, dict(self._properties))
                self._is_new = Deadline(REPLACED_AFTER)
            try:
                requested = [ClientPartition(p.topic, p.partition) for p in partitions]
                answers = self._client.committed(requested, timeout=limit.total_seconds())
                self._client.poll(0)  # delivers its log lines
            except KafkaException as error:
                if error_of(error).code() in UNREACHABLE and self._is_new.expired:
                    self._client.close()
                    self._client = None
                raise translate(error, operation) from error
        found: dict[TopicPartition, Committed] = {}
        for answer in answers:
            if answer.error is not None:  # an error does not mean that there is no offset
                raise translate(answer.error, f"{operation} for {answer.topic}/{answer.partition}")
            if answer.offset >= 0:
                found[TopicPartition(answer.topic, answer.partition)] = Committed(
                    answer.offset, answer.metadata or "", epoch_of(answer.leader_epoch)
                )
        return found

    def wait_for(self, wanted: Mapping[TopicPartition, Committed], timeout: timedelta) -> None:
        """Return once the group has the offsets `wanted`. Raises BrokerUnavailable after `timeout`."""
        deadline = Deadline(timeout)
        problem = "the broker still has other offsets"
        while True:
            try:
                found = self.committed(wanted, max(deadline.left, MIN_TIMEOUT))
                if all(p in found and found[p].next_offset == offset.next_offset for p, offset in wanted.items()):
                    return
            except BrokerUnavailable as error:
                problem = str(error)
            if deadline.expired:
                names = ", ".join(map(str, sorted(wanted)))
                operation = f"commit {names} in group {self._group_id}"
                raise BrokerUnavailable(f"{operation}: not seen within {timeout}: {problem}")
            self._never.wait(min(POLL_INTERVAL, deadline.left))

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
