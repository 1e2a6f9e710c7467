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

from formats.errors import CheckpointConflict, MalformedEvent
from formats.segment import OffsetRange, SourcePartition

VERSION = 1
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
    return _dump(_key(key))


def encode_parked_key(key: CheckpointKey) -> bytes:
    return _dump(_key(key) | {"kind": PARKED})


def encode_parked(parked: Parked) -> bytes:
    return _dump(
        {
            "blames_target": parked.blames_target,
            "next_offset": parked.next_offset,
            "reason": parked.reason,
            "since": parked.since.isoformat(),
            "v": VERSION,
        }
    )


def encode_waiting_key(key: CheckpointKey) -> bytes:
    return _dump(_key(key) | {"kind": WAITING})


def encode_waiting(waiting: Waiting) -> bytes:
    return _dump(
        {
            "is_beginning": waiting.is_beginning,
            "offset": waiting.offset,
            "since": waiting.since.isoformat(),
            "v": VERSION,
        }
    )


def encode_skipped_key(skipped: Skipped) -> bytes:
    offsets = skipped.offsets
    return _dump(_key(skipped.key) | {"end": offsets.end, "kind": SKIPPED, "start": offsets.start})


def encode_skipped(skipped: Skipped) -> bytes:
    return _dump({"at": skipped.at.isoformat(), "reason": skipped.reason, "v": VERSION})


def encode_owner_key(transactional_id: str) -> bytes:
    return _dump({"kind": OWNER, "transactional_id": transactional_id})


def encode_owner(token: str) -> bytes:
    """Who writes under a transactional id that no group fences: a name that one process made up for itself."""
    return _dump({"token": token, "v": VERSION})


def decode_owner(key: bytes, data: bytes) -> tuple[str, str]:
    """Transactional id and token. Raises MalformedEvent, also for a newer version."""
    try:
        k, d = json.loads(key), json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        return str(k["transactional_id"]), str(d["token"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not an owner: {data[:200]!r} ({error})") from error


def decode_skipped(key: bytes, data: bytes) -> Skipped:
    """Raises MalformedEvent, also for a newer version."""
    try:
        k, d = json.loads(key), json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        return Skipped(
            key=decode_key(key),
            offsets=OffsetRange(int(k["start"]), int(k["end"])),
            reason=str(d["reason"]),
            at=datetime.fromisoformat(d["at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not skipped offsets: {data[:200]!r} ({error})") from error


def kind_of(data: bytes) -> str:
    """What a record's key is about: POSITION, PARKED, …, or a kind of a newer version. Raises MalformedEvent."""
    try:
        return str(json.loads(data).get("kind", POSITION))
    except (ValueError, AttributeError) as error:
        raise MalformedEvent(f"not a checkpoint key: {data[:200]!r} ({error})") from error


def decode_parked(data: bytes) -> Parked:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        next_offset = None if d["next_offset"] is None else int(d["next_offset"])
        since = datetime.fromisoformat(d["since"])
        return Parked(next_offset, str(d["reason"]), since, blames_target=bool(d["blames_target"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a parked partition: {data[:200]!r} ({error})") from error


def decode_waiting(data: bytes) -> Waiting:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        return Waiting(int(d["offset"]), datetime.fromisoformat(d["since"]), bool(d["is_beginning"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a partition that waits: {data[:200]!r} ({error})") from error


def encode(checkpoint: Checkpoint) -> bytes:
    always = {
        "at": checkpoint.at.isoformat(),
        "author": checkpoint.author,
        "destination_topic_id": checkpoint.destination_topic_id,
        "next_offset": checkpoint.next_offset,
        "v": VERSION,
    }
    known = {"begun_at": checkpoint.begun_at, "given_at": checkpoint.given_at}
    return _dump(always | {name: offset for name, offset in known.items() if offset is not None})


def decode_key(data: bytes) -> CheckpointKey:
    """Of every kind. Raises MalformedEvent."""
    try:
        d = json.loads(data)
        source = SourcePartition(d["region"], d["topic"], d["partition"], d["incarnation"])
        return CheckpointKey(source, d["destination"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a checkpoint key: {data[:200]!r} ({error})") from error


def decode(data: bytes) -> Checkpoint:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        given_at, begun_at = d.get("given_at"), d.get("begun_at")
        return Checkpoint(
            int(d["next_offset"]),
            str(d["destination_topic_id"]),
            datetime.fromisoformat(d["at"]),
            Author(d["author"]),
            given_at=None if given_at is None else int(given_at),
            begun_at=None if begun_at is None else int(begun_at),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a checkpoint: {data[:200]!r} ({error})") from error


def _key(key: CheckpointKey) -> dict[str, object]:
    s = key.source
    return {
        "destination": key.destination_topic,
        "incarnation": s.incarnation,
        "partition": s.partition,
        "region": s.region,
        "topic": s.topic,
    }


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
