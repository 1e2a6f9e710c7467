"""Checkpoints of the compacted topic: an in-memory table that each `read` updates, up to the end of the topic.

Only `CHECKPOINT_PARTITION` is read, since all our records are written there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from confluent_kafka import Message

from formats.control.restore_cut import Cut, decode_cut
from formats.errors import CheckpointConflict, MalformedEvent
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
from formats.messages.departure import left_at
from formats.messages.group_claim import GroupClaim
from infra.kafka.internal_topics.table_log import TableLog, malformed_fields
from infra.runtime.log_fields import REASON, TOPIC

log = logging.getLogger(__name__)


class KafkaCheckpointStore:
    """A CheckpointStore. Reads by several threads are serialised; notes are known while one is under way."""

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
        self._lock = threading.Lock()
        self._log = TableLog(
            properties,
            topic,
            clear=self._clear,
            apply=self._apply,
            on_lost=self._on_lost,
            read_within=read_within,
            answer_within=answer_within,
        )
        self._table: dict[CheckpointKey, Checkpoint | CheckpointConflict] = {}
        self._notes = CheckpointNotes()
        # from the end of the last complete read: replaced then, and never changed, so that no thread has to wait for a
        # read that is under way, which may take as long as a transaction is open
        self._complete = CheckpointNotes()

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """See CheckpointStore. After BrokerUnavailable, the next call continues where this one stopped."""
        with self._lock:
            self._log.read()
            self._complete = self._notes.copy()
            return dict(self._table)

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        return self._complete.parked

    def skipped(self) -> Sequence[Skipped]:
        return self._complete.skipped

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        return self._complete.waiting

    def claims(self) -> Sequence[GroupClaim]:
        return self._complete.claims

    def owner(self, transactional_id: str) -> str | None:
        """As of the last `read`."""
        return self._complete.owners.get(transactional_id)

    def left_at(self, transactional_id: str) -> int | None:
        """Where the log ended when the last owner left it for certain, as of the last `read`; None: not known."""
        notes = self._complete
        return left_at(notes.owners.get(transactional_id), notes.departures.get(transactional_id))

    def cut(self) -> Cut | None:
        """Of a restore to a moment, as of the last `read`; None before it has begun. Raises MalformedEvent, also for
        that of a newer version."""
        cut = self._complete.cut
        return None if cut is None else decode_cut(cut)

    def close(self) -> None:
        with self._lock:
            self._log.close()

    def _clear(self) -> None:
        self._table, self._notes = {}, CheckpointNotes()

    def _on_lost(self, reason: str) -> None:
        log.warning("checkpoints_read_again", extra={TOPIC: self._topic, REASON: reason})

    def _apply(self, messages: Sequence[Message]) -> None:
        """Apply every record, in order: a position that moves back is detected only by comparison with the one before
        it."""
        malformed = []
        for message in messages:
            try:
                self._put(message)
            except MalformedEvent as error:
                malformed.append((message, error))
        if malformed:
            log.warning("malformed_checkpoint", extra=malformed_fields(self._topic, malformed))

    def _put(self, message: Message) -> None:
        if self._notes.put(message.key() or b"", message.value()):
            return
        key, value = decode_key(message.key() or b""), message.value()
        if value is None:
            self._table.pop(key, None)
        else:
            self._table[key] = follow(key, self._table.get(key), decode(value))
