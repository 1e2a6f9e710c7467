"""A group member that reads runs of records: SourceConsumer on the Kafka client.

States of a partition:

    assigned ── idle ──start──> starting ──the client accepts the seek──> reading ──pause──> draining ──> paused
                 ^                ^                                          │                  │           │
                 │                └───────────────────resume─────────────────┼──────────────────┴───────────┘
                 └───────── the broker rejects it; a disturbance ────────────┘

Rules
  1. Records and partition EOFs are passed on only while `reading`, and only at or after the next offset: messages that
     the client fetched earlier belong to another position, and a legal hole would hide the mistake.
  2. No seek happens inside `consume` (where the listener is called): its result may then contain records of both
     positions. The seek follows once `consume` has returned, and every `poll` repeats it until the client accepts it.
  3. The position is ours, not the client's: `resume` seeks to it.
  4. After a disturbance nothing is read until `start`.
  5. Every seek carries the last known point of the log, which the client lets the broker confirm. Only a rejection of
     exactly that point means that the log was truncated: the client also checks its own position, which may be ahead of
     the records passed on.
  6. When the client pauses, it drops its fetched messages, and fetches them again after a resume. Therefore they are
     taken first (`draining`) and kept until the pause ends, which takes no more memory than they took in the client.
     Only then the client pauses. An error ends the draining and is dropped: the seek of `resume` meets it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import OwnershipLost
from formats.log_point import LogPoint
from infra.contracts.cluster import Committed, LogTruncated, TopicPartition
from infra.contracts.consumer import Fetched, GroupListener, PartitionFailed, Reached, Run
from infra.kafka.client.epochs import Truncation, epoch_of, parse_truncation
from infra.kafka.client.errors import PARTITION_EOF, describe_error, remedy, translate
from infra.kafka.client.properties import lookup_properties, source_properties
from infra.kafka.cluster.group_offsets import GroupOffsets
from infra.kafka.consumer.decode import Event, Item, Records
from infra.kafka.consumer.fetching import Fetch, Fetching, fetching
from infra.kafka.consumer.group_member import Membership
from infra.kafka.consumer.partition_state import Mode, PartitionState, PartitionStates
from infra.runtime.log_fields import END, ERROR, LEADER_EPOCH, OFFSET, PARTITION, TOPIC
from infra.runtime.metrics import Metrics, NoMetrics

BATCH_BYTES = 4 << 20  # of one `poll`: more would cost memory and CPU cache, less would cost calls
MAX_RECORDS, MIN_RECORDS, INITIAL_RECORDS = 10_000, 16, 500  # records of one `poll`
WATERMARK_TIMEOUT = timedelta(seconds=2)
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
OUT_OF_RANGE_ASKED = 3  # a fetch that is out of range is repeated so often, with the leader epoch to be checked

log = logging.getLogger(__name__)


class KafkaSourceConsumer:
    """A SourceConsumer. `brokers`: their number, or an upper bound; they share the budget for fetch responses."""

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
        fetch_by: Callable[[Membership], Fetching] = fetching,
    ) -> None:
        """`linger`: how long `poll` waits for more after the first message, so that a slow stream makes few runs.
        `fetch_by`: how messages are fetched; by default as this process is fit for."""
        config = source_properties(
            properties, group_id=group_id, isolation_level=isolation_level, memory_bytes=memory_bytes, brokers=brokers
        )
        self._group_id = group_id
        self._committed_only = isolation_level == "read_committed"
        self._member = Membership(config, group_id=group_id, metrics=metrics or NoMetrics(), on_commit=self._on_commit)
        self._fetching = fetch_by(self._member)
        self._offsets = GroupOffsets(lookup_properties(config), timeout=request_timeout)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._commit_answers: dict[TopicPartition, str] = {}
        self._consuming = False
        self._count = INITIAL_RECORDS
        self._linger = linger
        self._queue_bytes = int(config["queued.max.messages.kbytes"]) << 10  # of the client

    @property
    def _client(self) -> Consumer:
        return self._member.client

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._member.subscribe(topics, PartitionStates(listener, self._states))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        self._seek_starting()
        fetched: list[Fetched] = []
        for state in self._states.values():
            if state.buffered and state.mode is Mode.READING:
                fetched += state.take_buffered()
        with self._fetch(self._count, timedelta() if fetched else timeout, self._linger) as fetch:
            fetched += self._take(fetch)[0]
        self._adapt(fetched)
        if any(state.mode is Mode.DRAINING for state in self._states.values()):
            fetched += self._drain()
        if disturbances := self._member.disturbances():
            for state in self._states.values():
                state.end()
            fetched += disturbances
        self._seek_starting()
        return fetched

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        state = self._states.get(partition)
        if state is None:
            raise OwnershipLost(f"start {partition} at {next_offset}: the group has revoked this partition")
        if point is not None and point.next_offset > next_offset:
            raise ValueError(f"start {partition} at {next_offset}: {point} lies after it")
        state.begin(next_offset, point)
        if not self._consuming:
            self._seek_starting()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition, state in self._known(partitions):
            if state.mode is Mode.READING:
                state.mode = Mode.DRAINING  # the next `poll` drains it
            elif state.mode is Mode.STARTING:
                state.mode = Mode.PAUSED  # the client's messages belong to another position
                self._stop_fetching(partition)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for _, state in self._known(partitions):
            if state.mode is Mode.DRAINING:
                state.mode = Mode.READING  # the client was not paused
            elif state.mode is Mode.PAUSED:
                state.mode = Mode.STARTING
        if not self._consuming:
            self._seek_starting()

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        """With `wait`, the result is read back from the group. The client's synchronous commit has no timeout: with a
        frozen broker it was still waiting after minutes (seen), also inside a revocation, where nothing else may run.
        Therefore a rejection, unlike a success, is known only when `wait` is over; `commit_answers` gives the
        reason."""
        if not offsets:
            return
        positions = [
            ClientPartition(p.topic, p.partition, c.next_offset, metadata=c.metadata, leader_epoch=c.leader_epoch)
            if c.leader_epoch is not None
            else ClientPartition(p.topic, p.partition, c.next_offset, metadata=c.metadata)
            for p, c in offsets.items()
        ]
        try:
            self._client.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            if wait is not None:
                raise translate(error, f"commit offsets of group {self._group_id}", needs="READ") from error
            self._commit_answers.update(dict.fromkeys(offsets, describe_error(error)))
            return
        if wait is not None:
            self._offsets.wait_for(offsets, wait)

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        answers, self._commit_answers = self._commit_answers, {}
        return answers

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._offsets.committed(partitions)

    @property
    def problem(self) -> str:
        return self._member.problem

    def close(self, timeout: timedelta) -> None:
        """Waits at most `timeout` for the brokers, but as long as it takes for the listener."""
        self._consuming = True  # no more seeks
        self._member.close(timeout)
        self._offsets.close()

    # --- reading --------------------------------------------------------------------------------------------------

    @contextmanager
    def _fetch(self, count: int, timeout: timedelta = timedelta(), linger: timedelta = timedelta()) -> Iterator[Fetch]:
        self._consuming = True
        try:
            with self._fetching.fetch(count, timeout, linger) as fetch:
                self._consuming = False
                yield fetch
        finally:
            self._consuming = False

    def _drain(self) -> list[Fetched]:
        """Take the client's fetched messages, at most as many bytes as its queue holds, and pause the draining
        partitions, also if the queue is not empty then."""
        fetched: list[Fetched] = []
        left, is_empty = self._queue_bytes, False
        while not is_empty and left > 0 and not self._member.disturbed:
            with self._fetch(MAX_RECORDS) as fetch:
                found, size_bytes = self._take(fetch)
            is_empty = fetch.count < MAX_RECORDS
            fetched += found
            left -= size_bytes
        for partition, state in self._states.items():
            if state.mode is Mode.DRAINING:
                self._pause(partition, state)
        return fetched

    def _take(self, fetch: Fetch) -> tuple[list[Fetched], int]:
        """The items to pass on, and the size of all in bytes. Items of draining partitions are buffered instead."""
        fetched: list[Fetched] = []
        size_bytes = 0
        for partition, item in fetch.items:
            state = self._states.get(partition)
            draining = state if state is not None and state.mode is Mode.DRAINING else None
            found = self._read(partition, state, item)
            size_bytes += sum(one.size_bytes for one in found if isinstance(one, Run))
            if draining is None:
                fetched += found
                continue
            draining.buffered += [one for one in found if isinstance(one, Run | Reached)]
            if any(isinstance(one, PartitionFailed | LogTruncated) for one in found):
                self._pause(partition, draining)
        return fetched, size_bytes

    def _read(self, partition: TopicPartition, state: PartitionState | None, item: Item) -> Sequence[Fetched]:
        if isinstance(item, Event) and (not partition.topic or partition.partition < 0):
            return self._topic_failed(partition.topic, item.error)
        if state is None or state.mode not in (Mode.READING, Mode.DRAINING):
            return ()
        if not isinstance(item, Event):
            return self._records(partition, state, item)
        if state.mode is Mode.DRAINING and item.error.code() != PARTITION_EOF:
            self._pause(partition, state)
            return ()
        return self._on_error(partition, state, item.offset, item.error)

    def _pause(self, partition: TopicPartition, state: PartitionState) -> None:
        state.mode = Mode.PAUSED
        self._stop_fetching(partition)

    def _records(
        self, partition: TopicPartition, state: PartitionState, records: Records
    ) -> Sequence[Run | PartitionFailed | LogTruncated]:
        if records.first_offset < state.next_offset:  # read again from the point, or from a wrong position
            if (truncated := self._in_former_hole(partition, state, records)) is not None:
                return (truncated,)
            left = records.from_offset(state.next_offset)
            if left is None:
                return ()
            records = left
        outcome = records.runs()
        for item in outcome:
            if isinstance(item, Run):
                state.next_offset, state.point = item.last_offset + 1, item.point
                state.is_point_rejected, state.out_of_range = False, 0
            elif state.mode is Mode.READING:
                self._stop(partition, state)
        return outcome

    def _in_former_hole(
        self, partition: TopicPartition, state: PartitionState, records: Records
    ) -> LogTruncated | None:
        """Detect a truncation inside a hole. There was no record between the point and the next offset when that was
        the end of the log. A record there now belongs to another log: the old one was truncated inside that hole, which
        the point alone does not show. Not applicable when aborted records are read: they may have been left out
        before."""
        point = state.point
        if point is None or not self._committed_only:
            return None
        newer = records.newer_in(range(point.next_offset, state.next_offset), point.leader_epoch)
        if newer is None:
            return None
        if state.mode is Mode.READING:
            self._stop(partition, state)
        reason = f"a record at offset {newer[0]}, leader epoch {newer[1]}, where the log had none"
        return LogTruncated(partition, point, point.next_offset, reason)

    def _on_error(
        self, partition: TopicPartition, state: PartitionState, offset: int, error: KafkaError
    ) -> Sequence[Reached | PartitionFailed | LogTruncated]:
        """Handle a partition EOF, or an error after which the client reads nothing until it gets another offset."""
        if error.code() == PARTITION_EOF:
            if offset < state.next_offset:
                return ()
            state.next_offset, state.is_point_rejected, state.out_of_range = offset, False, 0
            if state.point is None or state.point.next_offset < offset:
                # after a hole: the client knows the epoch of the marker that ends it
                state.point = self._position(partition, offset) or state.point
            exact = state.point is not None and state.point.next_offset == offset
            return (Reached(partition, offset, state.point.leader_epoch if state.point and exact else None),)
        if (found := parse_truncation(error)) is not None:
            return self._truncated(partition, state, found, error)
        if error.code() == KafkaError._AUTO_OFFSET_RESET and offset < state.next_offset:
            if state.point is not None and state.point.next_offset == offset:
                state.out_of_range += 1  # a log that lost its tail may answer so, too: see below
                if state.out_of_range > OUT_OF_RANGE_ASKED:
                    state.point = None  # retention deleted the log there: the broker can no longer confirm the point
            state.mode = Mode.STARTING  # the error is about an obsolete offset, but it has stopped the fetcher
            return ()
        is_out_of_range = error.code() == KafkaError._AUTO_OFFSET_RESET
        if is_out_of_range and state.point is not None and state.out_of_range < OUT_OF_RANGE_ASKED:
            # A log that lost its tail answers a fetch like this if the fetch comes before the client's own check of the
            # leader epoch (seen after a restart of the broker, once twice in a row). The seek to the point makes the
            # client check it.
            state.mode, state.is_point_rejected = Mode.STARTING, True
            state.out_of_range += 1
            return ()
        self._stop(partition, state)
        log.warning(
            "partition_refused",
            extra={
                TOPIC: partition.topic,
                PARTITION: partition.partition,
                OFFSET: offset,
                ERROR: describe_error(error),
            },
        )
        if is_out_of_range:
            reason = f"{error.str()}: wanted offset {offset}, the log holds {self._bounds(partition)}"
            return (PartitionFailed(partition, OUT_OF_RANGE, reason),)
        return (PartitionFailed(partition, error.name(), _reason(error)),)

    def _truncated(
        self, partition: TopicPartition, state: PartitionState, found: Truncation, error: KafkaError
    ) -> Sequence[LogTruncated]:
        point = state.point
        ours = point is not None and found.point in (None, point)
        if point is None or not ours or not state.is_point_rejected:
            # About the client's own position, or the answer to an earlier request. A truncation counts only when it is
            # reported twice for our point, since an operator has to resolve it.
            state.mode, state.is_point_rejected = Mode.STARTING, ours
            return ()
        self._stop(partition, state)
        log.warning(
            "log_truncated",
            extra={
                TOPIC: partition.topic,
                PARTITION: partition.partition,
                OFFSET: point.next_offset,
                LEADER_EPOCH: point.leader_epoch,
                END: found.end_offset,
                ERROR: describe_error(error),
            },
        )
        return (LogTruncated(partition, point, found.end_offset, error.str()),)

    def _position(self, partition: TopicPartition, offset: int) -> LogPoint | None:
        """The client's own position with its epoch, if the client is at `offset`."""
        try:
            (at,) = self._client.position([ClientPartition(partition.topic, partition.partition)])
        except KafkaException:
            return None
        epoch = epoch_of(at.leader_epoch)
        return LogPoint(offset, epoch) if at.offset == offset and epoch is not None else None

    def _topic_failed(self, topic: str, error: KafkaError) -> Sequence[PartitionFailed]:
        """Errors of a whole topic stop its partitions; the client recovers from its own errors by itself."""
        self._member.count_error(error)
        ended = [(p, r) for p, r in self._states.items() if topic and p.topic == topic and r.mode is not Mode.IDLE]
        for partition, state in ended:
            self._stop(partition, state)
        return [PartitionFailed(partition, error.name(), _reason(error)) for partition, _ in ended]

    def _bounds(self, partition: TopicPartition) -> str:
        try:
            low, high = self._client.get_watermark_offsets(
                ClientPartition(partition.topic, partition.partition), timeout=WATERMARK_TIMEOUT.total_seconds()
            )
        except KafkaException as error:
            return f"an unknown range ({describe_error(error)})"
        return f"[{low},{high})"

    def _stop(self, partition: TopicPartition, state: PartitionState) -> None:
        state.end()
        self._stop_fetching(partition)

    def _stop_fetching(self, partition: TopicPartition) -> None:
        """Stop fetching the partition. Best effort: messages that arrive nevertheless are not passed on."""
        with suppress(KafkaException):
            self._client.pause([ClientPartition(partition.topic, partition.partition)])

    def _seek_starting(self) -> None:
        """Seek every partition that is starting. The next `poll` repeats a seek that fails."""
        for partition, state in self._states.items():
            if state.mode is Mode.STARTING:
                try:
                    to = _fetch_position(partition, state.next_offset, state.point)
                    with self._fetching.seeking(partition):
                        self._seek(to)
                except KafkaException as error:
                    log.warning(
                        "seek_failed",
                        extra={TOPIC: partition.topic, PARTITION: partition.partition, ERROR: describe_error(error)},
                    )
                else:
                    state.mode = Mode.READING

    def _seek(self, to: ClientPartition) -> None:
        """Once this returns, the client delivers no message that it fetched before."""
        # Resume first: a seek wakes the client's thread, a resume does not, which would cost a second (seen). The seek
        # drops what is fetched in between.
        self._client.resume([to])
        try:
            self._client.seek(to)
        except KafkaException:
            # After an error the partition's fetcher is stopped and accepts no seek: unassign the partition and assign
            # it again. This is local to the client; the group is not involved. Seek nevertheless: after an assignment
            # the client fetches without having the point confirmed when it knows the leader already (seen).
            with suppress(KafkaException):
                self._client.incremental_unassign([to])
            self._client.incremental_assign([to])
            self._client.seek(to)

    def _adapt(self, fetched: Sequence[Fetched]) -> None:
        """Set the number of records of the next `poll`, for about BATCH_BYTES. Grows slowly, shrinks at once."""
        runs = [item for item in fetched if isinstance(item, Run)]
        if runs:
            mean = sum(run.size_bytes for run in runs) / sum(run.count for run in runs)
            fits = int(BATCH_BYTES / (mean + 1))
            self._count = max(MIN_RECORDS, min(MAX_RECORDS, fits, self._count * 2))

    def _known(self, partitions: Collection[TopicPartition]) -> list[tuple[TopicPartition, PartitionState]]:
        return [(partition, self._states[partition]) for partition in partitions if partition in self._states]

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        for partition in partitions:
            problem = partition.error or error
            reason = describe_error(problem) if problem is not None else ""
            self._commit_answers[TopicPartition(partition.topic, partition.partition)] = reason


def _fetch_position(partition: TopicPartition, next_offset: int, point: LogPoint | None) -> ClientPartition:
    """The position to fetch from, with the point that the broker has to confirm first."""
    if point is None:
        return ClientPartition(partition.topic, partition.partition, next_offset)
    return ClientPartition(partition.topic, partition.partition, point.next_offset, leader_epoch=point.leader_epoch)


def _reason(error: KafkaError) -> str:
    """The error's text, with the remedy if a permission is missing."""
    return "; ".join(filter(None, (error.str(), remedy(error, "READ"))))
