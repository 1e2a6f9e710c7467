"""Kafka's client in memory, as far as idempotent and transactional producers use it, on logs of which every offset is
seen.

cluster = MemoryCluster()
cluster.producer(properties)           stands for `confluent_kafka.Producer`
cluster.log(P).visible                 what a consumer reads that skips what is not committed
cluster.late = 3                       a marker is in the log only when its end was asked for so often
cluster.unregistered = 1               the next transaction without a record ends before its partition is registered
cluster.dies_after = 5                 the process ends once so many more records are in a log
cluster.refuses = {b"x"}               a record of this value is too large, and what is queued behind it is dropped
cluster.leaderless = {P}               a request about the log's end says so
cluster.stuck = {P}                    nothing is acknowledged in it, as with too few replicas, until it expires
cluster.denied = {P}                   a transaction is not let into it, as without the right to write
cluster.frozen_ms = 6_000              a process stands still before each abort: the client sends what has lingered
cluster.write(P, b"x")                 another program writes; with `aborts`, in a transaction that is aborted

Of an aborted transaction a marker is written, after its answer: what is sent meanwhile may lie before it. A producer
that takes over an id ends what the one before has left open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from infra.contracts.cluster import LogEnds, TopicPartition
from infra.kafka.cluster.admin import LeaderNotFound

Callback = Callable[[object, "Acknowledged | None"], None]


class ProcessEnds(BaseException):
    """Here."""


@dataclass(slots=True)
class Entry:
    """One offset. A marker has no record."""

    value: bytes | None = None
    key: bytes | None = None
    is_record: bool = True
    is_open: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class MemoryLog:
    entries: list[Entry] = field(default_factory=list)
    low: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable(self) -> int:
        return next((offset for offset, one in enumerate(self.entries) if one.is_open), self.end)

    @property
    def visible(self) -> dict[int, Entry]:
        return {
            offset: one
            for offset, one in enumerate(self.entries)
            if offset >= self.low and one.is_record and not one.is_open and not one.is_aborted
        }


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """As a Message that was delivered."""

    at: int

    def offset(self) -> int:
        return self.at


@dataclass(slots=True)
class _Transaction:
    """Open, or with markers that are yet to come."""

    entries: list[Entry] = field(default_factory=list)
    partitions: set[TopicPartition] = field(default_factory=set)
    asked: int = 0  # so often the end of the log was asked for since the abort


class MemoryCluster:
    """Also the admin of it, as `TargetLogs` needs one."""

    def __init__(self) -> None:
        self.logs = defaultdict[TopicPartition, MemoryLog](MemoryLog)
        self.late, self.unregistered = 0, 0
        self.dies_after: int | None = None
        self.refuses: set[bytes] = set()
        self.leaderless: set[TopicPartition] = set()
        self.stuck: set[TopicPartition] = set()
        self.denied: set[TopicPartition] = set()
        self.frozen_ms = 0
        self.open: dict[str, _Transaction] = {}
        self.ending: dict[str, _Transaction] = {}  # aborted, by id: their markers are to come

    def log(self, partition: TopicPartition) -> MemoryLog:
        return self.logs[partition]

    def producer(self, properties: Mapping[str, object]) -> MemoryProducer:
        linger_ms, expires_ms = (int(str(properties.get(name, 0))) for name in ("linger.ms", "message.timeout.ms"))
        if 0 < expires_ms <= linger_ms:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        lingers = range(linger_ms, expires_ms)  # milliseconds after which a record is sent without a flush
        return MemoryProducer(self, str(properties.get("transactional.id", "")), lingers)

    def write(self, partition: TopicPartition, value: bytes, *, aborts: bool = False) -> None:
        self.log(partition).entries.append(Entry(value, is_aborted=aborts))
        if aborts:
            self.log(partition).entries.append(Entry(is_record=False))

    # --- as an admin

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        self._asked(partitions)
        logs = {partition: self.log(partition) for partition in partitions}
        return {place: LogEnds(low=one.low, stable=one.stable, high=one.end) for place, one in logs.items()}

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._asked(partitions)
        return {partition: self.log(partition).stable for partition in partitions}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        for partition, offset in before.items():
            self.log(partition).low = max(self.log(partition).low, offset)

    # --- as a coordinator

    def mark(self, name: str) -> None:
        """The markers of this id's transaction."""
        for transactions in (self.ending, self.open):
            ended = transactions.pop(name, None)
            if ended is not None:
                for one in ended.entries:
                    one.is_open, one.is_aborted = False, True
                for partition in ended.partitions:
                    self.log(partition).entries.append(Entry(is_record=False))

    def _asked(self, partitions: Collection[TopicPartition]) -> None:
        if not self.leaderless.isdisjoint(partitions):
            raise LeaderNotFound("list offsets: there is no leader")
        for name, one in list(self.ending.items()):
            one.asked += 1
            if one.asked > self.late:
                self.mark(name)


class MemoryProducer:
    """As a confluent_kafka.Producer. Without transactions a poll sends what is queued; with them, or where
    records are refused, a flush does."""

    def __init__(self, cluster: MemoryCluster, name: str, lingers: range) -> None:
        self._cluster, self._name, self._lingers = cluster, name, lingers
        self._queue: list[tuple[TopicPartition, Entry, Callback | None]] = []
        self._is_denied = False  # of the open transaction

    def __len__(self) -> int:
        return len(self._queue)

    def produce(  # noqa: PLR0917 -- as the client has it
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: object = None,
    ) -> None:
        is_open = bool(self._name)
        entry = Entry(value, key, is_open=is_open)
        self._queue.append((TopicPartition(topic, partition), entry, callback or on_delivery))
        if self._name and TopicPartition(topic, partition) in self._cluster.denied:
            self._is_denied = True
        elif self._name and not self._cluster.unregistered:  # by a thread of the client's
            self._transaction.partitions.add(TopicPartition(topic, partition))

    def poll(self, timeout: float) -> int:
        return 0 if self._name or self._cluster.refuses else self._send()

    def flush(self, timeout: float) -> int:
        self._send()
        return len(self._queue)

    def init_transactions(self, timeout: float) -> None:
        self._cluster.mark(self._name)

    def begin_transaction(self) -> None:
        if self._name in self._cluster.open:
            code = KafkaError.TOPIC_AUTHORIZATION_FAILED if self._is_denied else KafkaError._STATE
            raise KafkaException(KafkaError(code))
        self._is_denied = False
        self._cluster.mark(self._name)  # before the first record of the next one is accepted
        self._cluster.open[self._name] = _Transaction()

    def abort_transaction(self, timeout: float) -> None:
        if self._cluster.frozen_ms in self._lingers:
            self._send()
        ended = self._cluster.open.pop(self._name)
        if not ended.partitions and not self._is_denied:
            self._cluster.unregistered -= 1
        self._queue.clear()
        self._cluster.ending[self._name] = ended

    def purge(self, **_: bool) -> None:
        self._queue.clear()

    def close(self) -> None: ...

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={})

    @property
    def _transaction(self) -> _Transaction:
        return self._cluster.open[self._name]

    def _send(self) -> int:
        sent = 0
        while self._queue:
            if self._queue[0][0] in self._cluster.stuck:
                if not self._name:
                    self._refuse(self._queue.pop(0)[2], KafkaError._MSG_TIMED_OUT)
                return sent
            if self._cluster.dies_after is not None:
                if not self._cluster.dies_after:
                    raise ProcessEnds("while records are sent")
                self._cluster.dies_after -= 1
            partition, entry, callback = self._queue.pop(0)
            if self._is_denied:
                if callback is not None:
                    callback(KafkaError(KafkaError._PURGE_QUEUE), None)
                continue
            if entry.value in self._cluster.refuses:
                self._refuse(callback)
                return sent
            log = self._cluster.log(partition)
            if self._name:
                self._transaction.entries.append(entry)
                self._transaction.partitions.add(partition)
            log.entries.append(entry)
            if callback is not None:
                callback(None, Acknowledged(log.end - 1))
            sent += 1
        return sent

    def _refuse(self, callback: Callback | None, why: int = KafkaError.MSG_SIZE_TOO_LARGE) -> None:
        """As under `enable.gapless.guarantee`."""
        behind, self._queue = [one for *_, one in self._queue], []
        for reported, code in [
            (callback, why),
            *((b, KafkaError._PURGE_QUEUE) for b in behind),
        ]:
            if reported is not None:
                reported(KafkaError(code), None)
