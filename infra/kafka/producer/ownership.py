"""Ownership of a transactional id that no group fences: the owner is the last process that recorded itself in the
checkpoint topic.

    take over: init ─> owner record ─> read positions          any later init: init ─> still the owner? ─> continue
                                                                                       └ no: OwnershipLost

`init_transactions` fences the previous user of the id, but only until that process calls it, too: a process that was
frozen or partitioned would take the id back and continue from outdated positions. Therefore each init is followed by a
check of the owner record. Either the init came before the successor's record, and then prevents it from being written,
or after it, and then the check finds the record.
"""

from __future__ import annotations

import uuid

from formats.errors import OwnershipLost
from formats.messages.delivery_checkpoint import encode_owner, encode_owner_key
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore


class Owner:
    """One process's claim to a transactional id."""

    def __init__(self, transactional_id: str, checkpoints: KafkaCheckpointStore) -> None:
        self._id = transactional_id
        self._checkpoints = checkpoints
        self._token = uuid.uuid4().hex

    @property
    def record(self) -> tuple[bytes, bytes]:
        """Key and value of the owner record, to be written by a transaction of that id."""
        return encode_owner_key(self._id), encode_owner(self._token)

    def confirm(self) -> None:
        """Raises OwnershipLost when another process has taken over since, BrokerUnavailable when that is unknown."""
        self._checkpoints.read()
        if self._checkpoints.owner(self._id) != self._token:
            raise OwnershipLost(
                f"transactional id {self._id}: another process has started the same work since, so this one ends"
            )
