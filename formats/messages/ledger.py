"""The ownership ledger: which topics and ACLs of the target cluster are the replicator's. Only these are ever altered.

    key                                            value
    {"kind":"intent","name":T}                     before T is created: a process that finds T later knows who meant to
    {"kind":"topic","name":T,"id":ID}              T was created, with this id: another T is somebody else's
    {"kind":"acl", …each field of the binding}     before the ACL is created; without a value once it is removed
    {"group":G,"kind":"group","topic":T}           before offsets are committed for G on T: what it had from us
    {"group":G,"kind":"hold","topic":T}            an operator chose the offsets of G on T, or has released them
    {"kind":"failover","region":R}                 how far a failover from source region R has come, or its failback
    {"kind":"takeback","region":R}                 which groups that had moved to R continue in this cluster again

A record of one topic incarnation has one key, so several processes that record the same fact do no harm. Pure: records
in, a table out; the last record of a key wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum

from formats.codec import Codec, dump, malformed
from formats.errors import MalformedEvent, TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import FOREVER, ConfigSource, ConfigValue

DEFAULT_LEDGER = "replicator.ledger"
INTENT, TOPIC, ACL, GROUP = "intent", "topic", "acl", "group"  # kinds, as written in the keys
HOLD, FAILOVER, TAKEBACK = "hold", "failover", "takeback"
COMPLETED_WITHIN = timedelta(days=1)  # from an intent: later a topic of that name is somebody else's
_ACL_FIELDS = tuple(one.name for one in fields(AclBinding))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationIntent:
    """A topic is about to be created."""

    name: str
    at: datetime  # UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedTopic:
    """A topic that the replicator created."""

    name: str
    topic_id: str  # empty where brokers have none
    source: str  # region/topic
    at: datetime  # UTC
    lineage: tuple[str, ...] = ()  # ids of the clusters that its records went through, the nearest first
    is_copied: bool = False  # everything that the archive held when it was first complete here was delivered
    copied_at: datetime | None = None  # UTC; when that was found
    oldest_at: datetime | None = None  # UTC; the timestamp of the oldest record that the archive held then
    configs: tuple[str, ...] | None = None  # names of those that we set, which may be unset again; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedAcl:
    """An ACL that the replicator created."""

    binding: AclBinding
    at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class WrittenOffset:
    """What was last written for one partition."""

    offset: int
    upstream: int | None  # where the group stood at the source then; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWrite:
    """Offsets that the replicator was about to commit for a consumer group: one that stands elsewhere now was used."""

    group: str
    topic: str
    partitions: tuple[int, ...]  # all that were ever written, each with its newest offset
    offsets: tuple[int, ...]
    at: datetime  # UTC
    upstream: tuple[int, ...] = ()  # of each partition, where the group stood at the source then; empty: not known

    def by_partition(self) -> Mapping[int, WrittenOffset]:
        upstream = self.upstream or (None,) * len(self.partitions)
        return dict(zip(self.partitions, map(WrittenOffset, self.offsets, upstream), strict=True))

    def with_offsets(self, offsets: Mapping[int, WrittenOffset], at: datetime) -> GroupWrite:
        """Beside those of other partitions."""
        merged = sorted({**self.by_partition(), **offsets}.items())
        upstream = [one.upstream for _, one in merged if one.upstream is not None]
        return replace(
            self,
            partitions=tuple(partition for partition, _ in merged),
            offsets=tuple(one.offset for _, one in merged),
            upstream=tuple(upstream) if len(upstream) == len(merged) else (),
            at=at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHold:
    """An operator chose the offsets of a group on a topic: it is not synchronised there. An entry of its own, since
    offsets of the group may be recorded at the same moment."""

    group: str
    topic: str
    is_held: bool  # False: released
    at: datetime  # UTC


class FailoverPhase(StrEnum):
    DRAINING = "draining"  # what has arrived is being delivered; the groups are not written any more by `sync`
    GROUPS = "groups"  # the offsets of the groups are being committed
    ACTIVE = "active"  # the groups continue here
    FAILED_BACK = "failed back"  # they continue at the source again

    @property
    def holds(self) -> bool:
        """Whether the source decides nothing about its groups, topics and ACLs here."""
        return self is not FailoverPhase.FAILED_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The consumer groups of a source region continue in this cluster, or are about to."""

    region: str
    epoch: int  # failovers from this region, counted from 1
    phase: FailoverPhase
    at: datetime  # UTC; when it began
    snapshot: int = 0  # generation of the snapshot whose offsets count; 0: not chosen yet
    left: tuple[str, ...] = ()  # groups of it whose offsets could not be committed yet
    handover: int = 0  # generation with which the groups were handed back


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """Groups that had moved to another region continue here, at the offsets that it handed over."""

    region: str
    handover: int  # generation
    at: datetime  # UTC
    left: tuple[str, ...] = ()  # groups whose offsets could not be committed yet
    made_at: datetime | None = None  # UTC; when the handover was made; None: not known


LedgerEntry = CreationIntent | OwnedTopic | OwnedAcl | GroupWrite | GroupHold | Failover | TakenBack


@dataclass(frozen=True, slots=True)
class Ownership:
    """The table."""

    intents: Mapping[str, CreationIntent] = field(default_factory=dict)  # by topic
    topics: Mapping[tuple[str, str], OwnedTopic] = field(default_factory=dict)  # by name and id
    acls: frozenset[AclBinding] = frozenset()
    groups: Mapping[tuple[str, str], GroupWrite] = field(default_factory=dict)  # by group and topic
    entered: Mapping[str, datetime] = field(default_factory=dict)  # by name of a topic: when its last entry was written
    failovers: Mapping[str, Failover] = field(default_factory=dict)  # by source region: the last one
    taken_back: Mapping[str, TakenBack] = field(default_factory=dict)  # by region: the last time
    held: frozenset[tuple[str, str]] = frozenset()  # groups with the topics on which they are held
    unreadable: Mapping[str, str] = field(default_factory=dict)  # by source region: why its failover is not known

    def topic(self, name: str, topic_id: str) -> OwnedTopic | None:
        """None for a topic that somebody else created, or created anew."""
        return self.topics.get((name, topic_id))

    def failover_of(self, region: str) -> Failover | None:
        """The last failover from this region. Raises TargetError when its entry cannot be read."""
        if region in self.unreadable:
            raise TargetError(self.unreadable[region])
        return self.failovers.get(region)

    def why_held(self, region: str) -> str:
        """Why this region decides nothing about its groups, topics and ACLs here: a failover from it, until the
        failback, or an entry that cannot be read; empty: it decides."""
        if region in self.unreadable:
            return self.unreadable[region]
        found = self.failovers.get(region)
        if found is None or not found.phase.holds:
            return ""
        since = found.at.isoformat(timespec="seconds")
        return f"failed over from {region} at {since}: its groups are not moved by it until the failback"

    def open_intent(self, name: str) -> CreationIntent | None:
        """The intent to create a topic that no later entry fulfils."""
        intent = self.intents.get(name)
        entered = self.entered.get(name)
        return None if intent is None or (entered is not None and entered >= intent.at) else intent

    def is_unfinished(self, name: str, topic_id: str, configs: Mapping[str, ConfigValue] | None, now: datetime) -> bool:
        """Whether we created the topic, and died before that was written down: there is a recent intent without an
        entry, and only we create topics with these timestamp limits. `configs`: None when they are not known; then it
        may be ours."""
        intent = self.open_intent(name)
        return (
            intent is not None
            and now - intent.at < COMPLETED_WITHIN
            and self.topic(name, topic_id) is None
            and (
                configs is None
                or any(found.source is ConfigSource.TOPIC and found.value == FOREVER for found in configs.values())
            )
        )


_INTENT = Codec(CreationIntent, "the intent to create a topic", outside=("name",))
_TOPIC = Codec(
    OwnedTopic,
    "the owner of a topic",
    outside=("name", "topic_id"),
    omitted=("lineage", "is_copied", "copied_at", "oldest_at", "configs"),
)
_ACL = Codec(OwnedAcl, "the owner of an ACL", outside=("binding",))
_GROUP = Codec(GroupWrite, "offsets of a consumer group", outside=("group", "topic"), omitted=("upstream",))
_HOLD = Codec(GroupHold, "a group that is held", outside=("group", "topic"))
_FAILOVER = Codec(Failover, "a failover", outside=("region",), omitted=("snapshot", "left", "handover"))
_TAKEBACK = Codec(TakenBack, "groups that were taken back", outside=("region",), omitted=("left", "made_at"))


def encode_key(entry: LedgerEntry) -> bytes:
    match entry:
        case CreationIntent(name=name):
            return dump({"kind": INTENT, "name": name})
        case OwnedTopic(name=name, topic_id=topic_id):
            return dump({"kind": TOPIC, "name": name, "id": topic_id})
        case OwnedAcl(binding=binding):
            return acl_key(binding)
        case GroupWrite(group=group, topic=topic):
            return dump({"group": group, "kind": GROUP, "topic": topic})
        case GroupHold(group=group, topic=topic):
            return dump({"group": group, "kind": HOLD, "topic": topic})
        case Failover(region=region):
            return dump({"kind": FAILOVER, "region": region})
        case TakenBack(region=region):
            return dump({"kind": TAKEBACK, "region": region})


def acl_key(binding: AclBinding) -> bytes:
    return dump({"kind": ACL} | {name: getattr(binding, name) for name in _ACL_FIELDS})


def encode(entry: LedgerEntry) -> bytes:
    match entry:
        case CreationIntent():
            return _INTENT.encode(entry)
        case OwnedTopic():
            return _TOPIC.encode(entry)
        case OwnedAcl():
            return _ACL.encode(entry)
        case GroupWrite():
            return _GROUP.encode(entry)
        case GroupHold():
            return _HOLD.encode(entry)
        case Failover():
            return _FAILOVER.encode(entry)
        case TakenBack():
            return _TAKEBACK.encode(entry)


def ownership(records: Iterable[tuple[bytes | None, bytes | None]]) -> tuple[Ownership, str]:
    """The table of a topic's records, in the order of the log, and the error of the last one that is none of ours;
    empty when all are. A damaged record owns nothing, so what it was about is left as it is; one of a hold or a
    failover holds, for the same reason."""
    table: dict[bytes, bytes] = {}
    for key, value in records:
        if value is None:
            table.pop(key or b"", None)
        else:
            table[key or b""] = value
    intents: dict[str, CreationIntent] = {}
    topics: dict[tuple[str, str], OwnedTopic] = {}
    acls: set[AclBinding] = set()
    groups: dict[tuple[str, str], GroupWrite] = {}
    held: set[tuple[str, str]] = set()
    failovers: dict[str, Failover] = {}
    taken_back: dict[str, TakenBack] = {}
    unreadable: dict[str, str] = {}
    problem = ""
    for key, value in table.items():
        try:
            match _decode(key, value):
                case CreationIntent() as intent:
                    intents[intent.name] = intent
                case OwnedTopic() as topic:
                    topics[topic.name, topic.topic_id] = topic
                case OwnedAcl(binding=binding):
                    acls.add(binding)
                case GroupWrite() as written:
                    groups[written.group, written.topic] = written
                case GroupHold() as hold:
                    if hold.is_held:
                        held.add((hold.group, hold.topic))
                case Failover() as failover:
                    failovers[failover.region] = failover
                case TakenBack() as taken:
                    taken_back[taken.region] = taken
        except MalformedEvent as error:
            problem = str(error)
            match _held_by(key):
                case str() as region:
                    unreadable[region] = _why_unreadable(region, key, problem)
                case tuple() as group_and_topic:
                    held.add(group_and_topic)
    entered: dict[str, datetime] = {}
    for topic in topics.values():
        entered[topic.name] = max(topic.at, entered.get(topic.name, topic.at))
    found = Ownership(
        intents, topics, frozenset(acls), groups, entered, failovers, taken_back, frozenset(held), unreadable
    )
    return found, problem


def _held_by(key: bytes) -> str | tuple[str, str] | None:
    """By the key of an entry that cannot be read: the region of a failover, or a held group and its topic; None: it is
    of neither."""
    try:
        names = json.loads(key)
        match names["kind"]:
            case "failover":
                return str(names["region"])
            case "hold":
                return str(names["group"]), str(names["topic"])
    except (ValueError, KeyError, TypeError):
        pass
    return None


def _why_unreadable(region: str, key: bytes, problem: str) -> str:
    return (
        f"whether there was a failover from {region} is not known: its entry in the ledger cannot be read ({problem}). "
        "Upgrade this program if a newer one wrote it; if it is damaged, write the key "
        f"{key.decode(errors='replace')} without a value"
    )


def _decode(key: bytes, value: bytes) -> LedgerEntry:
    """Raises MalformedEvent, also for another version."""
    with malformed("an entry of the ledger", key):
        names = json.loads(key)
        kind = names["kind"]
        if kind == INTENT:
            return _INTENT.decode(value, name=str(names["name"]))
        if kind == TOPIC:
            return _TOPIC.decode(value, name=str(names["name"]), topic_id=str(names["id"]))
        if kind == ACL:
            binding = AclBinding(**{name: str(names[name]) for name in _ACL_FIELDS})
            return _ACL.decode(value, binding=binding)
        if kind == GROUP:
            return _GROUP.decode(value, group=str(names["group"]), topic=str(names["topic"]))
        if kind == HOLD:
            return _HOLD.decode(value, group=str(names["group"]), topic=str(names["topic"]))
        if kind == FAILOVER:
            return _FAILOVER.decode(value, region=str(names["region"]))
        if kind == TAKEBACK:
            return _TAKEBACK.decode(value, region=str(names["region"]))
        raise ValueError(f"unknown kind {kind!r}")
