"""How the archive of this region's topics stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta

from replicator.commit_note import read_note
from replicator.config import EgressSettings
from replicator.control import Place, newest_stand_in
from replicator.control_store import ControlStore
from replicator.coverage import Extent, joined
from replicator.protocols import (
    ClusterAdmin,
    Committed,
    ConsumerGroups,
    GroupFacts,
    LogEnds,
    LogProbe,
    TopicFacts,
    TopicPartition,
)
from replicator.segment import OffsetRange, SourcePartition
from replicator.status.archive import extents
from replicator.store import SegmentStore
from replicator.topics import select


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPartition:
    source: SourcePartition
    ends: LogEnds
    committed: int | None
    archive_end: int | None
    open_since: datetime | None  # of the oldest open transaction, when there is one and its record could be read
    recorded_gaps: int
    problems: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """A transaction is open: nothing from `ends.stable` on can be archived yet."""
        return self.ends.stable < self.ends.high

    @property
    def lag(self) -> int:
        """Offsets in the log that are not archived for certain."""
        done = self.committed if self.committed is not None else self.archive_end
        return max(self.ends.high - max(self.ends.low if done is None else done, self.ends.low), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressStatus:
    group_id: str
    group: GroupFacts
    partitions: tuple[EgressPartition, ...]
    topics: Mapping[str, str]  # topic -> why none of it can be archived

    @property
    def problems(self) -> list[str]:
        found = [f"{topic}: {why}" for topic, why in self.topics.items()]
        found += [f"{p.source}: {problem}" for p in self.partitions for problem in p.problems]
        waiting = sum(p.lag for p in self.partitions)
        if waiting and not self.group.members:
            found.append(f"no egress process is in group {self.group_id}, and {waiting} offsets wait")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSources:
    """Where the answers come from."""

    region: str
    settings: EgressSettings
    own_topics: Collection[str]
    admin: ClusterAdmin
    groups: ConsumerGroups
    probe: LogProbe
    store: SegmentStore
    control: ControlStore

    def look(self, now: datetime, pool: Executor) -> EgressStatus:
        """Raises StoreUnavailable, BrokerUnavailable, TargetError."""
        group = pool.submit(self.groups.facts, self.settings.group_id)
        cluster_id = pool.submit(self.admin.cluster_id)
        gap_sources = pool.submit(self.control.gap_sources, self.region)
        topics = self.admin.describe(select(self.admin.topics(), self.settings.topics, self.own_topics))
        partitions = [TopicPartition(n, p) for n, f in topics.items() for p in range(f.partition_count)]
        committed = pool.submit(self.groups.committed, self.settings.group_id, partitions)
        claims = dict(zip(topics, pool.map(lambda name: self.control.place(self.region, name), topics), strict=True))
        later = self.control.places(self.region)
        lives = {name: life_of(facts, claims[name], later, cluster_id.result()) for name, facts in topics.items()}
        places = [(self.region, f"{name}@{life}" if life else name) for name, life in lives.items()]
        archived = extents(self.store, places, pool)
        with_gaps = gap_sources.result()
        gaps = dict(zip(with_gaps, pool.map(self.control.gap_ranges, with_gaps), strict=True))
        ends = self.probe.ends(partitions)
        since = self.probe.stamps({p: e.stable for p, e in ends.items() if e.stable < e.high})
        commits = committed.result()
        rows, held = [], {}
        for name, facts in topics.items():
            sources = [SourcePartition(self.region, name, p, lives[name]) for p in range(facts.partition_count)]
            if claims[name] is None and any(source in archived for source in sources):
                held[name] = (
                    "segments lie in its place of the archive, and no place object says of which life of the topic "
                    f"they are; if they are of the one that is there now: replicator adopt {name}"
                )
            for source in sources:
                partition = TopicPartition(name, source.partition)
                if partition in ends:
                    rows.append(
                        judged(
                            source,
                            topic_id=facts.topic_id,
                            ends=ends[partition],
                            committed=commits.get(partition),
                            archived=archived.get(source, Extent()),
                            gaps=gaps.get(source, ()),
                            open_since=since.get(partition),
                            now=now,
                            stuck_after=self.settings.stuck_transaction_after,
                        )
                    )
        return EgressStatus(group_id=self.settings.group_id, group=group.result(), partitions=tuple(rows), topics=held)


def life_of(facts: TopicFacts, plain: Place | None, places: Collection[str], cluster_id: str) -> str:
    """The incarnation under which the topic, as it is now, is filed; empty: the plain place, or none yet."""
    if plain is None or (facts.topic_id and plain.topic_id == facts.topic_id):
        return ""
    if facts.topic_id:
        return facts.topic_id
    lives = (life for topic, _, life in (p.partition("@") for p in places) if topic == facts.name)
    return newest_stand_in(lives, cluster_id)


def judged(
    source: SourcePartition,
    *,
    topic_id: str,
    ends: LogEnds,
    committed: Committed | None,
    archived: Extent,
    gaps: Sequence[OffsetRange],
    open_since: datetime | None,
    now: datetime,
    stuck_after: timedelta,
) -> EgressPartition:
    """With what is wrong, as far as it can be seen from outside. Pure."""
    note = read_note(committed) if committed else None
    if note and note.life and topic_id and note.life != topic_id:
        committed = note = None  # of a topic that had this name before
    at = committed.next_offset if committed else None
    problems = []
    if archived.next_offset is not None and archived.next_offset > ends.high:
        problems.append(f"the archive ends before {archived.next_offset}, but the topic at {ends.high}: truncated")
    if at is not None:
        begun_here = note is not None and note.begun_at == at  # nothing had to be archived yet
        known = joined([*archived.runs, *gaps])
        if at > ends.high:
            problems.append(f"the group committed {at}, but the topic ends at {ends.high}: truncated, or created again")
        elif not begun_here and at > ends.low and (known.next_offset is None or known.next_offset < at):
            end = "holds nothing" if known.next_offset is None else f"ends before {known.next_offset}"
            problems.append(f"the group committed {at}, but the archive {end}: another bucket, or objects were removed")
        elif at < ends.low and ((known.next_offset or 0) < ends.low or known.missing_at(at)):
            problems.append(
                f"the group committed {at}, but the topic now begins at {ends.low}: retention, or a deletion of "
                "records, overtook the egress"
            )
    if ends.stable < ends.high and open_since is not None and now - open_since > stuck_after:
        problems.append(
            f"a transaction has been open since {open_since.isoformat(timespec='seconds')} and holds everything from "
            f"{ends.stable} back: find its producer, or abort it (kafka-transactions.sh abort)"
        )
    return EgressPartition(
        source=source,
        ends=ends,
        committed=at,
        archive_end=archived.next_offset,
        open_since=open_since if ends.stable < ends.high else None,
        recorded_gaps=len(gaps),
        problems=tuple(problems),
    )
