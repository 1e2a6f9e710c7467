"""A Kafka cluster and a group member in memory, for tests of what is built on SourceConsumer.

Synchronous: nothing happens but by a call. One thread.

    broker = FakeBroker()
    broker.create("orders", partitions=2)
    broker.append(P, b"one", b"two")                  # values; or FakeRecord(...) for all fields
    broker.hole(P, 3)                                 # offsets without a record: markers, aborted, compacted away
    transaction = broker.begin(P, b"three")           # read_committed readers stop before it, until
    transaction.commit()  /  transaction.abort()      # either leaves a marker; abort turns its records to holes
    broker.trim(P, 2)                                 # retention: what is gone is out of range
    broker.truncate(P, 3)                             # an unclean leader: its log ends at 3, in another leader epoch
    broker.rewind(P, 3)                               # a restored snapshot: the same, and no epoch tells of it
    broker.elect(P)                                   # another leader, with all records
    broker.delete("t")  /  broker.recreate("t")       # gone / another log, of which consumers hear nothing
    broker.committed("group")                         # the group's offsets, whichever client committed them

    consumer = FakeSourceConsumer(broker, group_id="group")
    consumer.subscribe(["orders"], listener)
    consumer.assign(P) / consumer.revoke(P) / consumer.lose(P)      # the listener hears of it in the next `poll`
    consumer.per_poll = 3                             # records of one `poll`, over all partitions
    consumer.disturb("reason", drop=True)             # the next `poll` loses what it fetched, says ConsumerDisturbed
    consumer.fail(P, "TOPIC_AUTHORIZATION_FAILED")    # the next `poll` says PartitionFailed once
    consumer.fail_commits(P) / consumer.unavailable   # the next commit of P fails / committed() and commit(wait=) raise

As on a broker: partitions come paused and without a position; nothing of a partition is delivered before `start`,
after `pause`, after a PartitionFailed, a LogTruncated or a ConsumerDisturbed (until `start` again); `Reached` says once
for each `start`, `resume` or growth how far the partition goes; what the listener raises comes out as
ConsumerDisturbed. The point of a `start`, and after another leader was elected the last one that was read, are held
against the log's epochs before anything is delivered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from itertools import groupby

import pyarrow as pa

from formats.errors import BrokerUnavailable, OwnershipLost
from formats.log_point import LogPoint
from formats.records.schema import SCHEMA
from infra.contracts.cluster import Committed, LogTruncated, TopicPartition, Watermarks
from infra.contracts.consumer import ConsumerDisturbed, Fetched, GroupListener, PartitionFailed, Reached, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRecord:
    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    timestamp_ms: int = 1_700_000_000_000
    timestamp_type: int = 0

    @property
    def size_bytes(self) -> int:
        pairs = self.headers or ()
        names_and_values = sum(len(name.encode()) + len(value or b"") for name, value in pairs)
        return len(self.key or b"") + len(self.value or b"") + names_and_values


@dataclass(slots=True)
class FakeLog:
    """One partition. Offsets that are not in `records` are holes."""

    records: dict[int, FakeRecord] = field(default_factory=dict)
    low: int = 0
    high: int = 0
    open_from: list[int] = field(default_factory=list)  # first offsets of open transactions
    leader_epoch: int = 0
    epochs: dict[int, int] = field(default_factory=lambda: {0: 0})  # leader epoch -> its first offset; both rise

    def elect(self, leader_epoch: int | None = None) -> None:
        """A leader that has these records. One that wrote none leaves no trace when the next is elected."""
        self.leader_epoch = self.leader_epoch + 1 if leader_epoch is None else leader_epoch
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < self.high}
        self.epochs[self.leader_epoch] = self.high

    def epoch_at(self, offset: int) -> int:
        """In which the record at `offset` was written."""
        return max(epoch for epoch, start in self.epochs.items() if start <= offset)

    def epoch_end(self, leader_epoch: int) -> int | None:
        """As OffsetForLeaderEpoch answers: where the last epoch up to this one ends. None: no such epoch."""
        if leader_epoch > self.leader_epoch:
            return None
        return min((start for epoch, start in self.epochs.items() if epoch > leader_epoch), default=self.high)

    def cut(self, high: int) -> None:
        self.high = high
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < high} or {0: 0}
        self.records = {offset: record for offset, record in self.records.items() if offset < high}
        self.open_from = [start for start in self.open_from if start < high]

    @property
    def stable(self) -> int:
        """Last stable offset: what `read_committed` sees the end at."""
        return min(self.open_from, default=self.high)


class FakeBroker:
    def __init__(self) -> None:
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.group_offsets: dict[str, dict[TopicPartition, Committed]] = {}
        self.lives: Counter[str] = Counter()  # how often a topic was deleted

    def create(self, topic: str, *, partitions: int = 1) -> list[TopicPartition]:
        made = [TopicPartition(topic, number) for number in range(partitions)]
        for partition in made:
            self.logs.setdefault(partition, FakeLog())
        return made

    def delete(self, topic: str) -> None:
        """With the offsets committed of it, as brokers do; a commit that comes later is taken all the same."""
        self.lives[topic] += 1
        for partition in [p for p in self.logs if p.topic == topic]:
            del self.logs[partition]
            for offsets in self.group_offsets.values():
                offsets.pop(partition, None)

    def recreate(self, topic: str, *, partitions: int = 1) -> list[TopicPartition]:
        self.delete(topic)
        return self.create(topic, partitions=partitions)

    def append(self, partition: TopicPartition, *records: bytes | FakeRecord | None) -> range:
        """The offsets they got."""
        log = self.logs[partition]
        first = log.high
        for record in records:
            log.records[log.high] = record if isinstance(record, FakeRecord) else FakeRecord(value=record)
            log.high += 1
        return range(first, log.high)

    def hole(self, partition: TopicPartition, count: int = 1) -> None:
        self.logs[partition].high += count

    def compact(self, partition: TopicPartition, *offsets: int) -> None:
        """These records are gone, their offsets stay."""
        for offset in offsets:
            self.logs[partition].records.pop(offset, None)

    def begin(self, partition: TopicPartition, *records: bytes | FakeRecord | None) -> FakeTransaction:
        return FakeTransaction(self.logs[partition], self.append(partition, *records))

    def trim(self, partition: TopicPartition, low: int) -> None:
        """Retention: offsets before `low` are gone."""
        log = self.logs[partition]
        log.low = low
        log.records = {offset: record for offset, record in log.records.items() if offset >= low}

    def elect(self, partition: TopicPartition, leader_epoch: int | None = None) -> None:
        self.logs[partition].elect(leader_epoch)

    def truncate(self, partition: TopicPartition, high: int) -> None:
        """A leader without them was elected: offsets from `high` on are gone, and will be given to other records."""
        self.logs[partition].cut(high)
        self.logs[partition].elect()

    def rewind(self, partition: TopicPartition, high: int) -> None:
        """A snapshot of the whole cluster was restored: as `truncate`, but what epochs were given since is forgotten
        too, so that no epoch shows it. The group's offsets are restored with it, by the test."""
        log = self.logs[partition]
        log.cut(high)
        log.leader_epoch = max(log.epochs)

    def committed(self, group_id: str) -> dict[TopicPartition, Committed]:
        return self.group_offsets.setdefault(group_id, {})

    def watermarks(self, partition: TopicPartition) -> Watermarks:
        log = self.logs[partition]
        return Watermarks(log.low, log.high, log.leader_epoch)


@dataclass(slots=True)
class FakeTransaction:
    """In one partition. Its first offset bounds what `read_committed` readers see until it ends."""

    log: FakeLog
    offsets: range

    def __post_init__(self) -> None:
        self.log.open_from.append(self.offsets.start)

    def commit(self) -> None:
        self.log.open_from.remove(self.offsets.start)
        self.log.high += 1  # the marker

    def abort(self) -> None:
        for offset in self.offsets:
            self.log.records.pop(offset, None)
        self.commit()


class _Mode(Enum):
    IDLE = auto()
    READING = auto()
    PAUSED = auto()


@dataclass(slots=True)
class _Reading:
    mode: _Mode = _Mode.IDLE
    next_offset: int = 0
    point: LogPoint | None = None
    checked: int | None = None  # the leader epoch in which `point` was last confirmed
    reached: int | None = None  # where the last Reached was


class FakeSourceConsumer:
    """Passes ConsumerContract. Partitions come and go only as the test says, or all at once with `assign_all`."""

    def __init__(self, broker: FakeBroker, *, group_id: str = "group", isolation_level: str = "read_committed") -> None:
        self.broker = broker
        self.group_id = group_id
        self.isolation_level = isolation_level
        self.per_poll = 1000
        self.unavailable = False
        self.closed = False
        self.problem = ""
        self.timeouts: list[timedelta] = []  # of the calls of `poll`
        self.topics: frozenset[str] = frozenset()
        self._listener: GroupListener | None = None
        self._changes: deque[Callable[[], None]] = deque()
        self._readings: dict[TopicPartition, _Reading] = {}
        self._disturbances: list[tuple[str, bool]] = []
        self._failures: list[PartitionFailed] = []
        self._failing_commits: dict[TopicPartition, str] = {}
        self._commit_answers: dict[TopicPartition, str] = {}

    # --- what the test plans ------------------------------------------------------------------------------------------

    def assign(self, *partitions: TopicPartition) -> None:
        self._changes.append(lambda: self._assigned(partitions))

    def revoke(self, *partitions: TopicPartition) -> None:
        self._changes.append(lambda: self._revoked(partitions))

    def lose(self, *partitions: TopicPartition) -> None:
        self._changes.append(lambda: self._lost(partitions))

    def assign_all(self) -> None:
        """Every partition of the topics subscribed to that is not assigned yet."""
        self.assign(*(p for p in self.broker.logs if p.topic in self.topics and p not in self._readings))

    def disturb(self, reason: str = "planned", *, drop: bool = True) -> None:
        """With `drop`, the next `poll` loses what it fetched, as when the client's own call raised."""
        self._disturbances.append((reason, drop))

    def fail(self, partition: TopicPartition, code: str, reason: str = "planned", offset: int | None = None) -> None:
        self._failures.append(PartitionFailed(partition, code, reason, offset))

    def fail_commits(self, *partitions: TopicPartition, reason: str = "planned") -> None:
        self._failing_commits.update(dict.fromkeys(partitions, reason))

    # --- SourceConsumer -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self.topics = frozenset(topics)
        self._listener = listener
        if gone := [partition for partition in self._readings if partition.topic not in self.topics]:
            self.revoke(*gone)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._readings)

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        assert not self.closed
        self.timeouts.append(timeout)
        before = {p: reading.next_offset for p, reading in self._readings.items() if reading.mode is _Mode.READING}
        while self._changes:
            self._changes.popleft()()
        fetched: list[Fetched] = []
        room = self.per_poll
        for partition, reading in self._readings.items():
            if partition in before and reading.mode is _Mode.READING:
                fetched += self._fetch(partition, reading, room)
                room = self.per_poll - sum(item.count for item in fetched if isinstance(item, Run))
        for failure in self._failures:
            failed = self._readings.get(failure.partition)
            if failed is not None and failed.mode is _Mode.READING:
                failed.mode = _Mode.IDLE
                fetched.append(failure)
        self._failures.clear()
        disturbances, self._disturbances = self._disturbances, []
        if disturbances:
            if any(drop for _, drop in disturbances):
                fetched.clear()
            for reading in self._readings.values():
                reading.mode = _Mode.IDLE
            fetched += [ConsumerDisturbed(reason) for reason, _ in disturbances]
        return fetched

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        if partition not in self._readings:
            raise OwnershipLost(f"start {partition} at {next_offset}: the group has revoked this partition")
        assert point is None or point.next_offset <= next_offset
        self._readings[partition] = _Reading(_Mode.READING, next_offset, point)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for reading in self._known(partitions):
            if reading.mode is _Mode.READING:
                reading.mode = _Mode.PAUSED

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for reading in self._known(partitions):
            if reading.mode is _Mode.PAUSED:
                reading.mode, reading.reached, reading.checked = _Mode.READING, None, None

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        failed = {p: reason for p in offsets if (reason := self._failing_commits.pop(p, None)) is not None}
        failed |= {p: "not assigned" for p in offsets if p not in self._readings}
        if self.unavailable:
            failed |= dict.fromkeys(offsets, "unavailable")
        self.broker.committed(self.group_id).update({p: c for p, c in offsets.items() if p not in failed})
        if wait is None:
            self._commit_answers |= dict.fromkeys(offsets, "") | failed
        elif failed:
            lost = any(p not in self._readings for p in failed)
            raise (OwnershipLost if lost else BrokerUnavailable)(f"commit: {failed}")

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        answers, self._commit_answers = self._commit_answers, {}
        return answers

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        if self.unavailable:
            raise BrokerUnavailable("read the committed offsets: planned")
        known = self.broker.committed(self.group_id)
        return {p: known[p] for p in partitions if p in known}

    def close(self, timeout: timedelta) -> None:
        if not self.closed and self._readings:
            self._revoked(tuple(self._readings))
        self.closed = True

    # ------------------------------------------------------------------------------------------------------------------

    def _fetch(self, partition: TopicPartition, reading: _Reading, room: int) -> list[Fetched]:
        log = self.broker.logs.get(partition)
        if log is None:
            return []  # deleted: the client library says nothing for a while
        end = log.stable if self.isolation_level == "read_committed" else log.high
        if (truncated := self._checked(partition, reading, log)) is not None:
            reading.mode = _Mode.IDLE
            return [truncated]
        if not log.low <= reading.next_offset <= log.high:
            reading.mode = _Mode.IDLE
            reason = f"wanted offset {reading.next_offset}, the log holds [{log.low},{log.high})"
            return [PartitionFailed(partition, "OFFSET_OUT_OF_RANGE", reason)]
        fetched: list[Fetched] = []
        offsets = [offset for offset in range(reading.next_offset, end) if offset in log.records]
        taken = offsets[:room]
        for epoch, some in groupby(taken, log.epoch_at):
            run = run_of(partition, {offset: log.records[offset] for offset in some}, epoch)
            reading.next_offset, reading.point = run.last_offset + 1, run.point
            fetched.append(run)
        if len(taken) == len(offsets) and end >= reading.next_offset and reading.reached != end:
            reading.next_offset = reading.reached = end
            if end:
                reading.point = LogPoint(end, log.epoch_at(end - 1))
            fetched.append(Reached(partition, end, None if reading.point is None else reading.point.leader_epoch))
        return fetched

    def _checked(self, partition: TopicPartition, reading: _Reading, log: FakeLog) -> LogTruncated | None:
        """As KIP-320 has it, whenever the leader is another than before; and what should be a hole has no record."""
        if (point := reading.point) is None or reading.checked == log.leader_epoch:
            return None
        end = log.epoch_end(point.leader_epoch)
        if end is None or end < point.next_offset:
            return LogTruncated(partition, point, end, f"{point} is not true: that epoch ends at {end}")
        if any(o in log.records for o in range(point.next_offset, reading.next_offset)):
            return LogTruncated(partition, point, point.next_offset, f"a record behind {point} where the log had none")
        reading.checked = log.leader_epoch
        return None

    def _assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._readings.update({partition: _Reading() for partition in partitions})
        self._tell(lambda listener: listener.assigned(frozenset(partitions)))

    def _revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._tell(lambda listener: listener.revoked(frozenset(partitions)))
        self._forget(partitions)

    def _lost(self, partitions: Collection[TopicPartition]) -> None:
        self._forget(partitions)
        self._tell(lambda listener: listener.lost(frozenset(partitions)))

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._readings.pop(partition, None)

    def _tell(self, what: Callable[[GroupListener], None]) -> None:
        if self._listener is not None:
            try:
                what(self._listener)
            except Exception as error:
                self.disturb(f"{type(error).__name__}: {error}", drop=False)

    def _known(self, partitions: Collection[TopicPartition]) -> list[_Reading]:
        return [self._readings[partition] for partition in partitions if partition in self._readings]


def run_of(partition: TopicPartition, records: Mapping[int, FakeRecord], leader_epoch: int | None = 0) -> Run:
    """Records by offset, in offset order, as one run."""
    rows = [
        {
            "offset": offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": record.timestamp_type,
            "key": record.key,
            "value": record.value,
            "headers": None
            if not record.headers
            else [{"key": name, "value": value} for name, value in record.headers],
        }
        for offset, record in records.items()
    ]
    offsets = list(records)
    return Run(
        partition,
        pa.RecordBatch.from_pylist(rows, schema=SCHEMA),
        offsets[0],
        offsets[-1],
        len(offsets),
        sum(record.size_bytes for record in records.values()),
        leader_epoch,
    )
