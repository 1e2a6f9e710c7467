"""Our own topics in the target cluster: the event log and the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Parked, Skipped, Waiting
from formats.messages.group_claim import GroupClaim
from formats.messages.segment_events import SegmentEvent


@dataclass(frozen=True, slots=True)
class LogReset:
    """The log lost records we had not read, or gained a partition: list again."""

    reason: str


class EventLog(Protocol):
    """The segment-events topic: every instance reads all of it. One thread reads; another may publish."""

    def publish(self, events: Sequence[SegmentEvent]) -> None:
        """Returns once the broker has all of them; events of one object key keep their order. Raises BrokerUnavailable,
        and TargetError when the topic is not for this principal to write: then any part of them may be there, and
        publishing again is harmless."""

    def start(self) -> None:
        """Note the end of every partition of the log; `poll` begins there. May be called again to start over."""

    def poll(self, timeout: timedelta) -> Sequence[SegmentEvent | LogReset]: ...

    @property
    def trouble(self) -> str:
        """Why the topic is not for this principal to read, and what to do; empty when it is. On the thread that
        reads."""

    def close(self) -> None: ...


class CheckpointStore(Protocol):
    """Reads the compacted checkpoint topic. Writing is the TargetWriter's, with the records."""

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """Every checkpoint, as of records acknowledged before this call began, and as `checkpoint.follow` puts them
        together. Raises BrokerUnavailable, and TargetError when the topic is not there or not for us to read. The cost
        is that of what was written since the last call."""

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        """What partitions said when they stopped, as of the last `read`; `still_parked` says which of it holds."""

    def skipped(self) -> Sequence[Skipped]:
        """Offsets that an operator gave up, as of the last `read`."""

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        """What partitions wait for and since when, as of the last `read`; of one that went on since, maybe, too."""

    def claims(self) -> Sequence[GroupClaim]:
        """Of groups to this topic, in the order of the log, as of the last `read`; see `group_claim.standing`."""

    def close(self) -> None: ...


class CheckpointEditor(Protocol):
    """Writes into the checkpoint topic past the TargetWriter. Every call returns once the broker has the record, and
    raises BrokerUnavailable when that is not known; saying the same again is harmless. One thread."""

    def park(self, key: CheckpointKey, parked: Parked | None) -> None:
        """None: it is parked no more."""

    def seed(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        """An operator's word: it holds whatever was said before."""

    def skip(self, skipped: Skipped) -> None:
        """Write down that these offsets are given up. Changes no position."""

    def wait(self, key: CheckpointKey, waiting: Waiting | None) -> None:
        """None: it waits no more."""

    def claim(self, claim: GroupClaim) -> None:
        """Never the same one twice: its place in the log decides."""

    def withdraw(self, claim: GroupClaim) -> None: ...

    def close(self) -> None: ...


class ParkedReporter(Protocol):
    """Tells operators, in the target, which partitions wait for them. Never waits and never raises: a note may come
    late, and the last word about a partition wins. Called by the controller's thread."""

    def parked(self, key: CheckpointKey, parked: Parked) -> None:
        """It cannot go on. May be said again with every attempt; it is written when it is news."""

    def going(self, key: CheckpointKey) -> None:
        """It makes progress: a note of ours or of an owner before us goes. Cheap to say for every run."""

    def begun(self, key: CheckpointKey) -> None:
        """Its position is known: a note, of anybody, that it has none goes."""

    def waiting(self, key: CheckpointKey, waiting: Waiting) -> None:
        """A listing confirmed that it waits, since then. It is written when it is news; `going` removes it."""

    def left(self, key: CheckpointKey) -> None:
        """It is not ours any more: a note that stands stays, one that is not written yet never is."""
