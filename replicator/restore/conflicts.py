"""Conflicts that are found before the first record of a restore: values and pure rules over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from formats.footer import MOST_IDS, SegmentFooter
from formats.incarnation import parse_incarnation
from formats.policies.topic_configs import RETENTION_MS
from formats.segment import SegmentInfo
from infra.contracts.cluster import TopicFacts, TopicPartition, Watermarks
from infra.kafka.client.topic_configs import NO_LIMIT, TopicConfigs
from ingress.routing.succession import ArchivedIncarnation
from replicator.first_few import first_few

if TYPE_CHECKING:
    from formats.control.restore_cut import Cut
    from replicator.restore.partition_plan import PartitionPlan
    from replicator.restore.purge import Purge

BATCH_OVERHEAD_BYTES = 200  # of a produced batch with one record, rounded up
DEFAULT_LARGEST_BYTES = 1_048_588  # Kafka's own max.message.bytes
DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000  # Kafka's own retention.ms


class ConflictKind(StrEnum):
    """Reasons not to start. `ACCEPTED` lists those that can be accepted, and what happens then."""

    MISSING = "missing"
    FORKED = "forked"
    FROZEN = "frozen"
    FOREIGN_DATA = "foreign-data"
    FEWER_PARTITIONS = "fewer-partitions"
    PARTITION_COUNT = "partition-count"
    LARGE_RECORDS = "large-records"
    TIMESTAMPS = "timestamps"
    RETENTION = "retention"
    COMPACTED = "compacted"
    KEYLESS = "keyless"
    NOT_ALLOWED = "not-allowed"
    OTHER_TARGET = "other-target"
    PURGE = "purge"
    MOMENT = "moment"
    NOT_ARCHIVED = "not-archived"
    LONG_HOLES = "long-holes"
    OFFSETS_TAKEN = "offsets-taken"
    CONFLICT = "conflict"


ACCEPTED: Mapping[ConflictKind, str] = {
    ConflictKind.MISSING: "what is missing is passed over",
    ConflictKind.FORKED: "what was archived before the fork is left out",
    ConflictKind.FOREIGN_DATA: "records are added behind what the topic holds",
    ConflictKind.FEWER_PARTITIONS: "partitions that the topic lacks are left out",
    ConflictKind.PARTITION_COUNT: "it is created with as many partitions as the archive holds",
    ConflictKind.LARGE_RECORDS: "a partition stops at the first record that is too large",
    ConflictKind.TIMESTAMPS: "timestamps are changed to the nearest that the topic takes, and 0, which the client "
    "takes for none, to 1",
    ConflictKind.RETENTION: "the broker may delete records soon after they are restored",
    ConflictKind.COMPACTED: "the broker removes records that have a later one with the same key",
    ConflictKind.KEYLESS: "a partition stops at the first record without a key",
    ConflictKind.PURGE: "the records that the topic holds are deleted",
    ConflictKind.NOT_ARCHIVED: "partitions end before the moment, or before what egress reported as archived, and may "
    "end within a transaction; topics of which nothing is here are left out",
    ConflictKind.LONG_HOLES: "they are filled, however long that takes",
}

CLAMPS = f"start the restore again with --accept {ConflictKind.TIMESTAMPS}"  # of a record that stops it
ACCEPT_BY_NAME = ACCEPTED.keys() - {ConflictKind.PURGE}
"""Those of the option `--accept`. What deletes records is accepted by `--yes`, as by other commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    kind: ConflictKind
    reason: str
    accepted: bool = False


def against_gaps(partitions: Iterable[PartitionPlan]) -> Iterator[Conflict]:
    gaps = [f"{p.source} {gap}" for p in partitions for gap in p.missing]
    if gaps:
        why = f"no segment holds {first_few(gaps, 3)}, though later ones exist, and no gap is recorded there"
        yield Conflict(
            kind=ConflictKind.MISSING, reason=f"{why}: search for them in a copy of the bucket, or in its versions"
        )


def against_cut(partitions: Sequence[PartitionPlan], generation: int) -> Iterator[Conflict]:
    """Conflicts with the ends of partitions at a moment."""
    unknown = [p for p in partitions if p.cut is not None and p.cut.end is None]
    if unknown:
        why = f"watermarks {generation} do not say where {_sources(unknown)} ended: leave it out, or give another --at"
        yield Conflict(kind=ConflictKind.MOMENT, reason=why)
    beyond = [p for p in partitions if p.is_beyond_cut]
    if beyond:
        why = f"an earlier run of this restore went further than watermarks {generation} in {_sources(beyond)}"
        yield Conflict(kind=ConflictKind.MOMENT, reason=f"{why}: start another one with --id, into another topic")
    short = [p for p in partitions if p.not_archived]
    if short:
        count = sum(p.not_archived for p in short)
        why = (
            f"up to {count:,} offsets of {_sources(short)} that were committed by then are not in the archive: records"
        )
        yield Conflict(
            kind=ConflictKind.NOT_ARCHIVED,
            reason=f"{why} that were still to be archived or copied to this bucket; wait for them, or give an earlier "
            "--at",
        )


def against_absent(cut: Cut, planned: Collection[str], wants: Callable[[str, int], bool]) -> Iterator[Conflict]:
    """`planned`: the topics of which this bucket has at least a claim; `wants`: the selection's, of a partition."""
    lacking = {
        name: sum(end or 0 for number, end in enumerate(then.ends) if wants(name, number))
        for name, then in sorted(cut.topics.items())
        if name not in planned
    }
    lacking = {name: count for name, count in lacking.items() if count}
    if lacking:
        named = first_few(list(lacking), 3)
        why = (
            f"up to {sum(lacking.values()):,} offsets of {named} that were committed by then are not in this bucket, "
            "nor anything else of these topics"
        )
        yield Conflict(
            kind=ConflictKind.NOT_ARCHIVED,
            reason=f"{why}: wait until they are archived or copied here, or select other topics",
        )


def against_fork(incarnation: ArchivedIncarnation, partitions: Iterable[PartitionPlan]) -> Iterator[Conflict]:
    """`incarnation`: the last incarnation, not selected by its id."""
    if incarnation.claim is None or not incarnation.claim.forked_from:
        return
    begins = [f"{p.source.partition}: {p.stored_until if p.offsets is None else p.offsets.start}" for p in partitions]
    shown = first_few(begins, 5)
    before = incarnation.claim.forked_from
    earlier_id = parse_incarnation(before).id or "''"
    why = (
        f"the log of {incarnation.topic} forked: {incarnation.path} holds it from there on (by partition, {shown}), "
        f"{before} what was archived before. For all of it restore the older part first, partition by partition, with "
        f"--incarnation {earlier_id} --partition N --offsets -LAST, and then this one"
    )
    yield Conflict(kind=ConflictKind.FORKED, reason=why)


def against_frozen(frozen: Sequence[SegmentInfo], thawing: int) -> Iterator[Conflict]:
    if frozen:
        size = sum(info.size_bytes for info in frozen)
        why = (
            f"{len(frozen):,} objects, {size:,} bytes, are archived (Glacier): --thaw asks for them, which takes hours"
        )
        yield Conflict(kind=ConflictKind.FROZEN, reason=why)
    if thawing:
        yield Conflict(
            kind=ConflictKind.FROZEN, reason=f"{thawing:,} objects were requested and are not readable yet: wait"
        )


def against_topic(
    facts: TopicFacts,
    marks: Mapping[TopicPartition, Watermarks],
    partitions: Sequence[PartitionPlan],
    is_ours: bool,
    purge: Purge | None = None,
) -> Iterator[Conflict]:
    """Conflicts of a destination that exists. `is_ours`: an earlier run of this restore wrote to it. `purge`: what is
    deleted there first."""
    others = _topic_ids(partitions) - {facts.topic_id, ""}
    if others and facts.topic_id:
        why = f"{facts.name} was created again since this restore began there (topic id {facts.topic_id}, it was "
        yield Conflict(
            kind=ConflictKind.OTHER_TARGET, reason=f"{why}{', '.join(sorted(others))}): start another one with --id"
        )
    elif purge is not None:
        filled = sorted(p.partition for p in purge.filled)
        why = f"{facts.name} holds records that --purge deletes: up to {purge.offsets:,} in {_named(filled)}"
        yield Conflict(kind=ConflictKind.PURGE, reason=f"{why}; nothing brings them back. To delete them, add --yes")
    elif not is_ours and (filled := sorted(p.partition for p, mark in marks.items() if mark.high > mark.low)):
        why = f"{facts.name} holds records that this restore did not write, in {_named(filled)}: restore into another "
        yield Conflict(
            kind=ConflictKind.FOREIGN_DATA,
            reason=f"{why}topic by --rename, or empty this one with --purge; a restore resumes with the selection it "
            "began with",
        )
    beyond = [p.target.partition for p in partitions if p.target.partition >= facts.partition_count]
    if beyond:
        why = f"{facts.name} has {facts.partition_count} partitions, and partition i goes to partition i: add "
        yield Conflict(kind=ConflictKind.FEWER_PARTITIONS, reason=f"{why}partitions, at least {max(beyond) + 1}")


def against_creation(name: str, partition_count: int, partitions: Sequence[PartitionPlan]) -> Iterator[Conflict]:
    """Conflicts of a destination that does not exist."""
    if any(p.checkpoint is not None for p in partitions):
        why = f"{name} was deleted since this restore began there, and what it delivered would not be delivered again"
        yield Conflict(kind=ConflictKind.OTHER_TARGET, reason=f"{why}: start another one with --id")
    beyond = [p.target.partition for p in partitions if p.target.partition >= partition_count]
    if beyond:
        why = f"{name} would be created with {partition_count} partitions, and partition i goes to partition i: pass "
        yield Conflict(kind=ConflictKind.FEWER_PARTITIONS, reason=f"{why}--partition-count {max(beyond) + 1} or more")


def against_settings(
    name: str, configs: Mapping[str, str], limits_ms: tuple[int, int], footers: Collection[SegmentFooter], now: datetime
) -> Iterator[Conflict]:
    """Conflicts with the configs of a destination as it is, or as it would be created; as far as `footers` describe the
    records. `limits_ms`: how far a timestamp may lie before and after the broker's clock."""
    if TopicConfigs(configs).is_compacted:
        why = f"{name} is compacted, so the broker does not keep all that is restored: set its "
        yield Conflict(kind=ConflictKind.COMPACTED, reason=f"{why}cleanup.policy to delete until you need it")
        keyless = sum(f.keyless_count or 0 for f in footers)
        if keyless:
            why = (
                f"at least {keyless:,} records have no key, and {name} is compacted, so it takes none of them: set its "
            )
            yield Conflict(
                kind=ConflictKind.KEYLESS,
                reason=f"{why}cleanup.policy to delete, or give them keys (--map MODULE:FUNCTION)",
            )
    largest = max((f.largest_record_bytes for f in footers), default=0)
    limit = int(configs.get("max.message.bytes", NO_LIMIT))
    if largest + BATCH_OVERHEAD_BYTES > limit:
        why = f"the largest record has {largest} bytes, and max.message.bytes of {name} is {limit}: raise it"
        yield Conflict(kind=ConflictKind.LARGE_RECORDS, reason=why)
    if configs.get("message.timestamp.type", "CreateTime") != "CreateTime":
        why = f"message.timestamp.type of {name} is LogAppendTime, so every record gets the time of the restore"
        yield Conflict(kind=ConflictKind.TIMESTAMPS, reason=f"{why}: set it to CreateTime")
        return
    oldest = min((f.min_timestamp_ms for f in footers if f.min_timestamp_ms is not None), default=None)
    newest = max((f.max_timestamp_ms for f in footers if f.max_timestamp_ms is not None), default=None)
    if oldest == 0:
        why = f"records have timestamp 0, which the Kafka client replaces by the current time: {name} cannot get it"
        yield Conflict(kind=ConflictKind.TIMESTAMPS, reason=f"{why}; give them another one (--map MODULE:FUNCTION)")
    now_ms = int(now.timestamp() * 1000)
    before_ms, after_ms = limits_ms
    if oldest is not None and newest is not None and (now_ms - oldest > before_ms or newest - now_ms > after_ms):
        why = f"records are stamped {oldest} to {newest} ms, {name} takes {before_ms} ms before and {after_ms} ms after"
        yield Conflict(
            kind=ConflictKind.TIMESTAMPS,
            reason=f"{why} now: raise its message.timestamp.before.max.ms and message.timestamp.after.max.ms",
        )
    retention_ms = int(configs.get("retention.ms", "-1"))
    by_age = retention_ms >= 0 and TopicConfigs(configs).is_trimmed
    if by_age and oldest is not None and oldest < now_ms - retention_ms:
        why = f"retention.ms of {name} is {retention_ms}, and records are older: the broker would delete them"
        yield Conflict(kind=ConflictKind.RETENTION, reason=f"{why}: raise it, or set it to -1 until you need it")


def against_purge(name: str, configs: Mapping[str, str]) -> Iterator[Conflict]:
    """Conflicts of a destination that is to be emptied."""
    if TopicConfigs(configs).is_compacted and not TopicConfigs(configs).is_trimmed:
        why = f"{name} is only compacted, and a broker deletes no records of such a topic before an offset: set its "
        yield Conflict(kind=ConflictKind.NOT_ALLOWED, reason=f"{why}cleanup.policy to delete until it is restored")


def against_defaults(
    name: str, configs: Mapping[str, str], footers: Collection[SegmentFooter], now: datetime
) -> Iterator[Conflict]:
    """Conflicts of a destination that is created with nothing but `configs`, under defaults that are not known here: at
    least as short a retention as Kafka's own is likely."""
    if RETENTION_MS in configs or not TopicConfigs(configs).is_trimmed:
        return
    oldest = min((f.min_timestamp_ms for f in footers if f.min_timestamp_ms is not None), default=None)
    if oldest is not None and oldest < int(now.timestamp() * 1000) - DEFAULT_RETENTION_MS:
        why = f"{name} would get the retention of this cluster, 7 days by Kafka's default, and records are older: the "
        yield Conflict(
            kind=ConflictKind.RETENTION, reason=f"{why}broker may delete them. Pass --topic-config {RETENTION_MS}=-1"
        )


def schema_warnings(topic: str, region: str, footers: Collection[SegmentFooter]) -> Iterator[str]:
    """What to do where records refer to schemas of the source's registry; as far as `footers` say so."""
    ids = sorted({one for f in footers if f.schema_ids is not None for one in f.schema_ids.ids})
    if ids:
        named = ", ".join(map(str, ids[:MOST_IDS])) + (", …" if len(ids) > MOST_IDS else "")
        yield (
            f"values of {topic} look as if they carry ids of schemas ({named}): where the registry here does not know "
            f"them, `replicator schemas restore --archive-region {region}`"
        )


def accepted(conflicts: Iterable[Conflict], accept: Collection[ConflictKind]) -> Sequence[Conflict]:
    return [Conflict(kind=c.kind, reason=c.reason, accepted=c.kind in accept and c.kind in ACCEPTED) for c in conflicts]


def _topic_ids(partitions: Iterable[PartitionPlan]) -> set[str]:
    return {p.checkpoint.destination_topic_id for p in partitions if p.checkpoint is not None}


def _sources(partitions: Sequence[PartitionPlan]) -> str:
    return first_few([str(p.source) for p in partitions], 3)


def _named(partitions: Sequence[int]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {first_few(list(map(str, partitions)), 5)}"
