"""The control plane's objects: what the archive says beside segments, below `{prefix}/{region}/_control/v1/`.

    places/{place}                                     which life of a topic a place of the archive belongs to
    begins/{place}/{partition}                         where the archive of a partition begins
    forks/{place}/{partition}/{next_offset:020d}       the source's log was cut below what had been archived of it;
                                                       with -{start:020d}, further than the first time
    gaps/{place}/{partition}/{start:020d}-{end:020d}   offsets that the egress proved lost at the source, or that
                                                       retention removed
    quarantine/{place}/{partition}/{level}/{range}     a segment that is not what its key and footer say
    leases/{name}/{token:020d}                         who does a work that one should do; the highest token holds
    proven/{region}/{place}/{number:020d}              when `verify` proved partitions of an archive (proofs.py)
    heartbeats/{owner}/{number:020d}                   a process that compacts by the clock (heartbeats.py)
    probe                                              put again at each start of a writer, which the store must refuse

Each is a small JSON object, written once by a conditional put and never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from formats.errors import MalformedEvent
from formats.segment import CONTROL, OffsetRange, Segment, SourcePartition, region_prefix

VERSION = 1
RETENTION = "retention of the archive"
"""Why a gap was recorded whose offsets were archived, and then removed because nobody wants them any more."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The life of a topic that a place was claimed for. `number` counts the places of one name, from 0."""

    topic_id: str
    cluster_id: str
    number: int
    claimed_at: datetime  # UTC
    fork: int = 0  # number of the fork of that life's log behind which it begins, from 1 on; 0: with the life
    forked_from: str = ""  # the place that holds the log up to that fork


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBegin:
    """Where the archive of one partition begins: no segment was ever meant to hold an offset below `offset`. Written by
    the egress before it stores or commits anything of the partition, and never changed."""

    offset: int
    reason: str
    recorded_at: datetime  # UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFork:
    """The source's log lost records that had been archived, and gives their offsets to others: an unclean leader
    election, the loss of every replica's tail, a snapshot that was restored. `formats.forks` says how it goes on."""

    source: SourcePartition
    next_offset: int  # everything below was archived
    leader_epoch: int | None  # of the last record archived below `next_offset`; None: found by comparing records
    end_offset: int | None  # the two logs are the same below it; None: nothing is known to be the same
    found_at: datetime  # UTC
    evidence: str = ""  # what shows it, for people

    def __post_init__(self) -> None:
        if self.next_offset < 1 or (self.end_offset is not None and not 0 <= self.end_offset < self.next_offset):
            raise ValueError(f"a fork at {self.end_offset} contests nothing below {self.next_offset}")

    @property
    def is_by_records(self) -> bool:
        """Found by comparing the log's records with archived ones, not reported by a broker."""
        return self.leader_epoch is None

    @property
    def contested(self) -> OffsetRange:
        """Offsets whose archived records are not, or may not be, those of the log as it is now."""
        return OffsetRange(0 if self.end_offset is None else self.end_offset, self.next_offset - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGap:
    """Offsets that no segment will ever cover, and why."""

    source: SourcePartition
    offsets: OffsetRange
    reason: str
    low: int  # the partition's watermarks when it was found; by retention, of what was stored
    high: int
    recorded_at: datetime  # UTC
    is_accepted: bool = False  # by an operator, who knows that these records are nowhere, or not to be archived

    @property
    def is_loss(self) -> bool:
        """Whether it needs attention: not what retention removed on purpose, nor what an operator accepted."""
        return self.reason != RETENTION and not self.is_accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A stored object that compaction leaves alone. Another object at the same key is another matter."""

    stored_at: datetime  # UTC, of that object, by the store's clock
    reason: str
    found_at: datetime  # UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`token` grows with every holder: what a later one did cannot be an earlier one's doing."""

    token: int
    owner: str
    until: datetime  # UTC


def stand_in(cluster_id: str, number: int) -> str:
    """A name for a life where brokers have no topic ids; fit for keys."""
    return f"{_NOT_IN_A_NAME.sub('_', cluster_id)[:40]}-{number}"


def newest_stand_in(lives: Iterable[str], cluster_id: str) -> str:
    """Of the lives of one topic, by name: the last that stands for one of this cluster; empty when none does."""
    head = stand_in(cluster_id, 0)[:-1]
    numbers = [int(n) for life in lives if life.startswith(head) and (n := life[len(head) :]).isdecimal()]
    return f"{head}{max(numbers)}" if numbers else ""


def incarnations(places: Iterable[str], topic: str) -> list[str]:
    """Of places: those of later lives of `topic`, by the name behind the `@`."""
    return [place[len(topic) + 1 :] for place in places if place.startswith(f"{topic}@")]


def place_key(prefix: str, region: str, place: str) -> str:
    return f"{control_prefix(prefix, region)}places/{place}"


def places_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}places/"


def begins_prefix(prefix: str, region: str, place: str) -> str:
    return f"{control_prefix(prefix, region)}begins/{place}/"


def begin_key(prefix: str, source: SourcePartition) -> str:
    return f"{begins_prefix(prefix, source.region, source.place)}{source.partition}"


def forks_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{control_prefix(prefix, source.region)}forks/{source.place}/{source.partition}/"


def fork_key(prefix: str, fork: LogFork) -> str:
    return f"{forks_prefix(prefix, fork.source)}{fork.next_offset:020d}"


def deeper_fork_key(prefix: str, fork: LogFork) -> str:
    """Of one that contests more than the first at that offset."""
    return f"{fork_key(prefix, fork)}-{fork.contested.start:020d}"


def gap_key(prefix: str, source: SourcePartition, offsets: OffsetRange) -> str:
    return f"{gaps_prefix(prefix, source)}{offsets.start:020d}-{offsets.end:020d}"


def gaps_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{control_prefix(prefix, source.region)}gaps/{source.place}/{source.partition}/"


def quarantine_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}quarantine/"


def quarantine_key(prefix: str, segment: Segment) -> str:
    return f"{quarantine_prefix(prefix, segment.source.region)}{str(segment).partition('/')[2]}"


def probe_key(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}probe"


def leases_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}leases/"


def lease_prefix(prefix: str, region: str, name: str) -> str:
    return f"{leases_prefix(prefix, region)}{name}/"


def encode_quarantined(found: Quarantined) -> bytes:
    return _dump(
        {
            "found_at": found.found_at.isoformat(),
            "reason": found.reason,
            "stored_at": found.stored_at.isoformat(),
            "v": VERSION,
        }
    )


def decode_quarantined(data: bytes) -> Quarantined:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = _load(data)
        return Quarantined(
            stored_at=datetime.fromisoformat(d["stored_at"]),
            reason=str(d["reason"]),
            found_at=datetime.fromisoformat(d["found_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a quarantined segment: {data[:200]!r} ({error})") from error


def encode_lease(lease: Lease) -> bytes:
    return _dump({"owner": lease.owner, "until": lease.until.isoformat(), "v": VERSION})


def decode_lease(token: int, data: bytes) -> Lease:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = _load(data)
        return Lease(token=token, owner=str(d["owner"]), until=datetime.fromisoformat(d["until"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a lease: {data[:200]!r} ({error})") from error


def control_prefix(prefix: str, region: str) -> str:
    return f"{region_prefix(prefix, region)}{CONTROL}/v1/"


def is_of_one_bucket(name: str) -> bool:
    """Whether the control object is about its bucket, and says nothing of a copy: `name` is its key without prefix."""
    return _kind(name) in ("leases", "probe", "heartbeats", "proven")


def is_of_either_side(name: str) -> bool:
    """Whether the bucket that receives copies may have such an object of its own, with another content: its own `gc`
    records what it removed, and its own readers what is damaged there."""
    return _kind(name) in ("gaps", "quarantine")


def _kind(name: str) -> str:
    """Of a control object; empty of anything else."""
    parts = name.split("/")
    return parts[3] if len(parts) > 3 and parts[1:3] == [CONTROL, f"v{VERSION}"] else ""


def is_control_key(prefix: str, key: str) -> bool:
    """Of any region."""
    head = f"{prefix}/" if prefix else ""
    return key.startswith(head) and key[len(head) :].split("/")[1:2] == [CONTROL]


def encode_place(place: Place) -> bytes:
    said: dict[str, object] = {
        "claimed_at": place.claimed_at.isoformat(),
        "cluster_id": place.cluster_id,
        "number": place.number,
        "topic_id": place.topic_id,
        "v": VERSION,
    }
    return _dump(said | {"fork": place.fork, "forked_from": place.forked_from} if place.fork else said)


def decode_place(data: bytes) -> Place:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = _load(data)
        return Place(
            topic_id=str(d["topic_id"]),
            cluster_id=str(d["cluster_id"]),
            number=int(d["number"]),
            claimed_at=datetime.fromisoformat(d["claimed_at"]),
            fork=int(d.get("fork", 0)),
            forked_from=str(d.get("forked_from", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a place: {data[:200]!r} ({error})") from error


def encode_begin(begin: ArchiveBegin) -> bytes:
    return _dump(
        {
            "offset": begin.offset,
            "reason": begin.reason,
            "recorded_at": begin.recorded_at.isoformat(),
            "v": VERSION,
        }
    )


def decode_begin(data: bytes) -> ArchiveBegin:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = _load(data)
        return ArchiveBegin(
            offset=int(d["offset"]),
            reason=str(d["reason"]),
            recorded_at=datetime.fromisoformat(d["recorded_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not the begin of an archive: {data[:200]!r} ({error})") from error


def encode_fork(fork: LogFork) -> bytes:
    return _dump(
        {
            "end_offset": fork.end_offset,
            "evidence": fork.evidence,
            "found_at": fork.found_at.isoformat(),
            "leader_epoch": fork.leader_epoch,
            "next_offset": fork.next_offset,
            "v": VERSION,
        }
    )


def decode_fork(source: SourcePartition, data: bytes) -> LogFork:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = _load(data)
        return LogFork(
            source=source,
            next_offset=int(d["next_offset"]),
            leader_epoch=None if d["leader_epoch"] is None else int(d["leader_epoch"]),
            end_offset=None if d["end_offset"] is None else int(d["end_offset"]),
            found_at=datetime.fromisoformat(d["found_at"]),
            evidence=str(d.get("evidence", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a fork of {source}: {data[:200]!r} ({error})") from error


def encode_gap(gap: RecordedGap) -> bytes:
    said: dict[str, object] = {
        "high": gap.high,
        "low": gap.low,
        "reason": gap.reason,
        "recorded_at": gap.recorded_at.isoformat(),
        "v": VERSION,
    }
    return _dump(said | {"is_accepted": True} if gap.is_accepted else said)


def decode_gap(source: SourcePartition, offsets: OffsetRange, data: bytes) -> RecordedGap:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = _load(data)
        return RecordedGap(
            source=source,
            offsets=offsets,
            reason=str(d["reason"]),
            low=int(d["low"]),
            high=int(d["high"]),
            recorded_at=datetime.fromisoformat(d["recorded_at"]),
            is_accepted=bool(d.get("is_accepted", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a recorded gap of {source} at {offsets}: {data[:200]!r} ({error})") from error


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _load(data: bytes) -> dict[str, Any]:
    d: dict[str, Any] = json.loads(data)
    if d["v"] != VERSION:
        raise ValueError(f"version {d['v']}, this program reads {VERSION}")
    return d
