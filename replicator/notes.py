"""What the checkpoint topic holds beside positions: partitions that are parked, offsets that were given up, and who
writes under a transactional id.

Pure: records in, tables out. The later record of a key holds, one without a value removes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replicator.checkpoint import (
    OWNER,
    PARKED,
    POSITION,
    SKIPPED,
    CheckpointKey,
    Parked,
    Skipped,
    decode_key,
    decode_owner,
    decode_parked,
    decode_skipped,
    kind_of,
)


@dataclass(slots=True)
class Notes:
    """Not thread safe."""

    parked: dict[CheckpointKey, Parked] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # by transactional id
    _skipped: dict[bytes, Skipped] = field(default_factory=dict)  # by the record's key

    @property
    def skipped(self) -> list[Skipped]:
        """In order of their partitions, then of their offsets."""
        return sorted(self._skipped.values(), key=lambda s: (s.key, s.offsets))

    def put(self, key: bytes, value: bytes | None) -> bool:
        """False when the record is a position, and none of ours. Raises MalformedEvent; then nothing changed. A kind
        of a newer version is left out: it is no position for certain."""
        kind = kind_of(key)
        if kind == PARKED:
            where = decode_key(key)
            if value is None:
                self.parked.pop(where, None)
            else:
                self.parked[where] = decode_parked(value)
        elif kind == SKIPPED:
            if value is None:
                self._skipped.pop(key, None)
            else:
                self._skipped[key] = decode_skipped(key, value)
        elif kind == OWNER and value is not None:
            transactional_id, token = decode_owner(key, value)
            self.owners[transactional_id] = token
        return kind != POSITION
