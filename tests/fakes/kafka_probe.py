"""A LogProbe in memory, on the logs of a FakeBroker.

probe = BrokerProbe(broker)
probe.silent.add(P)            no question about P is answered in time
probe.after_answer = f         `f()` happens between the next comparison and its answer's arrival
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from formats.log_point import LogPoint
from infra.contracts.cluster import LogEnds, LogTruncated, TopicPartition
from tests.fakes.kafka_consumer import FakeBroker


@dataclass(slots=True)
class BrokerProbe:
    broker: FakeBroker
    silent: set[TopicPartition] = field(default_factory=set)
    after_answer: Callable[[], None] | None = None

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        logs = {p: self.broker.logs[p] for p in self._known(partitions)}
        return {p: LogEnds(low=log.low, stable=log.stable, high=log.high) for p, log in logs.items()}

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        found = {}
        for partition in self._known(offsets):
            records = self.broker.logs[partition].records
            if behind := [offset for offset in records if offset >= offsets[partition]]:
                found[partition] = datetime.fromtimestamp(records[min(behind)].timestamp_ms / 1000, UTC)
        return found

    def without_records(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        return {p for p in self._known(offsets) if all(o < offsets[p] for o in self.broker.logs[p].records)}

    def truncated(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated]:
        return {p: truncated for p, truncated in self.compare_points(points).items() if truncated is not None}

    def compare_points(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated | None]:
        found: dict[TopicPartition, LogTruncated | None] = {}
        for partition in self._known(points):
            point = points[partition]
            end = self.broker.logs[partition].epoch_end(point.leader_epoch)
            is_true = end is not None and end >= point.next_offset
            found[partition] = None if is_true else LogTruncated(partition, point, end, f"{point} is not true")
        happens, self.after_answer = self.after_answer, None
        if happens is not None:
            happens()
        return found

    def _known(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [p for p in partitions if p in self.broker.logs and p not in self.silent]
