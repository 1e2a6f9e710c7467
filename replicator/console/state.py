"""What the console knows, in few bytes for each partition. Pure.

Every part is read by itself. A part that cannot be read now keeps what was read last, with its time and the error:
an error is never shown as an absence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from formats.segment import SourcePartition
from infra.archive.proofs import Proof
from replicator.status.compaction import CompactionStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart(Generic[T]):
    """One part of the state. `value` is None until it was read once, and where the configuration has no such part."""

    is_configured: bool = True
    value: T | None = None
    read_at: datetime | None = None  # when `value` was read
    error: str = ""  # why it could not be read since; empty: it could
    failed_at: datetime | None = None  # of the last failure; None: it could be read

    def succeeded(self, value: T, now: datetime) -> ReadPart[T]:
        return ReadPart(value=value, read_at=now)

    def failed(self, error: str, now: datetime) -> ReadPart[T]:
        """Keeps what was read before."""
        return replace(self, error=error, failed_at=now)


class FlowKind(StrEnum):
    EGRESS = "egress"
    INGRESS = "ingress"


class Condition(StrEnum):
    """Of a partition. The worst one of a topic's partitions is the topic's."""

    PROBLEM = "problem"  # an operator has to act
    WAITING = "waiting"  # delivered later: nothing to do
    RUNNING = "running"
    OVER = "over"  # delivery went on to the next incarnation, or the configuration does not deliver it any more


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition of a flow. Offsets are those of the source; "next" ones are one behind the last."""

    flow: FlowKind
    source: SourcePartition
    destination: str  # topic of this cluster; empty for egress
    position: int | None  # next offset to be archived, or delivered
    archive_end: int | None
    source_end: int | None  # next offset of the source's log; None: not known
    lag: int | None  # records of the source's log that are not archived, or not delivered; None: not known
    seconds: float | None  # age of the moment as of which the copy is complete; None: not known
    stored_bytes: int = 0  # of what is to be delivered
    gaps: int = 0  # recorded
    proof: Proof | None = None
    condition: Condition = Condition.RUNNING
    problems: tuple[str, ...] = ()
    note: str = ""  # what it waits for, or a state that is no problem


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRegion:
    region: str
    heartbeat_at: datetime | None
    records_behind: int | None
    unknown: int = 0  # partitions of which that is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """The state of egress or of ingress."""

    kind: FlowKind
    group_id: str
    group_state: str
    members: int
    rows: tuple[PartitionRow, ...]
    problems: tuple[str, ...]  # all, also those of partitions
    sources: tuple[SourceRegion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """What is done here with the offset of a consumer group in one partition."""

    region: str
    group: str
    source: str  # region/topic/partition
    source_offset: int
    topic: str  # here
    partition: int
    offset: int | None  # here, translated; None: not known
    here: int | None  # what the group has committed here
    outcome: str
    exactness: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionGroups:
    """The consumer groups of a region, by the newest snapshot that arrived."""

    region: str
    as_of: datetime | None
    groups: int
    unreadable: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsState:
    regions: tuple[RegionGroups, ...]
    is_synced: bool  # whether ingress commits offsets for them here
    offsets: tuple[GroupOffset, ...] = ()
    left_out: int = 0  # offsets beyond the most that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRecord:
    """One line of the file that `drill --history` writes."""

    at: datetime
    region: str
    is_good: bool
    partitions: int
    records: int
    restore_seconds: float
    verify_seconds: float
    behind_seconds: float | None
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillHistory:
    drills: tuple[DrillRecord, ...]  # the newest first
    unreadable: int = 0  # lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleState:
    region: str
    started_at: datetime
    refreshed_at: datetime | None = None  # end of the last refresh; None: the first one is not done
    refresh_seconds: float = 0.0  # how long it took
    egress: ReadPart[FlowState] = ReadPart()
    ingress: ReadPart[FlowState] = ReadPart()
    groups: ReadPart[GroupsState] = ReadPart()
    compaction: ReadPart[CompactionStatus] = ReadPart()
    drills: ReadPart[DrillHistory] = ReadPart()

    @property
    def flows(self) -> Sequence[tuple[FlowKind, ReadPart[FlowState]]]:
        return [(FlowKind.EGRESS, self.egress), (FlowKind.INGRESS, self.ingress)]

    @property
    def parts(self) -> Sequence[tuple[str, ReadPart[Any]]]:
        return [
            ("egress", self.egress),
            ("ingress", self.ingress),
            ("groups", self.groups),
            ("compaction", self.compaction),
            ("drills", self.drills),
        ]

    @property
    def is_any_flow_unread(self) -> bool:
        """Whether there may be topics of which nothing is known."""
        return any(part.is_configured and part.value is None for _, part in self.flows)

    @property
    def rows(self) -> Sequence[PartitionRow]:
        return [row for _, part in self.flows if part.value is not None for row in part.value.rows]
