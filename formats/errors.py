"""Errors, by who has to act.

    ReplicatorError
    ├ ConfigError            the operator: all problems at once; the program does not start
    ├ TransientError         no one: retried where the call is made
    │ ├ StoreUnavailable     object store
    │ │ ├ StoreRefused       access denied, or no such bucket or host: the operator; a service keeps retrying
    │ │ │ └ KeyRefused       the key of an encrypted object is missing or wrong; a KeyUnavailable, too
    │ │ │ └ ObjectFrozen     its storage class cannot be read at once; raised at once, the others are read
    │ │ └ KeyUnavailable     the key of an encrypted object cannot be asked for
    │ ├ BrokerUnavailable    Kafka
    │ ├ QueueUnavailable     SQS
    │ ├ RegistryUnavailable  schema registry
    │ └ SparkUnavailable     Spark's driver, or its cluster
    │   └ SparkEnded         of spark-submit: this process cannot start another one
    ├ DataError(ValueError)  the owner of the data: never retried
    │ ├ MalformedKey         an object key that is not a segment's
    │ ├ MalformedEvent       a notification, log record or control object that cannot be decoded
    │ ├ CorruptSegment       an object that does not match its key or footer
    │ ├ SegmentNotFound      no object at the key (a 404, and only a 404)
    │ ├ SegmentExists        the key is taken
    │ ├ ForeignSegment       a segment of another topic than its archive path
    │ ├ SegmentsDiffer       two segments hold different records at the same offset
    │ ├ TransformFailed      a user's function raised or returned an invalid result
    │ ├ PluginFailed         a user's replication policy or filter raised or returned an invalid result
    │ └ CheckpointConflict   two checkpoints of one partition that cannot both be true
    ├ OwnershipLost          the partition moved to another process: stop without commit
    ├ TargetError            the target cluster is not what was asked for
    │ ├ OtherGroup           the checkpoint topic belongs to another consumer group, or to a group in another cluster
    │ └ WriterRefused        the target rejects every write of this process, whatever the records
    ├ RegistryRefused        the schema registry rejects a request: the operator
    ├ PlanFailed             a plan failed on Spark in every attempt
    ├ TasksNotStarted        Spark cannot begin a task on any executor: the operator
    └ ShutdownExpired        the deadline of a shutdown passed with work unfinished

An error never stands for absence: only a plain "not found" answer becomes `SegmentNotFound`.
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
    """Credentials, a permission, the bucket's or the host's name: only an operator can repair it, whether the program
    keeps retrying or not. The message says what to check."""


class ObjectFrozen(StoreRefused):
    """The object is of a storage class that cannot be read at once. It concerns that object alone."""


class KeyUnavailable(StoreUnavailable):
    """The key of an encrypted object cannot be used, now or until an operator acts. It concerns the objects of that key
    alone: those of one region, perhaps."""


class KeyRefused(StoreRefused, KeyUnavailable):
    """The key of an encrypted object is missing, wrong, or may not be used, or an object is in clear where that is
    refused. The message has the key's id, and what to do."""


class BrokerUnavailable(TransientError):
    pass


class QueueUnavailable(TransientError):
    pass


class RegistryUnavailable(TransientError):
    pass


class SparkUnavailable(TransientError):
    """Spark did not start, or went away in the middle of a run."""

    remedy = "see that its master can be reached, then run again"

    def __init__(self, master: str, what: str, *, wrote: str = "") -> None:
        self.master, self.what = master, what
        last = f"\nit wrote last:\n{wrote}" if wrote else ""
        super().__init__(f"Spark on {master}: {what}\n{self.remedy}{last}")


class SparkEnded(SparkUnavailable):
    """The Spark that spark-submit has started for this process went away. This process cannot start another."""

    remedy = (
        "this process was started by spark-submit, and ends with its Spark: submit the command again, or let YARN do "
        "so (spark.yarn.maxAppAttempts)"
    )


class DataError(ReplicatorError, ValueError):
    """Bad data: a retry gives the same result."""


class MalformedKey(DataError):
    pass


class MalformedEvent(DataError):
    pass


class CorruptSegment(DataError):
    """The object is damaged, truncated, foreign, of a newer version, or does not match its key."""

    def __init__(self, name: str, *, found: object, wanted: object) -> None:
        self.name, self.found, self.wanted = name, found, wanted
        super().__init__(f"corrupt segment {name}: found {found}, wanted {wanted}")

    @property
    def what(self) -> str:
        """The message without the segment's name, for callers that print it themselves."""
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
    """The part of OffsetRange that SegmentsDiffer needs; both ends inclusive."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class SegmentsDiffer(DataError):
    """Two stored or spooled segments differ at one offset. `forked`: the two cannot come from one log; the offsets that
    the stored one covers."""

    def __init__(self, first: str, second: str, *, offset: int, detail: str, forked: Forked | None = None) -> None:
        self.first, self.second, self.offset, self.forked = first, second, offset, forked
        super().__init__(f"{first} and {second} differ at offset {offset}: {detail}")


class ForeignSegment(DataError):
    pass


class TransformFailed(DataError):
    """A user's transform function raised, or returned an invalid result, for `count` records up to `last_offset`."""

    def __init__(self, what: str, *, count: int, last_offset: int) -> None:
        self.count, self.last_offset = count, last_offset
        super().__init__(what)


class PluginFailed(DataError):
    """A user's replication policy or filter raised, or returned an invalid result."""


class CheckpointConflict(DataError):
    pass


OF_ONE_OBJECT = (DataError, KeyUnavailable, ObjectFrozen)
"""What holds up one object, and all that are read beside it not: it is damaged or frozen, or its key cannot be
used."""


class OwnershipLost(ReplicatorError):
    pass


class TargetError(ReplicatorError):
    pass


class OtherGroup(TargetError):
    pass


class WriterRefused(TargetError):
    """The target rejects the writer itself: it lacks a permission or a setting that all of its work needs. A retry does
    not help; an operator has to act, and the message says how."""


class RegistryRefused(ReplicatorError):
    """A schema registry rejects a request, whatever the time. The message has the request and the answer."""


class PlanFailed(ReplicatorError):
    """The plan in row `index` of a run failed. `reason`: the error message of the last worker that tried it."""

    def __init__(self, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(f"plan {index} failed each time it was tried: {reason}\nfix the cause and run again")


class TasksNotStarted(ReplicatorError):
    """Python, our packages or their dependencies are not what the executors need. The message says which, and what to
    do."""

    def __init__(self, master: str, reason: str) -> None:
        self.master, self.reason = master, reason
        super().__init__(f"Spark on {master}: no task begins: {reason}")


class ShutdownExpired(ReplicatorError):
    pass
