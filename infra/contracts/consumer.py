"""The seams: what the flows need of formats, stores, Kafka, queues and time. Nothing here has an implementation.

The unit that flows is the Arrow RecordBatch with the columns of `formats.records.schema.SCHEMA`:
offset, timestamp, timestamp_type, key, value, headers; rows in strictly rising offset order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, BinaryIO, Protocol

from formats.errors import CheckpointConflict
from formats.footer import SegmentFooter, SegmentOrigin
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Parked, Skipped, Waiting
from formats.messages.group_claim import GroupClaim
from formats.messages.segment_events import QueueMessage, SegmentEvent
from formats.segment import Segment

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time, UTC and aware. Read once per loop turn, in the shell only."""


# --- formats ---------------------------------------------------------------------------------------------------------


class SegmentWriter(Protocol):
    """Writes one segment. Not thread safe; different writers may be used on different threads at once."""

    def write(self, batches: Sequence[RecordBatch]) -> None:
        """Append records, whose offsets follow those written before. One call makes one row group, or several if the
        records exceed the format's limit."""

    def close(self, segment: Segment, origin: SegmentOrigin) -> SegmentFooter:
        """Write the footer; the sink then holds the whole segment and stays open. Raises ValueError when the records
        written lie outside `segment.offsets`. A segment without a record is legal."""

    def abort(self) -> None:
        """Give up; the sink's content is worthless. May be called at any time, more than once."""


class SegmentReader(Protocol):
    """An open segment whose footer agreed with its key. Not thread safe."""

    @property
    def footer(self) -> SegmentFooter: ...

    def batches(self, from_offset: int = 0) -> Iterator[RecordBatch]:
        """Records from `from_offset` on, in offset order. Each batch was checked against the footer's digests before it
        is yielded: what comes out is what went in. Raises CorruptSegment; bounded memory (about one row group)."""

    def close(self) -> None:
        """Release what the reader holds; the source file is closed too."""


class SegmentFormat(Protocol):
    """Bytes of a segment. Chosen by name through the entry-point group `replicator.formats`; instances are immutable
    and thread safe, and are made with keyword arguments that all have defaults."""

    @property
    def name(self) -> str: ...

    def create(self, sink: BinaryIO) -> SegmentWriter:
        """`sink` is written from its current position, forward only."""

    def open(self, source: BinaryIO, segment: Segment) -> SegmentReader:
        """`source` is seekable; the reader owns it from here on, also when this raises. Raises CorruptSegment when the
        object is damaged, truncated, foreign, newer than this program, or when its footer is not `segment`'s."""


# --- object storage --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size_bytes: int
    modified_at: datetime  # UTC, by the store's clock
    etag: str = ""
    replication: str = ""  # S3's word for the state of its own copying, from `stat` only; empty: it does none
    storage_class: str = ""  # S3's word, from `list` only; empty: the usual one
    checksums: tuple[
        tuple[str, str], ...
    ] = ()  # of the whole content, by algorithm; from `stat`, where the store has it


class ObjectStore(Protocol):
    """Named bytes, written once. Safe to call from several threads. Raises StoreUnavailable when it may work later."""

    def list(self, prefix: str, *, start_after: str = "", most: int | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix` and is greater than `start_after`, in key order; the first `most` of
        them, for which the store need not send more."""

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        """Put the object whole, or not at all, in one atomic step. Reads `body` from its start (it is seekable).
        Raises SegmentExists, and changes nothing, when the key is taken."""

    def open(self, key: str) -> BinaryIO:
        """Seekable, one version of the object even if it is replaced meanwhile; the caller closes it.
        Raises SegmentNotFound."""

    def stat(self, key: str) -> ObjectInfo | None:
        """None when, and only when, the store says that the key holds nothing."""

    def delete_many(self, keys: Collection[str]) -> None:
        """Absent ones are no error; after an exception any part of them may be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadInfo:
    """An upload in parts that was begun: the parts are stored, and no listing of objects shows them."""

    key: str
    upload_id: str
    begun_at: datetime  # UTC, by the store's clock


class UploadStore(Protocol):
    """Uploads that were neither completed nor aborted. Raises StoreUnavailable when it may work later."""

    def list(self, prefix: str) -> Iterator[UploadInfo]:
        """Those of keys that begin with `prefix`, in any order."""

    def abort(self, upload: UploadInfo) -> None:
        """An absent one is no error. Whoever still works on it fails, and begins anew."""


class Thaw(Enum):
    FROZEN = "frozen"
    UNDER_WAY = "under way"
    READABLE = "readable"


class ColdStore(Protocol):
    """Objects that are stored where they cannot be read at once. Raises StoreUnavailable, SegmentNotFound."""

    def state(self, key: str) -> Thaw:
        """Of an object of a class in `segment.FROZEN_CLASSES`."""

    def thaw(self, key: str, days: int) -> None:
        """Ask for a copy that can be read, in some hours and for so many days. Asking again is harmless."""


# --- Kafka -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of the cluster at hand (source at egress, target at ingress)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class LogPoint:
    """What a log once was: in `leader_epoch` it reached `next_offset`. A log of which this is no longer true lost its
    tail, and gives those offsets to other records (KIP-320): it has forked."""

    next_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutively fetched records of one partition and one leader epoch. Never empty."""

    partition: TopicPartition
    batch: RecordBatch
    first_offset: int
    last_offset: int
    count: int
    size_bytes: int  # keys, values, header keys and header values
    last_leader_epoch: int | None  # None: the broker does not say, as for message formats older than v2

    @property
    def point(self) -> LogPoint | None:
        """What is known of the log behind the last record."""
        return None if self.last_leader_epoch is None else LogPoint(self.last_offset + 1, self.last_leader_epoch)


@dataclass(frozen=True, slots=True)
class Reached:
    """The consumer stands at `next_offset` and the broker has nothing more for it now (partition EOF)."""

    partition: TopicPartition
    next_offset: int
    leader_epoch: int | None = field(default=None, compare=False)  # of the log at `next_offset`, when known

    @property
    def point(self) -> LogPoint | None:
        return None if self.leader_epoch is None else LogPoint(self.next_offset, self.leader_epoch)


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """The broker refuses this partition: what was asked for is out of range, unauthorised, unknown …"""

    partition: TopicPartition
    code: str  # Kafka's error name, "OFFSET_OUT_OF_RANGE"
    reason: str


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The partition's log is not the one that was read any more: in it `point` is not true."""

    partition: TopicPartition
    point: LogPoint
    end_offset: int | None  # where the epoch of `point` ends now; None: the broker knows no such epoch
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerDisturbed:
    """`consume` raised, or a callback did: what was fetched may be lost. Seek every partition to what it wants."""

    reason: str


Fetched = Run | Reached | PartitionFailed | LogTruncated | ConsumerDisturbed


@dataclass(frozen=True, slots=True)
class Committed:
    next_offset: int
    metadata: str
    leader_epoch: int | None = None  # in which the log reached `next_offset`, when known


@dataclass(frozen=True, slots=True)
class Watermarks:
    low: int  # first offset still in the log
    high: int  # next offset to be written
    leader_epoch: int | None = field(default=None, compare=False)  # in which the log reached `high`, when known


class GroupListener(Protocol):
    """Told of partitions coming and going, inside `SourceConsumer.poll`, on its thread. What these raise is kept by the
    adapter and comes out as ConsumerDisturbed: an exception that crosses the client library would lose records."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """They are paused and have no position: call `start` for each when it is known."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """The last moment to commit them; they are gone when this returns."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Gone already: commit nothing."""


class SourceConsumer(Protocol):
    """A member of a consumer group that reads runs. One thread."""

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        """Replaces the topics subscribed to; names, not patterns."""

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        """Fetched runs and what else happened, in the order of each partition's log. Must be called regularly, also
        when all partitions are paused: it keeps the membership. After ConsumerDisturbed, and of a partition after its
        PartitionFailed or LogTruncated, nothing comes until `start`. Raises OwnershipLost when this member can never go
        on (another has its static id): the listener was told that everything is lost."""

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        """Seek there and fetch. Everything fetched before is forgotten: the next run of this partition starts at or
        after `next_offset`. Also takes the partition out of a pause. Raises OwnershipLost when it is not assigned.

        With `point`, which lies at or before `next_offset` with no record between the two, nothing is fetched of a log
        in which it is not true: LogTruncated comes instead. The same holds later of the last record that was read."""

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...

    def resume(self, partitions: Collection[TopicPartition]) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        """Commit group offsets. With `wait`, return once the broker has them and raise BrokerUnavailable or
        OwnershipLost otherwise, at the end of `wait` at the latest; without, the outcome is reported by
        `commit_answers`."""

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        """Partitions whose asynchronous commit was answered since the last call: why it was refused last, empty when it
        was taken."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Those of `partitions` that have a committed offset in this group. Raises BrokerUnavailable. May be called
        from another thread than `poll`'s."""

    def assignment(self) -> frozenset[TopicPartition]: ...

    @property
    def trouble(self) -> str:
        """Why the group takes no member of this principal, and what to do; empty when it does."""

    def close(self, timeout: timedelta) -> None:
        """Leave the group (the listener is told of the revocation) and release everything."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    topic_id: str  # empty when the broker has none
    partition_count: int


class ClusterAdmin(Protocol):
    """Questions and changes to one cluster. Safe to call from several threads. Raises BrokerUnavailable; an
    unauthorised call raises TargetError."""

    def cluster_id(self) -> str: ...

    def topics(self) -> Mapping[str, TopicFacts]:
        """Every topic the cluster shows us, internal ones too; without topic ids."""

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """With topic ids; topics that do not exist are left out."""

    def configs(self, topic: str) -> Mapping[str, str]:
        """Effective topic settings, defaults included. Raises TargetError when the topic does not exist."""

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        """True when created, False when it existed. Waits until the cluster shows it. Raises TargetError."""

    def check_creation(
        self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Creates nothing. Raises TargetError with what the cluster has against it: a setting, a permission."""

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these, leave the others."""

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """Partitions that do not exist are left out."""

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the oldest open transaction begins, else the high watermark: up to here `read_committed` reads.
        Partitions that do not exist are left out."""

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """First offset stamped at or after `at`, else the high watermark."""


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


class Fate(Enum):
    """What became of runs that are not known to be in the target, and what to do about it."""

    RETRY = "retry"  # not there; the same may work a little later
    AT_ONCE = "at once"  # not there, and nothing is wrong with them: they shared another's fate, or go differently
    REFUSED = "refused"  # a record of them is refused, and will be again; which one is not said
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
    fate: Fate


class TargetWriter(Protocol):
    """Produces runs and their checkpoints, with the delivery guarantee it was built for. One thread."""

    @property
    def author(self) -> Author:
        """What its checkpoints prove."""

    def lane(self, topic: str) -> int:
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
class Occupancy:
    """Of one target partition."""

    holds_records: bool | None  # committed ones; None: it is not known
    why: str = ""  # it is not known


class TargetRecords(Protocol):
    """Looks into target partitions. Safe to call from several threads."""

    def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        """Whether each holds a committed record between its log's ends as of now; what was aborted, deleted or cut by
        retention is none. In bounded time and memory. Partitions that do not exist are left out. Raises
        BrokerUnavailable or TargetError when nothing can be said of any."""


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


class ParkedNotes(Protocol):
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


class Placement(Protocol):
    """Group membership on the destination topics, everything paused: it says which partitions are ours. One thread."""

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None: ...

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]: ...

    def fence(self) -> object | None:
        """This member and its generation as of the last `poll`: what the target refuses once another generation rules.
        None while it is in none: then nothing may be written. Take it under the lock that the revocation takes, with
        the look at who owns what, and keep it for the whole transaction: a fresh one would let a member write what it
        lost. From any thread; never waits."""

    @property
    def trouble(self) -> str:
        """Why the group takes no member of this principal, and what to do; empty when it does."""

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Returns when no transaction of an earlier owner of these is pending any more. From any thread. Raises
        BrokerUnavailable: ask again; TargetError: the cluster refuses the question."""

    def close(self, timeout: timedelta) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What the cluster says of a consumer group; one that does not exist has no members."""

    state: str  # Kafka's word for it, such as "stable" or "empty"
    members: int
    partitions: frozenset[TopicPartition]  # assigned to any of them

    @property
    def is_known(self) -> bool:
        """Whether the cluster has it: not before its first member, nor once it was empty for long. Kafka calls that
        "dead", also while a process runs that has found no topic to join for yet."""
        return self.state != "dead"


class ConsumerGroups(Protocol):
    """Questions about groups, from outside. Safe to call from several threads. Raises BrokerUnavailable; an
    unauthorised call raises TargetError."""

    def facts(self, group_id: str) -> GroupFacts: ...

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Those of `partitions` that have a committed offset; pending transactions are not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    low: int  # first offset still in the log
    stable: int  # first offset of the oldest open transaction, or `high`
    high: int  # next offset to be written


class LogProbe(Protocol):
    """Questions about partitions' logs. Safe to call from several threads. Raises BrokerUnavailable, and TargetError
    when not authorised."""

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Partitions that do not exist are left out."""

    def stamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        """Stamp of the first record at or after each offset, committed or not; left out where none is read in time."""

    def truncated(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated]:
        """Partitions whose log lost what it had at that point. Left out: those of which it is true, and those of which
        nothing is known in time, or which may not be read."""

    def compared(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated | None]:
        """The same, with None for those of which the point is true."""


# --- queue -----------------------------------------------------------------------------------------------------------


class NotificationQueue(Protocol):
    """S3 event notifications. Safe to call from several threads. Raises QueueUnavailable."""

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        """Up to ten; empty after `wait` without one."""

    def delete(self, messages: Iterable[QueueMessage]) -> None:
        """They are done; deleting twice is harmless."""
