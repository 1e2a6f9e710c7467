"""Checkpoints of the compacted topic: an in-memory table that each `read` updates.

    look up end offsets ─> read committed records until every position has reached its end ─> copy of the table

The ends are high watermarks, not last stable offsets: a committed checkpoint may lie after the start of another
writer's open transaction, and would be missed. Therefore a read waits for transactions that were open when it began
(seen on a broker).

Only `CHECKPOINT_PARTITION` is read, since all our records are written there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from confluent_kafka import Message

from formats.errors import BrokerUnavailable, CheckpointConflict, MalformedEvent
from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import (
    Checkpoint,
    CheckpointKey,
    Parked,
    Skipped,
    Waiting,
    decode,
    decode_key,
    follow,
)
from formats.messages.group_claim import GroupClaim
from infra.kafka.internal_topics.ensure import CHECKPOINT_PARTITION
from infra.kafka.internal_topics.topic_log import LogFacts, PositionLost, TopicLog
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import COUNT, ERROR, NEXT, OFFSET, PARTITION, REASON, TOPIC

POLL_TIMEOUT = timedelta(milliseconds=200)

log = logging.getLogger(__name__)


class KafkaCheckpointStore:
    """A CheckpointStore. Calls from several threads are serialised."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        read_within: timedelta = timedelta(seconds=60),
        answer_within: timedelta = timedelta(seconds=10),
    ) -> None:
        """`read_within` must exceed the writers' transaction timeout: only that ends a dead writer's transaction."""
        self._topic = topic
        self._read_within = read_within
        self._lock = threading.Lock()
        self._log = TopicLog(
            properties, topic, answer_within=answer_within, check_every=read_within, partition=CHECKPOINT_PARTITION
        )
        self._facts: LogFacts | None = None  # of the incarnation of the topic that the table was read from
        self._table: dict[CheckpointKey, Checkpoint | CheckpointConflict] = {}
        self._notes = CheckpointNotes()
        self._complete = CheckpointNotes()  # a copy from the end of the last complete read

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """See CheckpointStore. After BrokerUnavailable, the next call continues where this one stopped."""
        with self._lock:
            deadline = Deadline(self._read_within)
            while True:
                try:
                    # the ends come first: records acknowledged before this call lie before them
                    self._read_up_to(self._aligned(self._log.facts()), deadline)
                except PositionLost as error:
                    log.warning("checkpoints_read_again", extra={TOPIC: self._topic, REASON: str(error)})
                    self._facts = None  # a log that was truncated or replaced is read again from its start
                    if deadline.expired:
                        raise BrokerUnavailable(f"read {self._topic}: {error}") from error
                else:
                    self._complete = self._notes.copy()
                    return dict(self._table)

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        with self._lock:
            return dict(self._complete.parked)

    def skipped(self) -> Sequence[Skipped]:
        with self._lock:
            return self._complete.skipped

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        with self._lock:
            return dict(self._complete.waiting)

    def claims(self) -> Sequence[GroupClaim]:
        with self._lock:
            return self._complete.claims

    def owner(self, transactional_id: str) -> str | None:
        """As of the last `read`."""
        with self._lock:
            return self._complete.owners.get(transactional_id)

    def close(self) -> None:
        with self._lock:
            self._log.close()

    def _aligned(self, facts: LogFacts) -> Mapping[int, int]:
        """The end offsets to reach. Starts over when the table was read from another incarnation of the topic, or when
        the log has become shorter."""
        known = self._facts
        if (
            known is None
            or known.topic_id != facts.topic_id
            or known.starts != facts.starts  # records were deleted
            or any(facts.ends[p] < position for p, position in self._log.positions.items())
        ):
            self._table, self._notes = {}, CheckpointNotes()
            self._log.read_from(facts, facts.starts)
        self._facts = facts
        return facts.ends

    def _read_up_to(self, ends: Mapping[int, int], deadline: Deadline) -> None:
        while behind := {p: end for p, end in ends.items() if self._log.positions[p] < end}:
            if deadline.expired:
                partition, end = next(iter(behind.items()))
                self._log.reconnect()  # its consumer may have forgotten the brokers
                raise BrokerUnavailable(
                    f"{self._topic}/{partition}: read up to {self._log.positions[partition]} of {end} in "
                    f"{self._read_within}; the broker is down or slow, or a transaction is open"
                )
            self._apply(self._log.fetch(min(POLL_TIMEOUT, deadline.left)))

    def _apply(self, messages: Sequence[Message]) -> None:
        """Apply every record, in order: a position that moves back is detected only by comparison with the one before
        it."""
        malformed = []
        for message in messages:
            try:
                self._put(message)
            except MalformedEvent as error:
                malformed.append((message, error))
        if malformed:  # one log line per fetch: a topic that others write to may hold any number
            message, why = malformed[0]
            log.warning(
                "malformed_checkpoint",
                extra={
                    TOPIC: self._topic,
                    PARTITION: message.partition(),
                    OFFSET: message.offset(),
                    COUNT: len(malformed),
                    ERROR: str(why),
                    NEXT: "skipped; find out what else writes to this topic",
                },
            )

    def _put(self, message: Message) -> None:
        if self._notes.put(message.key() or b"", message.value()):
            return
        key, value = decode_key(message.key() or b""), message.value()
        if value is None:
            self._table.pop(key, None)
        else:
            self._table[key] = follow(key, self._table.get(key), decode(value))
