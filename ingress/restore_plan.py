"""What a restore would do, and what is to be said against it. Values, and rules over them; nothing is asked here.

wanted ── listing ──> one PartitionPlan for each source partition ┐
destination as it is, or as it will be created ───────────────────┴─> TopicPlan ──> RestorePlan, with objections
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ingress.lives import Life
from replicator.checkpoint import Checkpoint, CheckpointKey
from replicator.coverage import Extent, Gap, joined, steps, uncovered
from replicator.footer import SegmentFooter
from replicator.protocols import TopicFacts, TopicPartition, Watermarks
from replicator.segment import OffsetRange, SegmentInfo, SourcePartition
from replicator.stretches import Span

NO_LIMIT = 2**63 - 1
BATCH_OVERHEAD_BYTES = 200  # of a produced batch with one record, generously
DEFAULT_LARGEST_BYTES = 1_048_588  # Kafka's own max.message.bytes
# what one process delivers on two cores that it shares with the broker, about: docs/bench-restore.md
RECORDS_PER_SECOND, BYTES_PER_SECOND, START = 90_000, 90_000_000, timedelta(seconds=1)


class Objection(StrEnum):
    """Reasons not to begin. Those that may be accepted say in `ACCEPTED` what happens then."""

    MISSING = "missing"
    FROZEN = "frozen"
    FOREIGN_DATA = "foreign-data"
    FEWER_PARTITIONS = "fewer-partitions"
    PARTITION_COUNT = "partition-count"
    LARGE_RECORDS = "large-records"
    TIMESTAMPS = "timestamps"
    RETENTION = "retention"
    COMPACTED = "compacted"
    NOT_ALLOWED = "not-allowed"
    OTHER_TARGET = "other-target"
    CONFLICT = "conflict"


ACCEPTED: Mapping[Objection, str] = {
    Objection.MISSING: "what is missing is passed over",
    Objection.FOREIGN_DATA: "records are added behind what the topic holds",
    Objection.FEWER_PARTITIONS: "partitions that the topic lacks are left out",
    Objection.PARTITION_COUNT: "it is created with as many as the archive has something of",
    Objection.LARGE_RECORDS: "a partition stops at the first record that is too large",
    Objection.TIMESTAMPS: "timestamps are changed to the nearest that the topic takes",
    Objection.RETENTION: "the broker may delete records soon after they are restored",
    Objection.COMPACTED: "the broker removes records of which it has a later one, and takes none without a key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Objected:
    what: Objection
    why: str
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`offsets` are wanted and lie between the first and the last that is stored; None: nothing of it is."""

    source: SourcePartition
    target: TopicPartition
    offsets: OffsetRange | None
    infos: Sequence[SegmentInfo]  # what a reader would choose for these offsets, in order
    recorded: Sequence[OffsetRange]  # gaps in the way that were written down
    missing: Sequence[OffsetRange]  # gaps in the way that nobody explained
    listed_at: datetime
    others: Sequence[SegmentInfo] = ()  # that hold some of these offsets, too: for when one is damaged
    newest: SegmentInfo | None = None  # of all that is stored
    begins: int | None = None  # where it does once anything of it is stored; None: with the first that is
    checkpoint: Checkpoint | None = None  # of this restore, from before

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.source, self.target.topic)

    @property
    def next_offset(self) -> int | None:
        """Where this restore stands, or begins."""
        if self.offsets is None:
            return self.begins
        return self.offsets.start if self.checkpoint is None else self.checkpoint.next_offset

    @property
    def is_done(self) -> bool:
        return self.offsets is None or (self.next_offset or 0) > self.offsets.end

    @property
    def offsets_left(self) -> int:
        """As many records at most."""
        return 0 if self.offsets is None else max(self.offsets.end + 1 - (self.next_offset or 0), 0)

    @property
    def left(self) -> Sequence[SegmentInfo]:
        """What is to be read yet."""
        return [i for i in self.infos if i.segment.offsets.end >= (self.next_offset or 0)]

    @property
    def size_bytes(self) -> int:
        """As stored; what lies before the position in its first segment counts too."""
        return sum(info.size_bytes for info in self.left)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    life: Life
    destination: str
    facts: TopicFacts | None  # None: it does not exist, and is to be created
    partition_count: int  # of the destination, now or when it is created
    configs: Mapping[str, str]  # to create it with
    partitions: Sequence[PartitionPlan]
    objections: Sequence[Objected]
    footers_read: int = 0
    frozen: Sequence[SegmentInfo] = ()  # to be asked for before anything can be read
    thawing: int = 0  # objects that were asked for and are not there yet
    growth: float = 1.0  # bytes of records for one stored byte

    @property
    def refused(self) -> bool:
        return any(not objected.accepted for objected in self.objections)

    @property
    def clamps(self) -> bool:
        return any(o.what is Objection.TIMESTAMPS and o.accepted for o in self.objections)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    id: str
    checkpoint_topic: str
    topics: Sequence[TopicPlan]  # small ones first
    objections: Sequence[Objected] = ()  # against all of it

    @property
    def partitions(self) -> Sequence[PartitionPlan]:
        return [partition for topic in self.topics for partition in topic.partitions]

    @property
    def refused(self) -> bool:
        return any(topic.refused for topic in self.topics) or any(not o.accepted for o in self.objections)

    @property
    def objects(self) -> int:
        return sum(len(partition.left) for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    def lasts(self, max_rate: int | None) -> timedelta:
        """About, by one process. `max_rate`: bytes of records a second."""
        records = sum(p.offsets_left for p in self.partitions)
        size = sum(p.size_bytes * topic.growth for topic in self.topics for p in topic.partitions)
        rate = min(BYTES_PER_SECOND, max_rate or BYTES_PER_SECOND)
        return START + timedelta(seconds=max(records / RECORDS_PER_SECOND, size / rate))


def plan_partition(
    *,
    source: SourcePartition,
    target: TopicPartition,
    infos: Iterable[SegmentInfo],
    recorded: Iterable[OffsetRange],
    wanted: Span,
    listed_at: datetime,
    checkpoint: Checkpoint | None,
) -> PartitionPlan:
    """From a listing of the whole partition. Offsets before the first segment are no gap: there the archive begins;
    but those of a recorded gap there are told."""
    known, recorded = {info.segment: info for info in infos}, list(recorded)
    extent = joined(segment.offsets for segment in known)
    offsets = _stored_and_wanted(extent, wanted)
    chosen, missing = [], []
    if offsets is not None:
        for step in steps(known, offsets.start):
            if step.offsets.start > offsets.end:
                break
            if isinstance(step, Gap):
                within = OffsetRange(step.offsets.start, min(step.offsets.end, offsets.end))
                missing += uncovered(recorded, within)
            else:
                chosen.append(known[step.segment])
    ends = -1 if offsets is None else offsets.end
    is_behind = extent.next_offset is not None and wanted.low >= extent.next_offset
    return PartitionPlan(
        source=source,
        target=target,
        offsets=offsets,
        infos=chosen,
        recorded=[r for r in recorded if r.end >= wanted.low and r.start <= ends],
        missing=missing,
        listed_at=listed_at,
        others=_others(known.values(), chosen, offsets),
        newest=max(known.values(), key=lambda info: info.segment.offsets.end, default=None),
        begins=wanted.low if is_behind else None,
        checkpoint=checkpoint,
    )


def _others(
    infos: Iterable[SegmentInfo], chosen: Sequence[SegmentInfo], offsets: OffsetRange | None
) -> Sequence[SegmentInfo]:
    if offsets is None:
        return ()
    known = {info.segment for info in chosen}
    return [i for i in infos if i.segment.offsets.overlaps(offsets) and i.segment not in known]


def _stored_and_wanted(extent: Extent, wanted: Span) -> OffsetRange | None:
    if extent.start is None or extent.next_offset is None:
        return None
    low, high = max(wanted.low, extent.start), min(wanted.high, extent.next_offset - 1)
    return OffsetRange(low, high) if low <= high else None


# --- what is to be said against it -----------------------------------------------------------------------------------


def against_gaps(partitions: Iterable[PartitionPlan]) -> Iterator[Objected]:
    gaps = [f"{p.source} {gap}" for p in partitions for gap in p.missing]
    if gaps:
        more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        why = f"no segment holds {', '.join(gaps[:3])}{more}, though later ones exist, and no gap is recorded there"
        yield Objected(what=Objection.MISSING, why=f"{why}: look for them in a copy of the bucket, or in its versions")


def against_frozen(frozen: Sequence[SegmentInfo], thawing: int) -> Iterator[Objected]:
    if frozen:
        size = sum(info.size_bytes for info in frozen)
        why = f"{len(frozen)} objects, {size} bytes, are archived (Glacier): --thaw asks for them, which takes hours"
        yield Objected(what=Objection.FROZEN, why=why)
    if thawing:
        yield Objected(what=Objection.FROZEN, why=f"{thawing} objects were asked for and are not there yet: wait")


def against_topic(
    facts: TopicFacts,
    marks: Mapping[TopicPartition, Watermarks],
    partitions: Sequence[PartitionPlan],
    is_ours: bool,
) -> Iterator[Objected]:
    """Of a destination that exists. `is_ours`: this restore has begun there before."""
    others = _topic_ids(partitions) - {facts.topic_id, ""}
    if others and facts.topic_id:
        why = f"{facts.name} was created again since this restore began there (topic id {facts.topic_id}, it was "
        yield Objected(what=Objection.OTHER_TARGET, why=f"{why}{', '.join(sorted(others))}): begin another, by --id")
    elif not is_ours and (filled := sorted(p.partition for p, mark in marks.items() if mark.high > mark.low)):
        why = f"{facts.name} holds records that this restore did not write, in {_named(filled)}: restore into another "
        yield Objected(what=Objection.FOREIGN_DATA, why=f"{why}topic by --rename, or empty this one")
    beyond = [p.target.partition for p in partitions if p.target.partition >= facts.partition_count]
    if beyond:
        why = f"{facts.name} has {facts.partition_count} partitions, and partition i goes to partition i: add "
        yield Objected(what=Objection.FEWER_PARTITIONS, why=f"{why}partitions, at least {max(beyond) + 1}")


def against_creation(name: str, partition_count: int, partitions: Sequence[PartitionPlan]) -> Iterator[Objected]:
    """Of a destination that does not exist."""
    if any(p.checkpoint is not None for p in partitions):
        why = f"{name} was deleted since this restore began there, and what it delivered would not be delivered again"
        yield Objected(what=Objection.OTHER_TARGET, why=f"{why}: begin another, by --id")
    beyond = [p.target.partition for p in partitions if p.target.partition >= partition_count]
    if beyond:
        why = f"{name} would be created with {partition_count} partitions, and partition i goes to partition i: say "
        yield Objected(what=Objection.FEWER_PARTITIONS, why=f"{why}--partition-count {max(beyond) + 1} or more")


def against_settings(
    name: str, configs: Mapping[str, str], limits_ms: tuple[int, int], footers: Collection[SegmentFooter], now: datetime
) -> Iterator[Objected]:
    """Of a destination that exists, as far as `footers` tell of the records. `limits_ms`: how far before and after the
    broker's clock a record may be stamped."""
    if "compact" in configs.get("cleanup.policy", "delete"):
        why = f"{name} is compacted: it takes no record without a key, and does not keep what is restored: set its "
        yield Objected(what=Objection.COMPACTED, why=f"{why}cleanup.policy to delete until you need it")
    largest = max((f.largest_record_bytes for f in footers), default=0)
    limit = int(configs.get("max.message.bytes", NO_LIMIT))
    if largest + BATCH_OVERHEAD_BYTES > limit:
        why = f"the largest record has {largest} bytes, and max.message.bytes of {name} is {limit}: raise it"
        yield Objected(what=Objection.LARGE_RECORDS, why=why)
    if configs.get("message.timestamp.type", "CreateTime") != "CreateTime":
        why = f"message.timestamp.type of {name} is LogAppendTime, so every record gets the time of the restore"
        yield Objected(what=Objection.TIMESTAMPS, why=f"{why}: set it to CreateTime")
        return
    oldest = min((f.min_timestamp_ms for f in footers if f.min_timestamp_ms is not None), default=None)
    newest = max((f.max_timestamp_ms for f in footers if f.max_timestamp_ms is not None), default=None)
    now_ms = int(now.timestamp() * 1000)
    before_ms, after_ms = limits_ms
    if oldest is not None and newest is not None and (now_ms - oldest > before_ms or newest - now_ms > after_ms):
        why = f"records are stamped {oldest} to {newest} ms, {name} takes {before_ms} ms before and {after_ms} ms after"
        yield Objected(
            what=Objection.TIMESTAMPS,
            why=f"{why} now: raise its message.timestamp.before.max.ms and message.timestamp.after.max.ms",
        )
    retention_ms = int(configs.get("retention.ms", "-1"))
    by_age = retention_ms >= 0 and "delete" in configs.get("cleanup.policy", "delete")
    if by_age and oldest is not None and oldest < now_ms - retention_ms:
        why = f"retention.ms of {name} is {retention_ms}, and records are older: the broker would delete them"
        yield Objected(what=Objection.RETENTION, why=f"{why}: raise it, or set it to -1 until you need it")


def accepted(objections: Iterable[Objected], accept: Collection[Objection]) -> Sequence[Objected]:
    return [Objected(what=o.what, why=o.why, accepted=o.what in accept and o.what in ACCEPTED) for o in objections]


def _topic_ids(partitions: Iterable[PartitionPlan]) -> set[str]:
    return {p.checkpoint.destination_topic_id for p in partitions if p.checkpoint is not None}


def _named(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    return f"partition{'s' if len(partitions) > 1 else ''} {shown}{more}"
