"""Ends of partitions' logs, for the control plane: LogEndReader on the Kafka client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its stubs hide what it documents

from formats.errors import ReplicatorError
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.kafka.client.errors import error_of, translate
from infra.kafka.cluster.admin import ABSENT, BATCH, EARLIEST, LATEST
from infra.kafka.cluster.admin_connection import AdminConnection

_Offsets = dict[TopicPartition, int | ReplicatorError]


class KafkaLogEnds:
    """A LogEndReader. `connection`: shared with the process's other admin requests."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection

    def log_ends(
        self, partitions: Collection[TopicPartition], lows: Mapping[TopicPartition, int] | None = None
    ) -> Mapping[TopicPartition, LogEnds | ReplicatorError]:
        """Three requests for each BATCH partitions, or two without those for known lows, in an order that keeps
        low <= stable <= high, unless the log is truncated meanwhile."""
        known = lows or {}
        found: dict[TopicPartition, LogEnds | ReplicatorError] = {}
        rest = iter(sorted(partitions))
        while batch := list(islice(rest, BATCH)):
            starts = self._list([p for p in batch if p not in known], EARLIEST, IsolationLevel.READ_UNCOMMITTED)
            starts |= {partition: known[partition] for partition in batch if partition in known}
            stables = self._list(_known(starts), LATEST, IsolationLevel.READ_COMMITTED)
            highs = self._list(_known(stables), LATEST, IsolationLevel.READ_UNCOMMITTED)
            found |= _failed(starts) | _failed(stables) | _failed(highs)
            for partition, high in highs.items():
                low, stable = starts[partition], stables[partition]
                if isinstance(low, int) and isinstance(stable, int) and isinstance(high, int):
                    found[partition] = LogEnds(low=low, stable=stable, high=high)
        return found

    def _list(self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel) -> _Offsets:
        if not partitions:
            return {}
        futures = self._connection.client.list_offsets(
            {ClientPartition(p.topic, p.partition): spec for p in partitions},
            isolation_level=isolation,
            request_timeout=self._connection.timeout.total_seconds(),
        )
        found: _Offsets = {}
        for where, future in futures.items():
            partition = TopicPartition(where.topic, where.partition)
            operation = f"list offsets of {partition}"
            try:
                found[partition] = self._connection.wait(future, operation).offset
            except KafkaException as error:
                if error_of(error).code() not in ABSENT:
                    found[partition] = translate(error, operation)
        return found


def _known(offsets: _Offsets) -> list[TopicPartition]:
    return [partition for partition, offset in offsets.items() if isinstance(offset, int)]


def _failed(offsets: _Offsets) -> dict[TopicPartition, LogEnds | ReplicatorError]:
    return {partition: offset for partition, offset in offsets.items() if not isinstance(offset, int)}
