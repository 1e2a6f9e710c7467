"""The state of the archive of this region's topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime

from egress.start.commit_metadata import read_commit_metadata
from egress.topics.claims import unclaimed_segments
from formats.coverage import Extent, joined
from formats.log_point import LogPoint
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from formats.topic_selection import unmatched
from infra.archive.control import ControlStore
from infra.archive.proofs import ProofStore, read_each
from infra.archive.segments import SegmentStore
from infra.archive.source_reports import SourceReport, SourceReports
from infra.archive.watermark_history import WatermarkHistory
from infra.contracts.cluster import (
    ClusterAdmin,
    Committed,
    ConsumerGroups,
    GroupFacts,
    LogProbe,
    TopicPartition,
    describe_each,
)
from infra.settings.field import dotted
from replicator.absent_topics import absent_from_cluster
from replicator.config import EgressSettings
from replicator.egress_topics import archived_as, egress_topics
from replicator.status.archive import archived as archived_partitions
from replicator.status.begins import RecordedBegins, SeenBegin, recorded_begins
from replicator.status.egress_partition import (
    EgressPartitionStatus,
    partition_status,
    settled_below,
    unrecorded_gaps,
)
from replicator.status.members import missing_members
from replicator.status.recorded import RecordedPartition, RecordReader
from replicator.status.stalled import explained, silent, stalled


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressStatus:
    group_id: str
    group: GroupFacts
    partitions: tuple[EgressPartitionStatus, ...]
    topics: Mapping[str, str]  # topic -> why it cannot be archived
    newest: tuple[SegmentInfo, ...] = ()  # the last stored segment of each partition
    absent: tuple[str, ...] = ()  # of each rule with the name of a topic that does not exist: what to do
    unproven: tuple[str, ...] = ()  # of each archive path whose proofs cannot be decoded: what to do
    silent: str = ""  # the problem that egress reports nothing of itself any more

    @property
    def problems(self) -> list[str]:
        found = [*self.absent, *self.unproven, *(f"{topic}: {why}" for topic, why in self.topics.items())]
        found += [f"{p.source}: {problem}" for p in self.partitions for problem in p.problems]
        if missing := missing_members("egress", self.group_id, self.group, sum(p.lag for p in self.partitions)):
            found.append(missing)
        return [*found, self.silent] if self.silent else found


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSources:
    """What the state is read from."""

    region: str
    settings: EgressSettings
    own_topics: Collection[str]
    admin: ClusterAdmin
    cluster_id: str  # of this cluster
    groups: ConsumerGroups
    probe: LogProbe
    store: SegmentStore
    control: ControlStore
    proofs: ProofStore

    def read(self, now: datetime, pool: Executor) -> EgressStatus:
        """Read the state: one request for each recorded gap, and those of `recorded_begins`, beside others. Raises
        StoreUnavailable, BrokerUnavailable, TargetError, MalformedEvent (of a claim)."""
        group = pool.submit(self.groups.facts, self.settings.group_id)
        gap_sources = pool.submit(lambda: frozenset(self.control.gaps.sources(self.region)))
        fork_sources = pool.submit(self.control.forks.sources, self.region)
        claimed = self.control.claims.paths(self.region)
        listed = self.admin.topics()
        selected = egress_topics(listed, claimed, self.settings, self.own_topics)
        topics, refused = describe_each(self.admin, selected)
        partitions = [partition for facts in topics.values() for partition in facts.partitions]
        # awaited first: if access to the group is denied, the client retries its offsets until timeout, without a
        # reason
        members = group.result().members
        committed = pool.submit(self.groups.committed, self.settings.group_id, partitions)
        as_archived = archived_as(
            self.control.claims,
            self.region,
            topics.values(),
            cluster_id=self.cluster_id,
            claimed=claimed,
            pool=pool,
        )
        incarnations = {name: one.incarnation for name, one in as_archived.items()}
        paths = [(self.region, incarnation.path) for incarnation in incarnations.values()]
        proven = read_each(self.proofs, paths, pool)
        stored = archived_partitions(self.store, paths, {}, pool)
        archived = {source: found.extent for source, found in stored.items()}
        here = {
            TopicPartition(name, p): SourcePartition.of(self.region, incarnations[name], p)
            for name, facts in topics.items()
            for p in range(facts.partition_count)
        }
        records = RecordReader(self.control, gap_sources.result(), fork_sources.result())
        recorded = records.read(here.values(), archived, pool)
        gaps = {source: one.gaps for source, one in recorded.items()}
        forks = {source: one.forks for source, one in recorded.items() if one.forks}
        ends = self.probe.ends(partitions)
        since = self.probe.timestamps({p: e.stable for p, e in ends.items() if e.stable < e.high})
        commits = committed.result()
        names = {name: incarnations[name].id or facts.topic_id for name, facts in topics.items()}
        commits = {p: c for p, c in commits.items() if _is_of(c, names[p.topic], topics[p.topic].topic_id)}
        truncated = self.probe.truncated(
            {
                p: LogPoint(c.next_offset, c.leader_epoch)
                for p, c in commits.items()
                if c.leader_epoch is not None and here[p] not in forks
            }
        )
        begins = recorded_begins(
            self.control.begins,
            {
                source: _seen_begin(commits.get(p), archived.get(source, Extent()), gaps.get(source, ()))
                for p, source in here.items()
                if p in commits or source in archived
            },
            pool,
        )
        rows: list[EgressPartitionStatus] = []
        topic_problems = {topic: f"{error}: allow READ, which includes it" for topic, error in refused.items()}
        for name, facts in topics.items():
            sources = [SourcePartition.of(self.region, incarnations[name], p) for p in range(facts.partition_count)]
            is_unclaimed = as_archived[name].claim is None and not incarnations[name].id
            if is_unclaimed and any(source in archived for source in sources):
                topic_problems[name] = unclaimed_segments(facts)
            for source in sources:
                partition = TopicPartition(name, source.partition)
                if partition not in ends:
                    continue
                commit = commits.get(partition)
                settled = settled_below(commit, is_worked_on=members > 0)
                extent = archived.get(source, Extent())
                known: Sequence[OffsetRange] = gaps.get(source, ())
                if settled is not None and unrecorded_gaps(extent, known, settled, begins.offsets.get(source)):
                    extent, known = self._again(source)  # merged or removed by retention since the listing?
                rows.append(
                    partition_status(
                        source,
                        ends=ends[partition],
                        committed=commit,
                        archived=extent,
                        gaps=known,
                        forks=forks.get(source, ()),
                        truncated=truncated.get(partition),
                        open_since=since.get(partition),
                        now=now,
                        stuck_after=self.settings.stuck_transaction_after,
                        settled=settled,
                        proof=proven.proofs.get(source),
                        begin=begins.offsets.get(source),
                    )
                )
        newest = {source: found.newest for source, found in stored.items() if found.newest is not None}
        behind = {
            row.source: (row.next_offset, selected[row.source.topic].max_segment_age)
            for row in rows
            if members and not row.problems and row.next_offset < row.ends.stable
        }
        report = (
            self._report() if members and any(row.next_offset < row.ends.stable for row in rows) else SourceReport()
        )
        still = stalled(
            WatermarkHistory(self.control.objects, self.control.prefix, self.region), report, behind, newest, now
        )
        rows = [replace(row, problems=(explained(still[row.source]),)) if row.source in still else row for row in rows]
        rows = [_with_records(row, recorded.get(row.source, RecordedPartition()), begins) for row in rows]
        return EgressStatus(
            group_id=self.settings.group_id,
            group=group.result(),
            partitions=tuple(rows),
            topics=topic_problems,
            newest=tuple(newest.values()),
            unproven=proven.problems,
            absent=tuple(self._absent(selected, listed, {*topics, *refused})),
            silent=silent(
                report,
                now,
                heartbeat_interval=self.settings.heartbeat_interval,
                watermark_interval=self.settings.watermark_interval,
            ),
        )

    def _report(self) -> SourceReport:
        return SourceReports(self.control.objects, self.control.prefix).refresh([self.region])[self.region]

    def _absent(self, selected: Collection[str], listed: Iterable[str], existing: Collection[str]) -> Iterator[str]:
        """The problem of each rule with a name that none of the `existing` topics has: most likely it is mistyped, and
        the topic that was meant is not archived. `selected`: names, without those that are excluded."""
        for rule in unmatched(self.settings.topics, existing):
            if (name := rule.pattern.text) in selected:
                what = absent_from_cluster(name, listed)
                yield f"{dotted(['egress', 'topics', name])}: {what}: correct the name, or create the topic"

    def _again(self, source: SourcePartition) -> tuple[Extent, Sequence[OffsetRange]]:
        """List again, segments before gaps: a gap is recorded before its segments are removed."""
        found = joined(info.segment.offsets for info in self.store.list(source))
        return found, self.control.gaps.ranges(source)


def _with_records(
    row: EgressPartitionStatus, recorded: RecordedPartition, begins: RecordedBegins
) -> EgressPartitionStatus:
    undecoded = [begins.problems[row.source]] if row.source in begins.problems else []
    return replace(row, losses=len(recorded.losses), problems=(*row.problems, *recorded.problems, *undecoded))


def _is_of(committed: Committed, incarnation_id: str, topic_id: str) -> bool:
    """Whether the commit is of this incarnation, not of an earlier topic of this name or of the archive path before a
    fork."""
    metadata = read_commit_metadata(committed)
    return metadata is None or not metadata.incarnation_id or not topic_id or metadata.incarnation_id == incarnation_id


def _seen_begin(committed: Committed | None, archived: Extent, gaps: Sequence[OffsetRange]) -> SeenBegin:
    metadata = None if committed is None else read_commit_metadata(committed)
    return SeenBegin(joined([*archived.runs, *gaps]).start, None if metadata is None else metadata.begun_at)
