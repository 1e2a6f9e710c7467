"""Who writes under a transactional id that no group fences: the last one who wrote so into the checkpoint topic.

    take over: init ─> "mine" ─> read positions          init again, for whatever reason: init ─> still mine? ─> go on
                                                                                                  └ no: OwnershipLost

To initialise transactions ends whoever had the id before, but only until that one does the same: a process that was
frozen, or cut off, would take the id back and go on from positions of before. So each init is followed by the question
whose the id is. Either that init came before the successor's word, which it then keeps from being written, or behind
it, and then it finds the word.
"""

from __future__ import annotations

import uuid

from formats.errors import OwnershipLost
from formats.messages.delivery_checkpoint import encode_owner, encode_owner_key
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore


class Owner:
    """One process's claim to one transactional id."""

    def __init__(self, transactional_id: str, checkpoints: KafkaCheckpointStore) -> None:
        self._id = transactional_id
        self._checkpoints = checkpoints
        self._token = uuid.uuid4().hex

    @property
    def record(self) -> tuple[bytes, bytes]:
        """Key and value of the word, to be written by a transaction of that id."""
        return encode_owner_key(self._id), encode_owner(self._token)

    def confirm(self) -> None:
        """Raises OwnershipLost when somebody took over since, BrokerUnavailable when it cannot be said."""
        self._checkpoints.read()
        if self._checkpoints.owner(self._id) != self._token:
            raise OwnershipLost(
                f"transactional id {self._id}: another process has begun the same work since, so this one ends"
            )
