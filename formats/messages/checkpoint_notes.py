"""Records of the checkpoint topic other than positions: parked and waiting partitions, skipped offsets, the owner of a
transactional id and whether it has left, the group that the topic belongs to, and the cut of a restore.

Pure: records in, tables out. The last record of a key wins; one without a value removes the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.messages.delivery_checkpoint import (
    CUT,
    OWNER,
    PARKED,
    POSITION,
    SKIPPED,
    WAITING,
    CheckpointKey,
    Parked,
    Skipped,
    Waiting,
    decode_key,
    decode_owner,
    decode_parked,
    decode_skipped,
    decode_waiting,
    kind_of,
)
from formats.messages.departure import LEFT, Departure, decode_departure
from formats.messages.group_claim import GROUP, GroupClaim, decode_claim


@dataclass(slots=True)
class CheckpointNotes:
    """Not thread safe."""

    parked: dict[CheckpointKey, Parked] = field(default_factory=dict)
    waiting: dict[CheckpointKey, Waiting] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # by transactional id
    _claims: dict[bytes, GroupClaim] = field(default_factory=dict)  # by the record's key, in the order of the log
    _skipped: dict[bytes, Skipped] = field(default_factory=dict)  # by the record's key
    cut: bytes | None = None  # of a restore to a moment, encoded
    departures: dict[str, Departure] = field(default_factory=dict)  # by transactional id

    @property
    def skipped(self) -> list[Skipped]:
        """In order of partition, then of offset."""
        return sorted(self._skipped.values(), key=lambda s: (s.key, s.offsets))

    @property
    def claims(self) -> list[GroupClaim]:
        """In the order of the log."""
        return list(self._claims.values())

    def copy(self) -> CheckpointNotes:
        return CheckpointNotes(
            dict(self.parked),
            dict(self.waiting),
            dict(self.owners),
            dict(self._claims),
            dict(self._skipped),
            self.cut,
            dict(self.departures),
        )

    def put(self, key: bytes, value: bytes | None) -> bool:
        """Apply one record. False when it is a position, which is not kept here. Raises MalformedEvent; then nothing
        has changed. A kind of a newer version is ignored and returns True: it is certainly not a position."""
        kind = kind_of(key)
        if kind == PARKED:
            where = decode_key(key)
            if value is None:
                self.parked.pop(where, None)
            else:
                self.parked[where] = decode_parked(value)
        elif kind == WAITING:
            where = decode_key(key)
            if value is None:
                self.waiting.pop(where, None)
            else:
                self.waiting[where] = decode_waiting(value)
        elif kind == GROUP:
            if value is None:
                self._claims.pop(key, None)
            else:
                self._claims[key] = decode_claim(key, value)
        elif kind == SKIPPED:
            if value is None:
                self._skipped.pop(key, None)
            else:
                self._skipped[key] = decode_skipped(key, value)
        elif kind == OWNER and value is not None:
            transactional_id, token = decode_owner(key, value)
            self.owners[transactional_id] = token
        elif kind == LEFT and value is not None:
            transactional_id, departure = decode_departure(key, value)
            self.departures[transactional_id] = departure
        elif kind == CUT and value is not None:
            self.cut = value
        return kind != POSITION
