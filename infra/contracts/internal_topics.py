"""Our own topics: the event log, the checkpoints, the offset map, the ownership ledger, and the heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Parked, Skipped, Waiting
from formats.messages.group_claim import GroupClaim
from formats.messages.ledger import LedgerEntry, Ownership
from formats.messages.map_key import MapKey
from formats.messages.mirrormaker import MirrorHeartbeat
from formats.messages.segment_events import SegmentEvent
from formats.policies.acls import AclBinding

if TYPE_CHECKING:  # loads Arrow, which few need
    from formats.messages.offset_map import MapPage
    from formats.messages.offset_map_index import PageIndex


@dataclass(frozen=True, slots=True)
class LogReset:
    """The log lost unread records, or gained a partition: list the archive again."""

    reason: str


class EventLog(Protocol):
    """The segment-events topic: every instance reads all of it. One thread reads; another may publish."""

    def publish(self, events: Sequence[SegmentEvent]) -> None:
        """Returns once the broker has acknowledged all events; events of one object key keep their order. Raises
        BrokerUnavailable, and TargetError when this principal may not write the topic: then any part of the events may
        be in the log, and publishing them again is harmless."""

    def start(self) -> None:
        """Record the end of every partition of the log; `poll` begins there. May be called again to restart."""

    def poll(self, timeout: timedelta) -> Sequence[SegmentEvent | LogReset]: ...

    @property
    def problem(self) -> str:
        """Why this principal may not read the topic, and what to do, or why it has not been readable for a while; empty
        while it is read. Called by the reading thread."""

    def close(self) -> None: ...


class CheckpointStore(Protocol):
    """Reads the compacted checkpoint topic. TargetWriter writes checkpoints, together with the records."""

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """Every checkpoint, as of records acknowledged before this call began, combined by
        `delivery_checkpoint.follow`. Raises BrokerUnavailable, and TargetError when the topic does not exist or may not
        be read. Reads only the records written since the last call."""

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        """Parked records as of the last `read`; `still_parked` tells which of them apply."""

    def skipped(self) -> Sequence[Skipped]:
        """Offsets that an operator gave up, as of the last `read`."""

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        """Waiting records as of the last `read`; `still_waiting` tells which of them apply."""

    def claims(self) -> Sequence[GroupClaim]:
        """Claims of groups to this topic, in log order, as of the last `read`; see `group_claim.current_claim`."""

    def close(self) -> None: ...


class PartitionPages(Protocol):
    """The pages of one partition's offset map, numbered as in `index`. For the thread that reads the log, until it
    reads it again."""

    @property
    def index(self) -> PageIndex: ...

    def page(self, number: int) -> MapPage:
        """As it was written: `index` says where it ends."""

    def record(self, number: int) -> tuple[bytes, bytes]:
        """Key and value of the page's record."""


class OffsetMapLog(Protocol):
    """Reads the compacted topic of the offset map. TargetWriter writes pages, together with the records. One thread."""

    def read(self) -> Mapping[MapKey, PartitionPages]:
        """Every partition with any page, as of records acknowledged before this call began. Raises BrokerUnavailable,
        and TargetError when the topic does not exist or may not be read. Reads only the records written since the last
        call."""

    def close(self) -> None: ...


class OffsetMapEditor(Protocol):
    """Removes pages of the offset map. One thread."""

    def remove(self, key: MapKey, starts: Collection[int]) -> None:
        """Remove the pages with these starts. Returns once the broker has acknowledged that; repeating a call is
        harmless. Raises BrokerUnavailable, and TargetError when this principal may not write the topic; then any part
        of them may be removed."""

    def close(self) -> None: ...


class CheckpointEditor(Protocol):
    """Writes to the checkpoint topic without a TargetWriter. Every call returns once the broker has acknowledged the
    record, and raises BrokerUnavailable when that is unknown; repeating a call is harmless. One thread."""

    def park(self, key: CheckpointKey, parked: Parked | None) -> None:
        """Write the parked record of a partition; None removes it."""

    def seed(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        """Set the position on behalf of an operator: overrides every earlier checkpoint."""

    def skip(self, skipped: Skipped) -> None:
        """Record that these offsets are given up. Does not change the position."""

    def wait(self, key: CheckpointKey, waiting: Waiting | None) -> None:
        """Write the waiting record of a partition; None removes it."""

    def claim(self, claim: GroupClaim) -> None:
        """Append a claim. Never call it twice with one claim: its position in the log decides."""

    def withdraw(self, claim: GroupClaim) -> None: ...

    def close(self) -> None: ...


class ParkedReporter(Protocol):
    """Reports to operators, in the target cluster, which partitions wait for them. Never waits and never raises: a
    record may be late, and the last call for a partition wins. Called by the controller's thread."""

    def parked(self, key: CheckpointKey, parked: Parked) -> None:
        """The partition is stuck. May be called at every attempt; written only when it changes."""

    def progressed(self, key: CheckpointKey) -> None:
        """The partition makes progress: removes its records, even an earlier owner's. Cheap enough for every run."""

    def started(self, key: CheckpointKey) -> None:
        """The partition's position is known: removes a parked record without a position, also another process's."""

    def waiting(self, key: CheckpointKey, waiting: Waiting) -> None:
        """A listing confirmed that the partition waits since then. Written only when it changes; `progressed`
        removes it."""

    def revoked(self, key: CheckpointKey) -> None:
        """The partition is no longer ours: a written record stays, a pending one is dropped."""


class HeartbeatWriter(Protocol):
    """Writes records of MirrorMaker 2's heartbeats. One thread."""

    def write(self, topic: str, beat: MirrorHeartbeat) -> None:
        """Returns once the broker has acknowledged it. Raises BrokerUnavailable, also when there is no such topic, and
        TargetError when this principal may not write to it. After either it may be in the topic all the same."""

    def close(self) -> None: ...


class MirrorRecordLog(Protocol):
    """Topics with records of MirrorMaker 2's, in one partition. One thread. Raises BrokerUnavailable, also when there
    is no such topic, and TargetError when this principal may not read or write it."""

    def read(self, topic: str) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Keys and values of all records, in their order."""

    def write(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Returns once the broker has acknowledged them; after an error any of them may be in the topic."""

    def close(self) -> None: ...


class Ledger(Protocol):
    """The compacted topic that says what in this cluster is the replicator's. Safe to call from several
    threads. Raises BrokerUnavailable, and TargetError when the topic may not be read or written."""

    def read(self) -> Ownership:
        """The whole table, as of records acknowledged before this call began."""

    def write(self, entries: Sequence[LedgerEntry]) -> None:
        """Returns once the broker has acknowledged them; repeating a call is harmless."""

    def remove_acls(self, bindings: Sequence[AclBinding]) -> None:
        """The ACLs are gone from the cluster."""

    def close(self) -> None: ...
