"""Checkpoints: how far a source partition has been delivered to a destination, and their records in Kafka.

The checkpoint record is the position. Topic: compacted; key: source partition and destination; value: next offset.
Both are JSON objects with sorted keys and no whitespace, so that one key always has the same bytes. Other records in
the topic have keys with a `kind`:

  - `Parked`: a partition waits for an operator, with the reason; removed when the partition continues;
  - `Waiting`: a partition waits for offsets, with the time it began; removed when the partition is past them;
  - `Skipped`: offsets that an operator gave up, kept for ever: a recorded gap at the target;
  - the cut of a restore to a moment (`formats.control.restore_cut`), in its own checkpoint topic.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from formats.codec import VERSION, Codec, dump, load, malformed
from formats.errors import CheckpointConflict
from formats.segment import OffsetRange, SourcePartition

# kinds of records, as written in their keys
POSITION, PARKED, WAITING, SKIPPED, OWNER, CUT = "", "parked", "waiting", "skipped", "owner", "cut"


@dataclass(frozen=True, slots=True, order=True)
class CheckpointKey:
    source: SourcePartition
    destination_topic: str


class Author(StrEnum):
    """Who wrote a checkpoint, which determines what it proves."""

    EXACTLY_ONCE = "exactly-once"  # in one transaction with the records before it
    AT_LEAST_ONCE = "at-least-once"  # after the records before it were acknowledged
    SEED = "seed"  # an operator


@dataclass(frozen=True, slots=True)
class Checkpoint:
    next_offset: int  # source offset of the next record to deliver
    destination_topic_id: str  # if the topic there has another id, it was recreated
    at: datetime  # UTC
    author: Author = Author.AT_LEAST_ONCE
    given_at: int | None = None  # for a seed that skips a record: its offset; ignored once the position is beyond it
    begun_at: int | None = None  # where this delivery began; None: unknown, or the position is an operator's seed
    dropped: int = 0  # records that the source's transform left out since then, or since an operator's seed
    keeps_offsets: bool = False  # the records before it have the source's offsets at the destination

    @property
    def follows_mapped_records(self) -> bool:
        """Of an operator's: whether a delivery that had begun before has left records at offsets that the target
        gave."""
        return self.begun_at is not None and self.given_at != self.begun_at and not self.keeps_offsets


@dataclass(frozen=True, slots=True)
class Filled:
    """How far a destination was filled, as its writer's checkpoint says."""

    next_offset: int = 0  # at the source, at least; 0: nothing, or an operator set the position
    is_mapped: bool = False  # at offsets that the target gave

    @classmethod
    def by(cls, checkpoint: Checkpoint | None) -> Filled:
        if checkpoint is None:
            return cls()
        if checkpoint.author is Author.SEED:
            return cls(checkpoint.next_offset, is_mapped=True) if checkpoint.follows_mapped_records else cls()
        if checkpoint.keeps_offsets:
            return cls(checkpoint.next_offset)
        if checkpoint.next_offset in (0, checkpoint.begun_at):  # it says only where delivery begins
            return cls()
        return cls(checkpoint.next_offset, is_mapped=True)


NOT_FILLED = Filled()

SEED = "replicator checkpoints seed"  # contained in the reason of every problem that a seed solves


def seed_at_the_end_of(source: SourcePartition) -> str:
    """The command for a destination whose position is lost, and how to find the offset."""
    return (
        f"`{SEED} {source} --offset N`, where N is the archive's offset at which the destination ends, as "
        f"`replicator verify {source.topic} --target FILE` says"
    )


@dataclass(frozen=True, slots=True)
class Parked:
    """A partition that waits for an operator, or until its cause disappears."""

    next_offset: int | None  # of the record that cannot be delivered; None: the partition has no position yet
    reason: str
    since: datetime  # UTC
    blames_target: bool = False  # no record is at fault: the next one would fail, too

    @property
    def needs_seed(self) -> bool:
        """Whether only a seed lets the partition continue. A partition that the configuration rejects has no position
        either, but waits for another configuration; so the reason decides: it names the remedy."""
        return self.next_offset is None and SEED in self.reason


@dataclass(frozen=True, slots=True)
class Waiting:
    """A listing showed that no segment holds certain offsets, though segments hold later ones. The wait is measured
    from `since`, even when the partition moves to another process."""

    offset: int  # the first missing one; with `is_beginning`, the first stored one
    since: datetime  # UTC, by the clock of the process that noticed it
    is_beginning: bool = False  # the archive's begin is unknown, so more records may come before `offset`


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Offsets that an operator gave up: they may be in the archive, but will never be in the destination.

    With a `level`, a corrupt segment of these offsets, whose records a restore found in others: nothing is given up.
    """

    key: CheckpointKey
    offsets: OffsetRange
    reason: str
    at: datetime  # UTC
    level: int | None = None
    stored_at: datetime | None = None  # of the corrupt object, by the object store's clock


def still_parked(parked: Parked, checkpoint: Checkpoint | None) -> bool:
    """Whether a parked record still applies. One that a leaving owner left behind does not: a later checkpoint is
    beyond it."""
    if checkpoint is None:
        return True
    if parked.next_offset is None:
        return checkpoint.at <= parked.since
    return checkpoint.next_offset <= parked.next_offset


def still_waiting(waiting: Waiting, checkpoint: Checkpoint | None) -> bool:
    """Whether a waiting record still applies. It may outlive the wait for a moment, or after a crash."""
    if checkpoint is None:
        return True
    return not waiting.is_beginning and waiting.offset == checkpoint.next_offset


def follow(
    key: CheckpointKey, known: Checkpoint | CheckpointConflict | None, later: Checkpoint
) -> Checkpoint | CheckpointConflict:
    """Which of two checkpoints holds; `later` was written after `known`. A conflict when they cannot both be true.

    An operator's seed replaces any position, and only a seed ends a conflict. A checkpoint for another destination
    topic id replaces the position, too. A seed that skips the record where the partition was parked (`given_at`) is
    ignored by a partition that is past that record, and during a conflict. A position never goes back on its own: a
    lower one comes from a worker that was frozen while the partition moved to another process, and what it delivered
    lies below the higher one. A delivery that began beyond the position does not advance it either: no process
    delivered the offsets between. Only a transaction cannot be late in this way, since it is fenced.
    """
    if known is None or (later.author is Author.SEED and later.given_at is None):
        return later
    if isinstance(known, CheckpointConflict):
        return known
    if later.given_at is not None:
        same = later.destination_topic_id == known.destination_topic_id
        return known if same and known.next_offset > later.given_at else later
    if later.destination_topic_id != known.destination_topic_id:
        return later
    joins = later.begun_at is None or known.begun_at is None or later.begun_at <= known.next_offset
    if later.next_offset >= known.next_offset and joins:
        return later
    if later.author is Author.EXACTLY_ONCE and known.author is not Author.AT_LEAST_ONCE:
        return CheckpointConflict(
            f"{key.source} to {key.destination_topic}: a checkpoint says {known.next_offset} ({known.author}, "
            f"{known.at.isoformat()}), and a later one {later.next_offset} ({later.author}, {later.at.isoformat()}); "
            "both cannot be true. Find out which is, and say so with `replicator checkpoints seed`"
        )
    return known


def encode_key(key: CheckpointKey) -> bytes:
    return dump(_key(key))


def decode_key(data: bytes) -> CheckpointKey:
    """Decode a record's key, whatever its kind. Raises MalformedEvent."""
    with malformed("a checkpoint key", data):
        fields = json.loads(data)
        source = SourcePartition(fields["region"], fields["topic"], fields["partition"], fields["incarnation"])
        return CheckpointKey(source, fields["destination"])


def kind_of(data: bytes) -> str:
    """Kind of a record by its key: POSITION, PARKED, …, or a kind of a newer version. Raises MalformedEvent."""
    with malformed("a checkpoint key", data):
        return str(json.loads(data).get("kind", POSITION))


def _key(key: CheckpointKey) -> dict[str, object]:
    s = key.source
    return {
        "destination": key.destination_topic,
        "incarnation": s.incarnation,
        "partition": s.partition,
        "region": s.region,
        "topic": s.topic,
    }


_CHECKPOINT = Codec(Checkpoint, "a checkpoint", omitted=("given_at", "begun_at", "dropped", "keeps_offsets"))
encode, decode = _CHECKPOINT.encode, _CHECKPOINT.decode

_PARKED = Codec(Parked, "a parked partition")
encode_parked, decode_parked = _PARKED.encode, _PARKED.decode


def encode_parked_key(key: CheckpointKey) -> bytes:
    return dump(_key(key) | {"kind": PARKED})


_WAITING = Codec(Waiting, "a partition that waits")
encode_waiting, decode_waiting = _WAITING.encode, _WAITING.decode


def encode_waiting_key(key: CheckpointKey) -> bytes:
    return dump(_key(key) | {"kind": WAITING})


_SKIPPED = Codec(Skipped, "skipped offsets", outside=("key", "offsets", "level"), omitted=("stored_at",))
encode_skipped = _SKIPPED.encode


def encode_skipped_key(skipped: Skipped) -> bytes:
    offsets, level = skipped.offsets, skipped.level
    fields = _key(skipped.key) | {"end": offsets.end, "kind": SKIPPED, "start": offsets.start}
    return dump(fields if level is None else fields | {"level": level})


def decode_skipped(key: bytes, data: bytes) -> Skipped:
    """Raises MalformedEvent, also for a newer version."""
    with malformed("skipped offsets", data):
        fields = json.loads(key)
        where, offsets = decode_key(key), OffsetRange(int(fields["start"]), int(fields["end"]))
        level = int(fields["level"]) if "level" in fields else None
    return _SKIPPED.decode(data, key=where, offsets=offsets, level=level)


def encode_owner_key(transactional_id: str) -> bytes:
    return dump({"kind": OWNER, "transactional_id": transactional_id})


def encode_owner(token: str) -> bytes:
    """The owner of a transactional id that no consumer group fences: `token` is generated by the owning process."""
    return dump({"token": token, "v": VERSION})


def decode_owner(key: bytes, data: bytes) -> tuple[str, str]:
    """Transactional id and token. Raises MalformedEvent, also for a newer version."""
    with malformed("an owner", data):
        return str(json.loads(key)["transactional_id"]), str(load(data)["token"])


CUT_KEY = dump({"kind": CUT})
