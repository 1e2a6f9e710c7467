"""Checkpoints as the compacted topic tells them: an in-memory table, brought up to date by each `read`.

    ends noted ─> read on, committed records only, until every position is at or past its noted end ─> copy of the table

The ends are those of the log, not the last stable offsets: a committed checkpoint may lie behind another writer's open
transaction, and would be missed. So a read waits for transactions that were open when it began (seen on a broker).

Only `CHECKPOINT_PARTITION` is read, as everything of ours is written there.
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

SLICE = timedelta(milliseconds=200)

log = logging.getLogger(__name__)


class KafkaCheckpointStore:
    """A CheckpointStore. Calls from several threads take turns."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        read_within: timedelta = timedelta(seconds=60),
        answer_within: timedelta = timedelta(seconds=10),
    ) -> None:
        """`read_within` must exceed the writers' transaction timeout: a dead one's transaction ends only by it."""
        self._topic = topic
        self._read_within = read_within
        self._lock = threading.Lock()
        self._log = TopicLog(
            properties, topic, answer_within=answer_within, check_every=read_within, partition=CHECKPOINT_PARTITION
        )
        self._facts: LogFacts | None = None  # of the life of the topic that the table is about
        self._table: dict[CheckpointKey, Checkpoint | CheckpointConflict] = {}
        self._notes = CheckpointNotes()
        self._whole = (
            CheckpointNotes()
        )  # the same at the end of the last reading that came to its end: no part of the topic

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """See CheckpointStore. After BrokerUnavailable, the next call goes on from where this one came to."""
        with self._lock:
            deadline = Deadline(self._read_within)
            while True:
                try:
                    # the ends come first: what was acknowledged before this call lies before them
                    self._read_up_to(self._aligned(self._log.facts()), deadline)
                except PositionLost as error:
                    log.warning("checkpoints_read_again", extra={TOPIC: self._topic, REASON: str(error)})
                    self._facts = None  # a log that was cut or replaced says everything anew
                    if deadline.expired:
                        raise BrokerUnavailable(f"read {self._topic}: {error}") from error
                else:
                    self._whole = self._notes.copy()
                    return dict(self._table)

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        with self._lock:
            return dict(self._whole.parked)

    def skipped(self) -> Sequence[Skipped]:
        with self._lock:
            return self._whole.skipped

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        with self._lock:
            return dict(self._whole.waiting)

    def claims(self) -> Sequence[GroupClaim]:
        with self._lock:
            return self._whole.claims

    def owner(self, transactional_id: str) -> str | None:
        """As of the last `read`."""
        with self._lock:
            return self._whole.owners.get(transactional_id)

    def close(self) -> None:
        with self._lock:
            self._log.close()

    def _aligned(self, facts: LogFacts) -> Mapping[int, int]:
        """The ends to reach; starts over when the table is about another life of the topic, or one that was longer."""
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
                raise BrokerUnavailable(
                    f"{self._topic}/{partition}: read up to {self._log.positions[partition]} of {end} in "
                    f"{self._read_within}; the broker is away or slow, or a transaction is open"
                )
            self._apply(self._log.fetch(min(SLICE, deadline.left)))

    def _apply(self, messages: Sequence[Message]) -> None:
        """Every record, in order: a position that goes back by itself shows only beside the one before it."""
        malformed = []
        for message in messages:
            try:
                self._put(message)
            except MalformedEvent as error:
                malformed.append((message, error))
        if malformed:  # one line for all that one fetch brought: somebody else's topic may hold any number
            message, why = malformed[0]
            log.warning(
                "malformed_checkpoint",
                extra={
                    TOPIC: self._topic,
                    PARTITION: message.partition(),
                    OFFSET: message.offset(),
                    COUNT: len(malformed),
                    ERROR: str(why),
                    NEXT: "skipped; find out who else writes to this topic",
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
