"""Writing into target topics: runs, their checkpoints, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Skipped

if TYPE_CHECKING:
    from pyarrow import RecordBatch
from infra.contracts.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class TargetRun:
    """Records to produce, in order, to one target partition; at the end of it `checkpoint` holds, and so does what is
    said of offsets that were `skipped` on the way."""

    partition: TopicPartition
    batches: Sequence[RecordBatch]
    count: int
    size_bytes: int
    key: CheckpointKey
    checkpoint: Checkpoint
    skipped: Sequence[Skipped] = ()


class FailureKind(Enum):
    """What became of runs that are not known to be in the target, and what to do about it."""

    RETRY_LATER = "retry"  # not there; the same may work a little later
    RETRY_NOW = "at once"  # not there, and nothing is wrong with them: they shared another's fate, or go differently
    REJECTED = "refused"  # a record of them is refused, and will be again; which one is not said
    DENIED = "denied"  # not there; the target takes no record at all for this topic until somebody mends that
    APART = "apart"  # not there; one topic of the call is to blame, and which is not said: deliver each by itself
    STALLED = "stalled"  # the target takes nothing for this partition now; waiting for it holds up the others
    UNKNOWN = "unknown"  # there, whole and with their checkpoint, or not: read the position again


@dataclass(frozen=True, slots=True)
class RunFailed:
    """Of all runs to one partition in one call, whatever their sources."""

    partition: TopicPartition
    code: str
    reason: str
    fate: FailureKind


class TargetWriter(Protocol):
    """Produces runs and their checkpoints, with the delivery guarantee it was built for. One thread."""

    @property
    def author(self) -> Author:
        """What its checkpoints prove."""

    def batch_size_class(self, topic: str) -> int:
        """Only topics of one lane go into one call of `deliver`."""

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        """Produce runs as they come, wait until the target has them all, and record the last checkpoint of each
        source partition, as the guarantee demands. Answers the partitions that failed; all runs of every other one and
        their checkpoints are in the target. `fence` is what `Placement.fence` answered when the caller made sure that
        the partitions are its own; None when nobody else can have them. Raises BrokerUnavailable when nothing can be
        said of any run: read the positions again. Raises WriterRefused when the target takes nothing of this writer: no
        run has its checkpoint, and the positions are what they were."""

    def close(self, timeout: timedelta) -> None: ...


@dataclass(frozen=True, slots=True)
class Checked:
    """Records made fit for a target topic."""

    batches: Sequence[RecordBatch]
    altered: int  # stamps that were clamped
    refused: str = ""  # the first record that cannot pass as it is: which, why, and what to do


class TimestampRule(Protocol):
    """What a target topic can hold, and what is done about the rest."""

    def check(self, topic: str, batches: Sequence[RecordBatch], *, clamp: bool) -> Checked:
        """May ask the target for its settings, seldom. Raises BrokerUnavailable or TargetError."""
