"""What owners of partitions that keep the source's offsets leave for the next one in the checkpoint topic: see
`formats.messages.departure`."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.delivery_checkpoint import encode_owner, encode_owner_key
from formats.messages.departure import Departure, encode_departure, encode_departure_key
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.runtime.log_fields import REASON

log = logging.getLogger(__name__)

DepartureRecord = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class DepartureLog:
    """Of one process. `checkpoints`: not shared, with a short time to read: not to know costs a wait, no record."""

    checkpoints: KafkaCheckpointStore
    _tokens: dict[str, str] = field(default_factory=dict)  # by transactional id

    def left_at(self, transactional_id: str) -> int | None:
        """Where the log ended when its last owner left it for certain; None: that is not known."""
        try:
            self.checkpoints.read()
        except (BrokerUnavailable, TargetError) as error:
            log.info("departure_not_known", extra={REASON: str(error)})
            return None
        return self.checkpoints.left_at(transactional_id)

    def taken(self, transactional_id: str) -> DepartureRecord:
        """To be acknowledged before the first record of an ownership that begins now."""
        self._tokens[transactional_id] = uuid.uuid4().hex
        return encode_owner_key(transactional_id), encode_owner(self._tokens[transactional_id])

    def left(self, transactional_id: str, end: int) -> DepartureRecord:
        """After the last acknowledgement of the ownership, at most once: another one has another token."""
        departure = Departure(self._tokens.pop(transactional_id), end)
        return encode_departure_key(transactional_id), encode_departure(departure)

    def close(self) -> None:
        self.checkpoints.close()
