"""Errors, by whose move it is.

    ReplicatorError
    ├ ConfigError            the operator's: all problems at once; refuse to start
    ├ TransientError         nobody's: try again, the edge does
    │ ├ StoreUnavailable     object store
    │ │ └ StoreRefused       it refuses, or is not there: the operator's; a service goes on asking
    │ ├ BrokerUnavailable    Kafka
    │ ├ QueueUnavailable     SQS
    │ └ SparkUnavailable     Spark's driver, or its cluster
    ├ DataError(ValueError)  theirs: never retry
    │ ├ MalformedKey         an object key that no segment formats to
    │ ├ MalformedEvent       a notification or a log record that says nothing we know
    │ ├ CorruptSegment       an object that is not what its key and footer say
    │ ├ SegmentNotFound      the key holds nothing (a 404, and only a 404)
    │ ├ SegmentExists        the key is taken
    │ ├ ForeignSegment       a segment of another topic than the place it is in
    │ ├ SegmentsDiffer       two segments claim the same offset with different records
    │ ├ TransformFailed      a user's function did not answer as it should
    │ └ CheckpointConflict   two checkpoints of one partition that cannot both be true
    ├ OwnershipLost          the partition moved away: stop without commit
    ├ TargetError            the target cluster is not what was asked for
    │ ├ OtherGroup           the checkpoint topic belongs to another consumer group, or to a group in another cluster
    │ └ WriterRefused        it takes nothing of this process, whatever the records
    ├ PlanFailed             a plan failed on Spark, each time it was tried
    └ ShutdownExpired        the deadline of a shutdown passed with work unfinished

An error is never an absence: only a plain "not found" answer becomes `SegmentNotFound`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ReplicatorError(Exception):
    """Base of everything this project raises on purpose."""


class ConfigError(ReplicatorError):
    """Every problem of a configuration, each with its path."""

    def __init__(self, problems: Sequence[str], *, source: str = "configuration") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{source}: {len(self.problems)} problem(s)\n{lines}")


class TransientError(ReplicatorError):
    """May work later; retried where the call is made, never in the logic."""


class StoreUnavailable(TransientError):
    pass


class StoreRefused(StoreUnavailable):
    """Credentials, a permission, the bucket's or the host's name: only an operator can repair it, while we wait or not.
    The message says what to check."""


class BrokerUnavailable(TransientError):
    pass


class QueueUnavailable(TransientError):
    pass


class SparkUnavailable(TransientError):
    """Spark did not start, or went away in the middle of a run."""

    def __init__(self, master: str, what: str, *, wrote: str = "") -> None:
        self.master, self.what = master, what
        last = f"\nit wrote last:\n{wrote}" if wrote else ""
        super().__init__(f"Spark on {master}: {what}\nsee that its master can be reached, then run again{last}")


class DataError(ReplicatorError, ValueError):
    """Bad data: trying again gives the same answer."""


class MalformedKey(DataError):
    pass


class MalformedEvent(DataError):
    pass


class CorruptSegment(DataError):
    """The object is damaged, truncated, foreign, of a newer version, or is not what its key says."""

    def __init__(self, name: str, *, found: object, wanted: object) -> None:
        self.name, self.found, self.wanted = name, found, wanted
        super().__init__(f"corrupt segment {name}: found {found}, wanted {wanted}")

    @property
    def what(self) -> str:
        """For somebody who knows which segment it is."""
        part = self.name.partition(" ")[2]
        return f"{part + ': ' if part else ''}found {self.found}, wanted {self.wanted}"


class SegmentNotFound(DataError):
    def __init__(self, segment: object) -> None:
        self.segment = segment
        super().__init__(f"segment not found: {segment}")


class SegmentExists(DataError):
    def __init__(self, segment: object) -> None:
        self.segment = segment
        super().__init__(f"segment exists: {segment}")


class Forked(Protocol):
    """Offsets, both inclusive: an OffsetRange."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class SegmentsDiffer(DataError):
    """Two stored or spooled segments disagree about one offset. `forked`: they cannot be of one log, and the stored one
    covers these offsets."""

    def __init__(self, first: str, second: str, *, offset: int, detail: str, forked: Forked | None = None) -> None:
        self.first, self.second, self.offset, self.forked = first, second, offset, forked
        super().__init__(f"{first} and {second} differ at offset {offset}: {detail}")


class ForeignSegment(DataError):
    pass


class TransformFailed(DataError):
    """A function of a user on the way of the records."""


class CheckpointConflict(DataError):
    pass


class OwnershipLost(ReplicatorError):
    pass


class TargetError(ReplicatorError):
    pass


class OtherGroup(TargetError):
    pass


class WriterRefused(TargetError):
    """The target refuses a writer as such: a right or a setting that all of its work needs. Time does not mend it, an
    operator does; the message says how."""


class PlanFailed(ReplicatorError):
    """The row `index` of a run. `said`: the error, in the words of the worker that tried it last."""

    def __init__(self, index: int, said: str) -> None:
        self.index, self.said = index, said
        super().__init__(f"plan {index} failed each time it was tried: {said}\nmend the cause and run again")


class ShutdownExpired(ReplicatorError):
    pass
