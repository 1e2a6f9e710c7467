"""Group checkpoints and offset syncs in MirrorMaker 2's topics of this cluster: its records, byte for byte.

    topic read whole ──> what is in it ──> what is due ──> written
    a record is another than the one that was written last ──> somebody else writes there: nothing is written

The topic is read each time: it is small, and what another process of ours wrote before it left is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

from formats.errors import MalformedEvent, TargetError
from formats.messages.mirrormaker import (
    MirrorCheckpoint,
    OffsetSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
    encode_offset_sync,
)
from infra.contracts.internal_topics import MirrorRecordLog
from ingress.groups.emission import CheckpointId, checkpoint_id
from ingress.groups.flows import GroupFlow

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, kw_only=True)
class MirrorTable(Generic[K, R]):
    """One topic. Use from one thread."""

    topic: str
    log: MirrorRecordLog
    decode: Callable[[bytes, bytes], R]
    encode: Callable[[R], tuple[bytes, bytes]]
    key_of: Callable[[R], K]
    _written: dict[K, R] = field(default_factory=dict)  # by this process, since it began to write here

    def read(self) -> Mapping[K, R]:
        """The newest record of each key. Raises BrokerUnavailable, and TargetError when the topic may not be read, or
        when somebody else writes to it."""
        newest: dict[bytes, R] = {}
        for key, value in self.log.read(self.topic):
            if value is None:
                newest.pop(key or b"", None)
                continue
            with suppress(MalformedEvent):  # MirrorMaker 2's own readers leave it out, too
                newest[key or b""] = self.decode(key or b"", value)
        table = {self.key_of(record): record for record in newest.values()}
        others = [key for key, record in self._written.items() if table.get(key) != record]
        if others:
            self._written.clear()  # reported once: the next read takes what is there
            raise TargetError(
                f"somebody else writes to {self.topic}: {table.get(others[0])} is not the record that was written "
                "here. Is MirrorMaker 2 still running for this source, or another ingress with the same alias? End it, "
                "or set groups.emit_checkpoints = false"
            )
        return table

    def write(self, records: Iterable[R]) -> int:
        """How many. Raises BrokerUnavailable, and TargetError when the topic may not be written."""
        due: Sequence[R] = list(records)
        if due:
            for record in due:
                self._written.pop(self.key_of(record), None)  # it may be in the topic, even after an error
            self.log.write(self.topic, [self.encode(record) for record in due])
            self._written |= {self.key_of(record): record for record in due}
        return len(due)


@dataclass(frozen=True, slots=True)
class MirrorTables:
    """The two topics of one source region."""

    checkpoints: MirrorTable[CheckpointId, MirrorCheckpoint]
    offset_syncs: MirrorTable[tuple[str, int], OffsetSync]

    @classmethod
    def of(cls, flow: GroupFlow, log: MirrorRecordLog) -> MirrorTables:
        return cls(
            MirrorTable(
                topic=flow.checkpoints,
                log=log,
                decode=decode_checkpoint,
                encode=encode_checkpoint,
                key_of=checkpoint_id,
            ),
            MirrorTable(
                topic=flow.offset_syncs,
                log=log,
                decode=decode_offset_sync,
                encode=encode_offset_sync,
                key_of=attrgetter("topic", "partition"),
            ),
        )
