"""A group member that reads runs of records: SourceConsumer on the Kafka client.

A partition's reading, as seen from here:

    given ── idle ──start──> starting ──the client took the seek──> reading <──resume── paused
               ^                                                    │   └──────pause──────^
               └──────── the broker refuses it; a disturbance ──────┘

Rules
  1. Records and ends are passed on only while `reading`, and only at or after the next offset wanted: what the client
     held from before belongs to another position, and a legal hole would hide the mistake.
  2. A seek is never made inside `consume` (where the listener is called): its result may hold records of both
     positions. It is made once `consume` has returned, and made again by every `poll` until the client takes it.
  3. The position is ours, not the client's: `resume` seeks to it.
  4. After a disturbance nothing is read until `start`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from infra.kafka.errors import told, translate
from infra.kafka.group_offsets import GroupOffsets
from infra.kafka.membership import Membership
from infra.kafka.readings import Mode, Reading, Readings
from infra.kafka.records import Item, convert, items
from infra.kafka.settings import lookup_properties, source_properties
from replicator.errors import OwnershipLost
from replicator.logkeys import ERROR, OFFSET, PARTITION, TOPIC
from replicator.metrics import Metrics, NoMetrics
from replicator.protocols import Committed, Fetched, GroupListener, PartitionFailed, Reached, Run, TopicPartition

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
        metrics: Metrics | None = None,
    ) -> None:
        config = source_properties(
            properties, group_id=group_id, isolation_level=isolation_level, memory_bytes=memory_bytes, brokers=brokers
        )
        self._group_id = group_id
        self._member = Membership(config, metrics=metrics or NoMetrics(), on_commit=self._on_commit)
        self._client = self._member.client
        self._offsets = GroupOffsets(lookup_properties(config), timeout=request_timeout)
        self._readings: dict[TopicPartition, Reading] = {}
        self._commit_failures: dict[TopicPartition, str] = {}
        self._consuming = False
        self._count = AT_FIRST

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, Readings(listener, self._readings))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._readings)

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        self._go()
        fetched: list[Fetched] = []
        for partition, item in items(self._consume(timeout)):
            fetched += self._read(partition, item)
        self._adapt(fetched)
        if disturbances := self._member.disturbances():
            for reading in self._readings.values():
                reading.mode = Mode.IDLE
            fetched += disturbances
        self._go()
        return fetched

    def start(self, partition: TopicPartition, next_offset: int) -> None:
        reading = self._readings.get(partition)
        if reading is None:
            raise OwnershipLost(f"start {partition} at {next_offset}: the group has taken this partition away")
        reading.mode, reading.next_offset = Mode.STARTING, next_offset
        if not self._consuming:
            self._go()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition, reading in self._known(partitions):
            if reading.mode in (Mode.STARTING, Mode.READING):
                reading.mode = Mode.PAUSED
                self._quiet(partition)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for _, reading in self._known(partitions):
            if reading.mode is Mode.PAUSED:
                reading.mode = Mode.STARTING
        if not self._consuming:
            self._go()

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        """With `wait`, the answer is read back from the group. The client's own waiting commit takes no timeout: with a
        frozen broker it was still waiting after minutes (seen), inside a revocation too, where nothing else may run.
        So a refusal, unlike a success, is known only when `wait` is over; `commit_failures` tells why."""
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
                raise translate(error, f"commit offsets of group {self._group_id}") from error
            self._commit_failures.update(dict.fromkeys(offsets, told(error)))
            return
        if wait is not None:
            self._offsets.wait_for(offsets, wait)

    def commit_failures(self) -> Mapping[TopicPartition, str]:
        failures, self._commit_failures = self._commit_failures, {}
        return failures

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._offsets.committed(partitions)

    def close(self, timeout: timedelta) -> None:
        """Never waits longer than `timeout` for the brokers; a listener that takes its time is waited for."""
        self._consuming = True  # nothing is fetched any more
        self._member.close(timeout)
        self._offsets.close()

    # --- reading --------------------------------------------------------------------------------------------------

    def _consume(self, timeout: timedelta) -> list[Message]:
        """What is there now, else the first thing that comes: the client's `consume` would wait the whole timeout for
        a full batch."""
        self._consuming = True
        try:
            messages = self._member.consume(self._count, timedelta())
            if not messages and timeout > timedelta() and not self._member.disturbed:
                messages = self._member.consume(1, timeout)
                if messages:
                    messages += self._member.consume(self._count, timedelta())
            return messages
        finally:
            self._consuming = False

    def _read(self, partition: TopicPartition, item: Item) -> Sequence[Fetched]:
        reading = self._readings.get(partition)
        if isinstance(item, tuple):
            message, error = item
            if not partition.topic or partition.partition < 0:
                return self._told(partition.topic, error)
            if reading is None or reading.mode is not Mode.READING:
                return ()
            return self._ended(partition, reading, message.offset() or 0, error)
        if reading is None or reading.mode is not Mode.READING:
            return ()
        return self._records(partition, reading, item)

    def _records(
        self, partition: TopicPartition, reading: Reading, messages: Sequence[Message]
    ) -> Sequence[Run | PartitionFailed]:
        if (messages[0].offset() or 0) < reading.next_offset:  # the client did not go where it was told
            messages = [message for message in messages if (message.offset() or 0) >= reading.next_offset]
            if not messages:
                return ()
        outcome = convert(partition, messages)
        for item in outcome:
            if isinstance(item, Run):
                reading.next_offset = item.last_offset + 1
            else:
                self._stop(partition, reading)
        return outcome

    def _ended(
        self, partition: TopicPartition, reading: Reading, offset: int, error: KafkaError
    ) -> Sequence[Reached | PartitionFailed]:
        """The client ends a partition's reading for now, or until it is told another offset."""
        if error.code() == KafkaError._PARTITION_EOF:
            if offset < reading.next_offset:
                return ()
            reading.next_offset = offset
            return (Reached(partition, offset),)
        if error.code() == KafkaError._AUTO_OFFSET_RESET and offset < reading.next_offset:
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
        return (PartitionFailed(partition, error.name(), error.str()),)

    def _told(self, topic: str, error: KafkaError) -> Sequence[PartitionFailed]:
        """Errors of a whole topic end its partitions; those of the client are its own to mend."""
        self._member.count_error(error)
        ended = [(p, r) for p, r in self._readings.items() if topic and p.topic == topic and r.mode is not Mode.IDLE]
        for partition, reading in ended:
            self._stop(partition, reading)
        return [PartitionFailed(partition, error.name(), error.str()) for partition, _ in ended]

    def _bounds(self, partition: TopicPartition) -> str:
        try:
            low, high = self._client.get_watermark_offsets(
                ClientPartition(partition.topic, partition.partition), timeout=WATERMARK_TIMEOUT.total_seconds()
            )
        except KafkaException as error:
            return f"an unknown range ({told(error)})"
        return f"[{low},{high})"

    def _stop(self, partition: TopicPartition, reading: Reading) -> None:
        reading.mode = Mode.IDLE
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
                    self._seek(ClientPartition(partition.topic, partition.partition, reading.next_offset))
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
            # anew, which is the client's own affair; the group does not hear of it.
            with suppress(KafkaException):
                self._client.incremental_unassign([to])
            self._client.incremental_assign([to])

    def _adapt(self, fetched: Sequence[Fetched]) -> None:
        """Records asked for by the next `poll`, so that they hold about BATCH_BYTES. Grows slowly, shrinks at once."""
        runs = [item for item in fetched if isinstance(item, Run)]
        if runs:
            mean = sum(run.size_bytes for run in runs) / sum(run.count for run in runs)
            fits = int(BATCH_BYTES / (mean + 1))
            self._count = max(FEWEST, min(MOST, fits, self._count * 2))

    def _known(self, partitions: Collection[TopicPartition]) -> list[tuple[TopicPartition, Reading]]:
        return [(partition, self._readings[partition]) for partition in partitions if partition in self._readings]

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        for partition in partitions:
            problem = partition.error or error
            if problem is not None:
                self._commit_failures[TopicPartition(partition.topic, partition.partition)] = told(problem)
