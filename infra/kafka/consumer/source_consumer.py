"""A group member that reads runs of records: SourceConsumer on the Kafka client.

A partition's reading, as seen from here:

    given ── idle ──start──> starting ──the client took the seek──> reading ──pause──> draining ──> paused
               ^                ^                                      │                  │           │
               │                └─────────────────resume───────────────┼──────────────────┴───────────┘
               └───────── the broker refuses it; a disturbance ────────┘

Rules
  1. Records and ends are passed on only while `reading`, and only at or after the next offset wanted: what the client
     held from before belongs to another position, and a legal hole would hide the mistake.
  2. A seek is never made inside `consume` (where the listener is called): its result may hold records of both
     positions. It is made once `consume` has returned, and made again by every `poll` until the client takes it.
  3. The position is ours, not the client's: `resume` seeks to it.
  4. After a disturbance nothing is read until `start`.
  5. Every seek carries the last point that is known of the log, so that the client has the broker confirm it. Only a
     refusal of that very point says that the log was truncated: the client also checks where it stands itself, which
     may be ahead of what was passed on.
  6. A pause of the client drops what it has fetched, and a resume fetches it again. So what it holds is taken first,
     `draining`, and kept for the end of the pause; it is no more memory than the client used for it. Only then the
     client pauses. An error ends the draining and is dropped: the seek of `resume` meets it again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import OwnershipLost
from formats.log_point import LogPoint
from infra.contracts.cluster import Committed, LogTruncated, TopicPartition
from infra.contracts.consumer import Fetched, GroupListener, PartitionFailed, Reached, Run
from infra.kafka.client.epochs import Truncation, epoch_of, truncation
from infra.kafka.client.errors import PARTITION_EOF, remedy, told, translate
from infra.kafka.client.properties import lookup_properties, source_properties
from infra.kafka.cluster.group_offsets import GroupOffsets
from infra.kafka.consumer.decode import Item, convert, items
from infra.kafka.consumer.group_member import Membership
from infra.kafka.consumer.partition_state import Mode, PartitionState, PartitionStates
from infra.runtime.log_fields import END, ERROR, LEADER_EPOCH, OFFSET, PARTITION, TOPIC
from infra.runtime.metrics import Metrics, NoMetrics

BATCH_BYTES = 4 << 20  # of one `poll`: more costs memory and the processor's cache, less costs calls
MOST, FEWEST, AT_FIRST = 10_000, 16, 500  # records of one `poll`
WATERMARK_TIMEOUT = timedelta(seconds=2)
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"

log = logging.getLogger(__name__)


class KafkaSourceConsumer:
    """`brokers`: how many there are, or more; they share the budget for answers under way."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        group_id: str,
        isolation_level: str,
        memory_bytes: int,
        brokers: int = 3,
        request_timeout: timedelta = timedelta(seconds=30),
        linger: timedelta = timedelta(),
        metrics: Metrics | None = None,
    ) -> None:
        """`linger`: how long `poll` waits for more once something came, so that a trickle makes few runs."""
        config = source_properties(
            properties, group_id=group_id, isolation_level=isolation_level, memory_bytes=memory_bytes, brokers=brokers
        )
        self._group_id = group_id
        self._committed_only = isolation_level == "read_committed"
        self._member = Membership(config, group_id=group_id, metrics=metrics or NoMetrics(), on_commit=self._on_commit)
        self._client = self._member.client
        self._offsets = GroupOffsets(lookup_properties(config), timeout=request_timeout)
        self._readings: dict[TopicPartition, PartitionState] = {}
        self._commit_answers: dict[TopicPartition, str] = {}
        self._consuming = False
        self._count = AT_FIRST
        self._linger = linger
        self._held_bytes = int(config["queued.max.messages.kbytes"]) << 10  # by the client

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, PartitionStates(listener, self._readings))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._readings)

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        self._go()
        fetched: list[Fetched] = []
        for reading in self._readings.values():
            if reading.kept and reading.mode is Mode.READING:
                fetched += reading.take_kept()
        fetched += self._take(self._consume(timedelta() if fetched else timeout))[0]
        self._adapt(fetched)
        if any(reading.mode is Mode.DRAINING for reading in self._readings.values()):
            fetched += self._drain()
        if disturbances := self._member.disturbances():
            for reading in self._readings.values():
                reading.end()
            fetched += disturbances
        self._go()
        return fetched

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        reading = self._readings.get(partition)
        if reading is None:
            raise OwnershipLost(f"start {partition} at {next_offset}: the group has taken this partition away")
        if point is not None and point.next_offset > next_offset:
            raise ValueError(f"start {partition} at {next_offset}: {point} lies behind it")
        reading.begin(next_offset, point)
        if not self._consuming:
            self._go()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition, reading in self._known(partitions):
            if reading.mode is Mode.READING:
                reading.mode = Mode.DRAINING  # by the next `poll`
            elif reading.mode is Mode.STARTING:
                reading.mode = Mode.PAUSED  # what the client holds is of another position
                self._quiet(partition)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for _, reading in self._known(partitions):
            if reading.mode is Mode.DRAINING:
                reading.mode = Mode.READING  # the client was not paused
            elif reading.mode is Mode.PAUSED:
                reading.mode = Mode.STARTING
        if not self._consuming:
            self._go()

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        """With `wait`, the answer is read back from the group. The client's own waiting commit takes no timeout: with a
        frozen broker it was still waiting after minutes (seen), inside a revocation too, where nothing else may run.
        So a refusal, unlike a success, is known only when `wait` is over; `commit_answers` tells why."""
        if not offsets:
            return
        asked = [
            ClientPartition(p.topic, p.partition, c.next_offset, metadata=c.metadata, leader_epoch=c.leader_epoch)
            if c.leader_epoch is not None
            else ClientPartition(p.topic, p.partition, c.next_offset, metadata=c.metadata)
            for p, c in offsets.items()
        ]
        try:
            self._client.commit(offsets=asked, asynchronous=True)
        except KafkaException as error:
            if wait is not None:
                raise translate(error, f"commit offsets of group {self._group_id}", needs="READ") from error
            self._commit_answers.update(dict.fromkeys(offsets, told(error)))
            return
        if wait is not None:
            self._offsets.wait_for(offsets, wait)

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        answers, self._commit_answers = self._commit_answers, {}
        return answers

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._offsets.committed(partitions)

    @property
    def trouble(self) -> str:
        return self._member.trouble

    def close(self, timeout: timedelta) -> None:
        """Never waits longer than `timeout` for the brokers; a listener that takes its time is waited for."""
        self._consuming = True  # nothing is fetched any more
        self._member.close(timeout)
        self._offsets.close()

    # --- reading --------------------------------------------------------------------------------------------------

    def _consume(self, timeout: timedelta) -> list[Message]:
        """What is there now, else the first thing that comes: the client's `consume` would wait the whole timeout for
        a full batch. Then what comes within `linger`, if there is room in the batch."""
        self._consuming = True
        try:
            messages = self._member.consume(self._count, timedelta())
            if not messages and timeout > timedelta() and not self._member.disturbed:
                messages = self._member.consume(1, timeout)
            if messages and len(messages) < self._count and not self._member.disturbed:
                messages += self._member.consume(self._count - len(messages), self._linger)
            return messages
        finally:
            self._consuming = False

    def _drain(self) -> list[Fetched]:
        """Take what the client holds, and pause what drains, also if the client should have held less."""
        fetched: list[Fetched] = []
        left, is_empty = self._held_bytes, False
        while not is_empty and left > 0 and not self._member.disturbed:
            self._consuming = True
            try:
                messages = self._member.consume(MOST, timedelta())
            finally:
                self._consuming = False
            is_empty = len(messages) < MOST
            found, size_bytes = self._take(messages)
            fetched += found
            left -= size_bytes
        for partition, reading in self._readings.items():
            if reading.mode is Mode.DRAINING:
                self._pause(partition, reading)
        return fetched

    def _take(self, messages: Sequence[Message]) -> tuple[list[Fetched], int]:
        """What of them is passed on, and the bytes of all; that of partitions that drain is kept."""
        fetched: list[Fetched] = []
        size_bytes = 0
        for partition, item in items(messages):
            reading = self._readings.get(partition)
            draining = reading if reading is not None and reading.mode is Mode.DRAINING else None
            found = self._read(partition, reading, item)
            size_bytes += sum(one.size_bytes for one in found if isinstance(one, Run))
            if draining is None:
                fetched += found
                continue
            draining.kept += [one for one in found if isinstance(one, Run | Reached)]
            if any(isinstance(one, PartitionFailed | LogTruncated) for one in found):
                self._pause(partition, draining)
        return fetched, size_bytes

    def _read(self, partition: TopicPartition, reading: PartitionState | None, item: Item) -> Sequence[Fetched]:
        if isinstance(item, tuple) and (not partition.topic or partition.partition < 0):
            return self._told(partition.topic, item[1])
        if reading is None or reading.mode not in (Mode.READING, Mode.DRAINING):
            return ()
        if not isinstance(item, tuple):
            return self._records(partition, reading, item)
        message, error = item
        if reading.mode is Mode.DRAINING and error.code() != PARTITION_EOF:
            self._pause(partition, reading)
            return ()
        return self._ended(partition, reading, message.offset() or 0, error)

    def _pause(self, partition: TopicPartition, reading: PartitionState) -> None:
        reading.mode = Mode.PAUSED
        self._quiet(partition)

    def _records(
        self, partition: TopicPartition, reading: PartitionState, messages: Sequence[Message]
    ) -> Sequence[Run | PartitionFailed | LogTruncated]:
        if (messages[0].offset() or 0) < reading.next_offset:  # read again from the point on, or from a wrong place
            if (truncated := self._filled(partition, reading, messages)) is not None:
                return (truncated,)
            messages = [message for message in messages if (message.offset() or 0) >= reading.next_offset]
            if not messages:
                return ()
        outcome = convert(partition, messages)
        for item in outcome:
            if isinstance(item, Run):
                reading.next_offset, reading.point, reading.refused = item.last_offset + 1, item.point, False
            elif reading.mode is Mode.READING:
                self._stop(partition, reading)
        return outcome

    def _filled(
        self, partition: TopicPartition, reading: PartitionState, messages: Sequence[Message]
    ) -> LogTruncated | None:
        """Between the point and the next offset wanted there was no record, at the end of the log as it was. One that
        is there now is of another log: the end was cut off inside that hole, which the point alone does not show. Not
        so where aborted records are read: they may have been left out before."""
        point = reading.point
        if point is None or not self._committed_only:
            return None
        hole = range(point.next_offset, reading.next_offset)
        for message in messages:
            epoch = epoch_of(message.leader_epoch())
            if message.offset() in hole and epoch is not None and epoch > point.leader_epoch:
                if reading.mode is Mode.READING:
                    self._stop(partition, reading)
                reason = f"a record at offset {message.offset()}, leader epoch {epoch}, where the log had none"
                return LogTruncated(partition, point, point.next_offset, reason)
        return None

    def _ended(
        self, partition: TopicPartition, reading: PartitionState, offset: int, error: KafkaError
    ) -> Sequence[Reached | PartitionFailed | LogTruncated]:
        """The client ends a partition's reading for now, or until it is told another offset."""
        if error.code() == PARTITION_EOF:
            if offset < reading.next_offset:
                return ()
            reading.next_offset, reading.refused = offset, False
            if reading.point is None or reading.point.next_offset < offset:
                # behind a hole: the client knows the epoch of the marker that ends it
                reading.point = self._position(partition, offset) or reading.point
            exact = reading.point is not None and reading.point.next_offset == offset
            return (Reached(partition, offset, reading.point.leader_epoch if reading.point and exact else None),)
        if (found := truncation(error)) is not None:
            return self._truncated(partition, reading, found, error)
        if error.code() == KafkaError._AUTO_OFFSET_RESET and offset < reading.next_offset:
            if reading.point is not None and reading.point.next_offset == offset:
                reading.point = None  # retention took what lies behind it: nothing there can be asked any more
            reading.mode = Mode.STARTING  # about an offset nobody wants any more, but the fetcher stands still
            return ()
        self._stop(partition, reading)
        log.warning(
            "partition_refused",
            extra={TOPIC: partition.topic, PARTITION: partition.partition, OFFSET: offset, ERROR: told(error)},
        )
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            reason = f"{error.str()}: wanted offset {offset}, the log holds {self._bounds(partition)}"
            return (PartitionFailed(partition, OUT_OF_RANGE, reason),)
        return (PartitionFailed(partition, error.name(), _reason(error)),)

    def _truncated(
        self, partition: TopicPartition, reading: PartitionState, found: Truncation, error: KafkaError
    ) -> Sequence[LogTruncated]:
        point = reading.point
        ours = point is not None and found.point in (None, point)
        if point is None or not ours or not reading.refused:
            # The client's own position, or the answer to an earlier request: a truncation counts only when it is
            # reported twice for our point, since an operator has to resolve it.
            reading.mode, reading.refused = Mode.STARTING, ours
            return ()
        self._stop(partition, reading)
        log.warning(
            "log_truncated",
            extra={
                TOPIC: partition.topic,
                PARTITION: partition.partition,
                OFFSET: point.next_offset,
                LEADER_EPOCH: point.leader_epoch,
                END: found.end_offset,
                ERROR: told(error),
            },
        )
        return (LogTruncated(partition, point, found.end_offset, error.str()),)

    def _position(self, partition: TopicPartition, offset: int) -> LogPoint | None:
        """Where the client itself stands, if it is there."""
        try:
            (here,) = self._client.position([ClientPartition(partition.topic, partition.partition)])
        except KafkaException:
            return None
        epoch = epoch_of(here.leader_epoch)
        return LogPoint(offset, epoch) if here.offset == offset and epoch is not None else None

    def _told(self, topic: str, error: KafkaError) -> Sequence[PartitionFailed]:
        """Errors of a whole topic end its partitions; those of the client are its own to mend."""
        self._member.count_error(error)
        ended = [(p, r) for p, r in self._readings.items() if topic and p.topic == topic and r.mode is not Mode.IDLE]
        for partition, reading in ended:
            self._stop(partition, reading)
        return [PartitionFailed(partition, error.name(), _reason(error)) for partition, _ in ended]

    def _bounds(self, partition: TopicPartition) -> str:
        try:
            low, high = self._client.get_watermark_offsets(
                ClientPartition(partition.topic, partition.partition), timeout=WATERMARK_TIMEOUT.total_seconds()
            )
        except KafkaException as error:
            return f"an unknown range ({told(error)})"
        return f"[{low},{high})"

    def _stop(self, partition: TopicPartition, reading: PartitionState) -> None:
        reading.end()
        self._quiet(partition)

    def _quiet(self, partition: TopicPartition) -> None:
        """Fetch no more of it; best effort, since what comes all the same is not passed on."""
        with suppress(KafkaException):
            self._client.pause([ClientPartition(partition.topic, partition.partition)])

    def _go(self) -> None:
        """Make every seek that was asked for. One that fails is made again by the next `poll`."""
        for partition, reading in self._readings.items():
            if reading.mode is Mode.STARTING:
                try:
                    self._seek(_place(partition, reading.next_offset, reading.point))
                except KafkaException as error:
                    log.warning(
                        "seek_failed",
                        extra={TOPIC: partition.topic, PARTITION: partition.partition, ERROR: told(error)},
                    )
                else:
                    reading.mode = Mode.READING

    def _seek(self, to: ClientPartition) -> None:
        """When this returns, the client delivers nothing that it fetched before."""
        # Resumed first: a seek wakes the client's thread, a resume does not, and that would cost a second (seen). What
        # is fetched in between is dropped by the seek.
        self._client.resume([to])
        try:
            self._client.seek(to)
        except KafkaException:
            # After an error the partition's fetcher stands still and takes no seek: give the partition up and take it
            # anew, which is the client's own affair; the group does not hear of it. Then seek all the same: an
            # assignment fetches without having the point confirmed, when the leader is known already (seen).
            with suppress(KafkaException):
                self._client.incremental_unassign([to])
            self._client.incremental_assign([to])
            self._client.seek(to)

    def _adapt(self, fetched: Sequence[Fetched]) -> None:
        """Records asked for by the next `poll`, so that they hold about BATCH_BYTES. Grows slowly, shrinks at once."""
        runs = [item for item in fetched if isinstance(item, Run)]
        if runs:
            mean = sum(run.size_bytes for run in runs) / sum(run.count for run in runs)
            fits = int(BATCH_BYTES / (mean + 1))
            self._count = max(FEWEST, min(MOST, fits, self._count * 2))

    def _known(self, partitions: Collection[TopicPartition]) -> list[tuple[TopicPartition, PartitionState]]:
        return [(partition, self._readings[partition]) for partition in partitions if partition in self._readings]

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        for partition in partitions:
            problem = partition.error or error
            reason = told(problem) if problem is not None else ""
            self._commit_answers[TopicPartition(partition.topic, partition.partition)] = reason


def _place(partition: TopicPartition, next_offset: int, point: LogPoint | None) -> ClientPartition:
    """Where to fetch from, and what the broker has to confirm first."""
    if point is None:
        return ClientPartition(partition.topic, partition.partition, next_offset)
    return ClientPartition(partition.topic, partition.partition, point.next_offset, leader_epoch=point.leader_epoch)


def _reason(error: KafkaError) -> str:
    """With what mends it, if it is a right that is missing."""
    return "; ".join(filter(None, (error.str(), remedy(error, "READ"))))
