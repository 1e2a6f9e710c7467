"""Which positions another replicator gets, so that it continues where delivery here has stopped. Pure.

    checkpoints of a region ──chosen──> one delivery of each source partition ──> a record for the other's topic

Refused is what would lose or repeat records: a partition without one true position, and a position that the Go
replicator would not take, since it never goes back and cannot read segments of this program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.errors import CheckpointConflict, TargetError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.foreign_positions import (
    ForeignPartition,
    Record,
    ancestor_highest,
    ancestor_record,
    connect_keys,
    connect_positions,
    connect_record,
)
from formats.segment import SourcePartition
from ingress.undelivered import later_incarnations
from replicator.selection import SourceName

Checkpoints = Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
DEDICATED_CONNECTOR = "MirrorSourceConnector"  # its name without a Connect cluster of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One source partition. `before`, `next_offset`: positions of the other program, and of ours."""

    key: CheckpointKey
    before: int | None
    next_offset: int
    record: Record

    @property
    def source(self) -> SourcePartition:
        return self.key.source

    @property
    def is_written(self) -> bool:
        """Whether the other's position changes."""
        return self.before != self.next_offset and (self.before is not None or self.next_offset > 0)


def chosen(
    known: Checkpoints, region: str, name: SourceName | None, is_wanted: Callable[[CheckpointKey], bool]
) -> Mapping[CheckpointKey, Checkpoint]:
    """Positions of the current incarnation of each partition: of `name`, or of all topics of the region. `is_wanted`:
    of the deliveries of one source partition to several destinations. Raises TargetError."""
    found: dict[CheckpointKey, Checkpoint] = {}
    for key, position in sorted(known.items(), key=lambda item: item[0]):
        if key.source.region != region or not _matches(key.source, name) or not is_wanted(key):
            continue
        if isinstance(position, CheckpointConflict):
            raise position
        if not later_incarnations(key, position, known):
            found[key] = position
    _refuse_ambiguous(found)
    return found


def _matches(source: SourcePartition, name: SourceName | None) -> bool:
    """A name without an id is of whatever incarnation is delivered."""
    if name is None:
        return True
    if name.incarnation.id:
        return source in name
    return source.topic == name.topic and name.partition in (None, source.partition)


def _refuse_ambiguous(keys: Iterable[CheckpointKey]) -> None:
    destinations: dict[tuple[str, int], CheckpointKey] = {}
    for key in keys:
        other = destinations.setdefault((key.source.topic, key.source.partition), key)
        if other != key:
            raise TargetError(
                f"{key.source} has several positions: {other.source} to {other.destination_topic}, and {key.source} to "
                f"{key.destination_topic}. Name the destination with --destination, and the incarnation as TOPIC@ID"
            )


def connect_exports(
    positions: Mapping[CheckpointKey, Checkpoint],
    present: Sequence[Record],
    *,
    alias: str,
    connector: str | None,
) -> list[Export]:
    """`present`: all records of Kafka Connect's topic. `connector`: None: the one that has positions of the source
    there. Raises TargetError, and MalformedEvent when it is another topic."""
    keys = connect_keys(present)
    name = connector or _connector(alias, keys)
    own = {key for names in keys.values() for key in (names.get(name),) if key is not None}
    before = connect_positions((key, value) for key, value in present if key in own)
    exports = []
    for key, position in positions.items():
        where = ForeignPartition(alias, key.source.topic, key.source.partition)
        made, value = connect_record(where, position.next_offset, name)
        record = keys.get(where, {}).get(name, made), value
        exports.append(Export(key=key, before=before.get(where), next_offset=position.next_offset, record=record))
    return exports


def _connector(alias: str, keys: Mapping[ForeignPartition, Mapping[str, bytes]]) -> str:
    names = sorted({name for where, found in keys.items() if where.region == alias for name in found})
    if len(names) > 1:
        raise TargetError(
            f"several connectors have positions of {alias} there: {', '.join(names)}. Name the one that is to continue "
            "with --connector"
        )
    return names[0] if names else DEDICATED_CONNECTOR


def ancestor_exports(
    positions: Mapping[CheckpointKey, Checkpoint],
    present: Sequence[Record],
    archive_end: Callable[[SourcePartition], int],
    now: datetime,
) -> list[Export]:
    """`present`: all records of its checkpoint topic. `archive_end`: the next offset after the last one stored. Raises
    TargetError, and MalformedEvent when it is another topic."""
    highest = ancestor_highest(present)
    exports = []
    for key, position in positions.items():
        source, next_offset = key.source, position.next_offset
        where = ForeignPartition(source.region, source.topic, source.partition)
        before = highest.get(where)
        if before is not None and before > next_offset:
            raise TargetError(
                f"{source}: its checkpoint topic has position {before}, ours is {next_offset}: the Go replicator never "
                "goes back, and would leave out the records between. Name an empty topic, and give it to it"
            )
        if (end := archive_end(source)) > next_offset:
            raise TargetError(
                f"{source}: delivered up to {next_offset}, and archived up to {end}: the Go replicator cannot read "
                "segments of this program. End egress, let ingress deliver what is left, and stop it"
            )
        if next_offset:
            record = ancestor_record(where, next_offset, now)
            exports.append(Export(key=key, before=before, next_offset=next_offset, record=record))
    return exports


def due_records(exports: Iterable[Export]) -> list[Record]:
    """The records to write."""
    return [one.record for one in exports if one.is_written]
