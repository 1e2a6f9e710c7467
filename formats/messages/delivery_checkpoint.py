"""Checkpoints: how far a source partition has been delivered to a destination, and their records in Kafka.

The checkpoint record is the position. Topic: compacted; key: who; value: how far. Both are JSON objects with sorted
keys and no blanks, so that one key always has the same bytes. Beside it, each under keys of a kind of its own:

  - a partition that waits for an operator says why (`Parked`); the record goes when the partition does;
  - a partition that waits for offsets says since when (`Waiting`); the record goes when it got past them;
  - offsets that an operator gave up are written down (`Skipped`), for ever: a recorded gap at the target.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from formats.codec import VERSION, Codec, dump, load, malformed
from formats.errors import CheckpointConflict
from formats.segment import OffsetRange, SourcePartition

# kinds of records, as their keys say it
POSITION, PARKED, WAITING, SKIPPED, OWNER = "", "parked", "waiting", "skipped", "owner"


@dataclass(frozen=True, slots=True, order=True)
class CheckpointKey:
    source: SourcePartition
    destination_topic: str


class Author(StrEnum):
    """Who wrote a checkpoint, and so what it proves."""

    EXACTLY_ONCE = "exactly-once"  # in one transaction with the records before it
    AT_LEAST_ONCE = "at-least-once"  # after the records before it were acknowledged
    SEED = "seed"  # an operator


@dataclass(frozen=True, slots=True)
class Checkpoint:
    next_offset: int  # source offset of the next record wanted
    destination_topic_id: str  # another id there means that the target was created again
    at: datetime  # UTC
    author: Author = Author.AT_LEAST_ONCE
    given_at: int | None = None  # of a seed that skips a record: its offset; void once the position is beyond it
    begun_at: int | None = None  # where this delivery began; None: an operator said where to go on, or it is not known


SEED = "replicator checkpoints seed"  # in each reason that it remedies


def seed_at_the_end_of(source: SourcePartition) -> str:
    """The command for a destination whose position is gone, and where its offset comes from."""
    return (
        f"`{SEED} {source} --offset N`, where N is the archive's offset at which the destination ends, as "
        f"`replicator verify {source.topic} --target FILE` says"
    )


@dataclass(frozen=True, slots=True)
class Parked:
    """A partition that waits for an operator, or for its cause to go."""

    next_offset: int | None  # of the record it cannot get past; None: it has no position yet
    reason: str
    since: datetime  # UTC
    blames_target: bool = False  # no record is at fault: the next one would fare no better

    @property
    def wants_seed(self) -> bool:
        """Whether nothing but a seed lets it go on. What the configuration refuses has no position either, and waits
        for another configuration; so the reason decides, which names the remedy."""
        return self.next_offset is None and SEED in self.reason


@dataclass(frozen=True, slots=True)
class Waiting:
    """A listing showed that offsets are in no segment, though later ones are. How long they are waited for counts from
    `since`, whichever process holds the partition."""

    offset: int  # the first one missing; of a beginning, the first one stored
    since: datetime  # UTC, by the clock of the process that noticed it
    is_beginning: bool = False  # nothing says where the archive begins, so anything may come before `offset`


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Offsets that an operator gave up: they are in the archive, maybe, and never in the destination."""

    key: CheckpointKey
    offsets: OffsetRange
    reason: str
    at: datetime  # UTC


def still_parked(parked: Parked, checkpoint: Checkpoint | None) -> bool:
    """Whether what a partition said when it stopped still holds. A record that an owner left behind on its way out
    does not: a later checkpoint is beyond it."""
    if checkpoint is None:
        return True
    if parked.next_offset is None:
        return checkpoint.at <= parked.since
    return checkpoint.next_offset <= parked.next_offset


def still_waiting(waiting: Waiting, checkpoint: Checkpoint | None) -> bool:
    """Whether what a partition waited for is before it still; the note outlives the wait for a moment, or a crash."""
    if checkpoint is None:
        return True
    return not waiting.is_beginning and waiting.offset == checkpoint.next_offset


def follow(
    key: CheckpointKey, known: Checkpoint | CheckpointConflict | None, said: Checkpoint
) -> Checkpoint | CheckpointConflict:
    """Which of two holds, `said` being the later record; the conflict when they cannot both be true.

    An operator's word begins anew, and is all that ends a conflict; another destination begins anew as well. One about
    a record where the partition was parked says nothing of a partition that got past it, nor of a conflict. A position
    never goes back by itself: a lower one comes from a worker that was frozen while the partition moved on, and what it
    delivered lies below the higher one. Nor does one that began further on by itself move it: what lies between was
    delivered by none. Only a transaction cannot be such a latecomer, since it is fenced.
    """
    if known is None or (said.author is Author.SEED and said.given_at is None):
        return said
    if isinstance(known, CheckpointConflict):
        return known
    if said.given_at is not None:
        same = said.destination_topic_id == known.destination_topic_id
        return known if same and known.next_offset > said.given_at else said
    if said.destination_topic_id != known.destination_topic_id:
        return said
    joins = said.begun_at is None or known.begun_at is None or said.begun_at <= known.next_offset
    if said.next_offset >= known.next_offset and joins:
        return said
    if said.author is Author.EXACTLY_ONCE and known.author is not Author.AT_LEAST_ONCE:
        return CheckpointConflict(
            f"{key.source} to {key.destination_topic}: a checkpoint says {known.next_offset} ({known.author}, "
            f"{known.at.isoformat()}), and a later one {said.next_offset} ({said.author}, {said.at.isoformat()}); both "
            "cannot be true. Find out which is, and say so with `replicator checkpoints seed`"
        )
    return known


def encode_key(key: CheckpointKey) -> bytes:
    return dump(_key(key))


def decode_key(data: bytes) -> CheckpointKey:
    """Of every kind. Raises MalformedEvent."""
    with malformed("a checkpoint key", data):
        said = json.loads(data)
        source = SourcePartition(said["region"], said["topic"], said["partition"], said["incarnation"])
        return CheckpointKey(source, said["destination"])


def kind_of(data: bytes) -> str:
    """What a record's key is about: POSITION, PARKED, …, or a kind of a newer version. Raises MalformedEvent."""
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


_CHECKPOINT = Codec(Checkpoint, "a checkpoint", omitted=("given_at", "begun_at"))
encode, decode = _CHECKPOINT.encode, _CHECKPOINT.decode

_PARKED = Codec(Parked, "a parked partition")
encode_parked, decode_parked = _PARKED.encode, _PARKED.decode


def encode_parked_key(key: CheckpointKey) -> bytes:
    return dump(_key(key) | {"kind": PARKED})


_WAITING = Codec(Waiting, "a partition that waits")
encode_waiting, decode_waiting = _WAITING.encode, _WAITING.decode


def encode_waiting_key(key: CheckpointKey) -> bytes:
    return dump(_key(key) | {"kind": WAITING})


_SKIPPED = Codec(Skipped, "skipped offsets", outside=("key", "offsets"))
encode_skipped = _SKIPPED.encode


def encode_skipped_key(skipped: Skipped) -> bytes:
    offsets = skipped.offsets
    return dump(_key(skipped.key) | {"end": offsets.end, "kind": SKIPPED, "start": offsets.start})


def decode_skipped(key: bytes, data: bytes) -> Skipped:
    """Raises MalformedEvent, also for a newer version."""
    with malformed("skipped offsets", data):
        said = json.loads(key)
        where, offsets = decode_key(key), OffsetRange(int(said["start"]), int(said["end"]))
    return _SKIPPED.decode(data, key=where, offsets=offsets)


def encode_owner_key(transactional_id: str) -> bytes:
    return dump({"kind": OWNER, "transactional_id": transactional_id})


def encode_owner(token: str) -> bytes:
    """Who writes under a transactional id that no group fences: a name that one process made up for itself."""
    return dump({"token": token, "v": VERSION})


def decode_owner(key: bytes, data: bytes) -> tuple[str, str]:
    """Transactional id and token. Raises MalformedEvent, also for a newer version."""
    with malformed("an owner", data):
        return str(json.loads(key)["transactional_id"]), str(load(data)["token"])
