"""Producing to target topics: runs, their checkpoints, and delivery failures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from formats.messages.delivery_checkpoint import NOT_FILLED, Author, Checkpoint, CheckpointKey, Filled, Skipped

if TYPE_CHECKING:
    from pyarrow import RecordBatch
from infra.contracts.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class TargetRun:
    """Records to produce, in order, to one target partition. Once they are produced, `checkpoint` holds, and so do the
    records of offsets `skipped` in between."""

    partition: TopicPartition
    batches: Sequence[RecordBatch]
    count: int
    size_bytes: int
    key: CheckpointKey
    checkpoint: Checkpoint
    position: int  # source offset before the run: those from here on that have no record are holes
    epoch: int  # one ownership of the partition, in which this writer alone delivers to it
    skipped: Sequence[Skipped] = ()
    filled: Filled = NOT_FILLED  # at least, before this ownership

    @property
    def without_records(self) -> TargetRun:
        return replace(self, batches=())


class FailureKind(Enum):
    """State of runs that are not known to be in the target, and what the caller does."""

    RETRY_LATER = "retry"  # not written; a later attempt may succeed
    RETRY_NOW = "at once"  # not written, not at fault: failed with another run, or to be sent differently
    REJECTED = "refused"  # the target rejects a record of these runs, permanently; which one is unknown
    DENIED = "denied"  # not written; the target rejects every record for this topic until an operator acts
    DELIVER_SEPARATELY = "deliver separately"  # not written; one topic of the call is at fault, unknown which
    STALLED = "stalled"  # the target accepts nothing for this partition now; waiting would block the others
    UNKNOWN = "unknown"  # written completely, with the checkpoint, or not at all: read the position again


@dataclass(frozen=True, slots=True)
class RunFailed:
    """Failure of all runs to one partition in one call, whatever their sources."""

    partition: TopicPartition
    code: str
    reason: str
    kind: FailureKind


class TargetWriter(Protocol):
    """Produces runs and their checkpoints, with the delivery guarantee it was built for. One thread."""

    @property
    def author(self) -> Author:
        """Author of its checkpoints, which determines what they prove."""

    def batch_size_class(self, topic: str) -> int:
        """Class of the topic; one call of `deliver` may only contain topics of one class."""

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        """Produce runs as they arrive, wait until the target has acknowledged all of them, and write the last
        checkpoint of each source partition as the guarantee requires. Returns the partitions that failed; for all other
        partitions, runs and checkpoints are in the target. `fence` is the result of `Placement.fence` from when the
        caller checked that it owns the partitions; None when no other process can own them. Raises BrokerUnavailable
        when the state of all runs is unknown: read the positions again. Raises WriterRefused when the target rejects
        this writer: no checkpoint was written, and the positions are unchanged."""

    def close(self, timeout: timedelta) -> None: ...


class UnfencedWriter(TargetWriter, Protocol):
    """One whose records the target does not fence: the next owner of a partition waits for them, unless it knows that
    there are none."""

    def leave(self, epochs: Collection[int]) -> None:
        """These ownerships are over. Not during `deliver`; raises nothing that keeps the others waiting."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Records that a target topic accepts."""

    batches: Sequence[RecordBatch]
    altered: int  # number of clamped timestamps
    refused: str = ""  # the first record that the topic would reject: which, why, and what to do


class TimestampRule(Protocol):
    """Which timestamps a target topic accepts, and how other timestamps are handled."""

    def check(self, topic: str, batches: Sequence[RecordBatch], *, clamp: bool) -> Checked:
        """May rarely request the topic's configs from the target. Raises BrokerUnavailable or TargetError."""
