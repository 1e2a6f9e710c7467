"""What a cluster says of groups and of its logs' ends, as the test sets it.

groups.members["g"] = 2         a group with members; otherwise it is empty
groups.offsets["g"] = {...}     what it committed
probe.marks[p] = LogEnds(...)   where a log begins and ends
probe.stamped[p] = at           stamp of the record asked for
probe.forked[p] = 5             where the epoch that is asked about ends
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from formats.errors import BrokerUnavailable
from formats.log_point import LogPoint
from infra.contracts.cluster import Committed, GroupFacts, LogEnds, LogTruncated, TopicPartition


@dataclass(slots=True)
class FakeGroups:
    members: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)  # groups that the cluster does not have
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    away: bool = False

    def facts(self, group_id: str) -> GroupFacts:
        self._ask()
        members = self.members.get(group_id, 0)
        if group_id in self.unknown:
            return GroupFacts(state="dead", members=0, partitions=frozenset())
        return GroupFacts(state="stable" if members else "empty", members=members, partitions=frozenset())

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        self._ask()
        return {p: c for p, c in self.offsets.get(group_id, {}).items() if p in partitions}

    def _ask(self) -> None:
        if self.away:
            raise BrokerUnavailable("groups: planned")


@dataclass(slots=True)
class FakeProbe:
    marks: dict[TopicPartition, LogEnds] = field(default_factory=dict)
    stamped: dict[TopicPartition, datetime] = field(default_factory=dict)
    forked: dict[TopicPartition, int] = field(default_factory=dict)
    empty: set[TopicPartition] = field(default_factory=set)  # without records where they are asked for

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        return {p: self.marks[p] for p in partitions if p in self.marks}

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        return {p: self.stamped[p] for p in offsets if p in self.stamped}

    def without_records(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        return {p for p in offsets if p in self.empty}

    def truncated(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated]:
        return {p: truncated for p, truncated in self.compare_points(points).items() if truncated is not None}

    def compare_points(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated | None]:
        return {p: LogTruncated(p, points[p], self.forked[p], "planned") if p in self.forked else None for p in points}
