"""The state of the archive of this region's topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from egress.start.commit_metadata import read_commit_metadata
from egress.topics.claims import unclaimed_segments
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import Extent, joined, uncovered
from formats.errors import MalformedEvent
from formats.forks import explain, unresolved
from formats.gap_acceptance import losses
from formats.log_point import LogPoint
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from formats.topic_selection import unmatched
from infra.archive.control import ControlStore
from infra.archive.proofs import Proof, ProofStore, read_each
from infra.archive.segments import SegmentStore
from infra.archive.source_reports import SourceReport, SourceReports
from infra.archive.watermark_history import WatermarkHistory
from infra.contracts.cluster import (
    ClusterAdmin,
    Committed,
    ConsumerGroups,
    GroupFacts,
    LogEnds,
    LogProbe,
    LogTruncated,
    TopicPartition,
    describe_each,
)
from infra.settings.field import dotted
from replicator.absent_topics import absent_from_cluster
from replicator.config import EgressSettings
from replicator.egress_topics import archived_as, egress_topics
from replicator.status.archive import archived as archived_partitions
from replicator.status.begins import RecordedBegins, SeenBegin, recorded_begins
from replicator.status.members import missing_members
from replicator.status.stalled import explained, silent, stalled

NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPartitionStatus:
    source: SourcePartition
    ends: LogEnds
    committed: int | None
    archive_end: int | None
    open_since: datetime | None  # of the oldest open transaction, if its first record could be read
    recorded_gaps: int
    losses: int = 0  # of them, those that an operator has to accept
    proof: Proof | None  # recorded by `verify`; None: none is recorded
    problems: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open: nothing from `ends.stable` on can be archived yet."""
        return self.ends.stable < self.ends.high

    @property
    def lag(self) -> int:
        """Offsets in the log that are not known to be archived."""
        return max(self.ends.high - self.next_offset, 0)

    @property
    def next_offset(self) -> int:
        """The first one in the log that is not known to be archived."""
        done = self.committed if self.committed is not None else self.archive_end
        return max(self.ends.low if done is None else done, self.ends.low)


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


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Of one partition. `recorded` is empty where `problem` says that one of them cannot be decoded."""

    recorded: Sequence[RecordedGap]
    offsets: tuple[OffsetRange, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Forks:
    """Of one partition. `waiting` for an operator; empty where `problem` says that one of them cannot be decoded."""

    waiting: Sequence[LogFork]
    problem: str = ""


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
        with_gaps = [source for source in here.values() if source in gap_sources.result()]
        seen = dict(zip(with_gaps, pool.map(self._gaps, with_gaps), strict=True))
        gaps = {source: one.offsets for source, one in seen.items()}
        ends = self.probe.ends(partitions)
        since = self.probe.timestamps({p: e.stable for p, e in ends.items() if e.stable < e.high})
        commits = committed.result()
        known_forks = {
            source: self._forks(source, seen.get(source, _Gaps((), ())), archived.get(source, Extent()))
            for source in fork_sources.result()
        }
        forks = {source: one.waiting for source, one in known_forks.items() if one.waiting}
        lost = {
            source: losses(one.recorded, forks.get(source, ()), archived.get(source, Extent()))
            for source, one in seen.items()
        }
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
            if as_archived[name].claim is None and any(source in archived for source in sources):
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
        rows = [
            replace(
                row,
                losses=len(lost.get(row.source, ())),
                problems=(
                    *row.problems,
                    *_gap_problems(row.source, seen, lost),
                    *_not_decoded(row.source, known_forks, begins),
                ),
            )
            for row in rows
        ]
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

    def _forks(self, source: SourcePartition, gaps: _Gaps, archived: Extent) -> _Forks:
        try:
            return _Forks(unresolved(self.control.forks.of(source), gaps.recorded, archived.runs))
        except MalformedEvent as error:  # of this partition alone
            return _Forks((), f"a fork of its log is recorded, and where is not known: {error}")

    def _gaps(self, source: SourcePartition) -> _Gaps:
        try:
            recorded = self.control.gaps.of(source)
        except MalformedEvent as error:  # of this partition alone; its key has the offsets
            problem = f"what is missing is not known: {error}"
            return _Gaps((), tuple(self.control.gaps.ranges(source)), problem)
        return _Gaps(recorded, tuple(gap.offsets for gap in recorded))

    def _again(self, source: SourcePartition) -> tuple[Extent, Sequence[OffsetRange]]:
        """List again, segments before gaps: a gap is recorded before its segments are removed."""
        found = joined(info.segment.offsets for info in self.store.list(source))
        return found, self.control.gaps.ranges(source)


def _gap_problems(
    source: SourcePartition,
    seen: Mapping[SourcePartition, _Gaps],
    lost: Mapping[SourcePartition, Sequence[OffsetRange]],
) -> Iterator[str]:
    if ranges := lost.get(source):
        yield explain_losses(source, ranges)
    if source in seen and seen[source].problem:
        yield seen[source].problem


def _not_decoded(
    source: SourcePartition, forks: Mapping[SourcePartition, _Forks], begins: RecordedBegins
) -> Iterator[str]:
    if source in forks and forks[source].problem:
        yield forks[source].problem
    if source in begins.problems:
        yield begins.problems[source]


def explain_losses(source: SourcePartition, lost: Sequence[OffsetRange]) -> str:
    """The problem of a partition with recorded gaps that are a loss: the first of them, and how to accept it."""
    first, more = lost[0], len(lost) - 1
    others = f" and {more} more gaps" if more > 1 else " and 1 more gap" if more else ""
    return (
        f"offsets {first}{others} were lost before they were archived: `replicator gaps` says why; once the users of "
        f"the topic know, `replicator gaps accept {source} {first.start}-{first.end} --reason TEXT --yes` accepts it"
    )


def _is_of(committed: Committed, incarnation_id: str, topic_id: str) -> bool:
    """Whether the commit is of this incarnation, not of an earlier topic of this name or of the archive path before a
    fork."""
    metadata = read_commit_metadata(committed)
    return metadata is None or not metadata.incarnation_id or not topic_id or metadata.incarnation_id == incarnation_id


def settled_below(committed: Committed | None, *, is_worked_on: bool) -> int | None:
    """The offset where segments that are being uploaded may begin: they are stored in any order, and committed in
    offset order. None: anywhere."""
    if committed is not None:
        return committed.next_offset
    return None if is_worked_on else NO_END


def _seen_begin(committed: Committed | None, archived: Extent, gaps: Sequence[OffsetRange]) -> SeenBegin:
    metadata = None if committed is None else read_commit_metadata(committed)
    return SeenBegin(joined([*archived.runs, *gaps]).start, None if metadata is None else metadata.begun_at)


def unrecorded_gaps(
    archived: Extent, gaps: Sequence[OffsetRange], settled: int, begin: int | None = None
) -> Sequence[OffsetRange]:
    """Offsets below `settled`, from the begin of the archive to its end, that are in no segment and no recorded gap.
    `begin`: the recorded one; None: it is that of the first segment."""
    if archived.start is None or archived.next_offset is None:
        return ()
    start = archived.start if begin is None else min(begin, archived.start)
    end = min(archived.next_offset, settled) - 1
    return uncovered([*archived.runs, *gaps], OffsetRange(start, end)) if start <= end else ()


def partition_status(
    source: SourcePartition,
    *,
    ends: LogEnds,
    committed: Committed | None,
    archived: Extent,
    gaps: Sequence[OffsetRange],
    forks: Sequence[LogFork] = (),
    truncated: LogTruncated | None = None,
    open_since: datetime | None,
    now: datetime,
    stuck_after: timedelta,
    settled: int | None = None,
    proof: Proof | None = None,
    begin: int | None = None,
) -> EgressPartitionStatus:
    """The status of a partition with the problems that are visible from outside. `forks` wait for an operator;
    `settled`: no upload below it is in flight; None: not known; `begin`: the recorded one of the archive, if it may be
    earlier than what is stored. Pure."""
    problems = [explain(fork) for fork in forks]
    if truncated is not None:
        point = truncated.point
        problems.append(
            f"the log has forked: it reached {point.next_offset} in leader epoch {point.leader_epoch}, which ends at "
            f"{truncated.end_offset} now; an egress process that owns this partition reports how to continue"
        )
    is_forked = bool(problems)
    problems += [
        f"offsets {gap} of the archive are in no segment, and no gap was recorded for them: restore the objects from "
        "a copy of the bucket"
        for gap in (unrecorded_gaps(archived, gaps, settled, begin) if settled is not None else ())
    ]
    if proof is not None and not proof.is_whole:
        problems.append(
            f"verify found it not whole at {proof.at.isoformat(timespec='seconds')}: repair what it names, and run it "
            "again"
        )
    if not is_forked:  # otherwise these are consequences of the fork
        problems += _of_offsets(ends, committed, archived, gaps)
    if ends.stable < ends.high and open_since is not None and now - open_since > stuck_after:
        problems.append(
            f"a transaction has been open since {open_since.isoformat(timespec='seconds')} and holds everything from "
            f"{ends.stable} back: find its producer, or abort it (kafka-transactions.sh abort)"
        )
    return EgressPartitionStatus(
        source=source,
        ends=ends,
        committed=committed.next_offset if committed else None,
        archive_end=archived.next_offset,
        open_since=open_since if ends.stable < ends.high else None,
        recorded_gaps=len(gaps),
        proof=proof,
        problems=tuple(problems),
    )


def _of_offsets(
    ends: LogEnds, committed: Committed | None, archived: Extent, gaps: Sequence[OffsetRange]
) -> Iterator[str]:
    if archived.next_offset is not None and archived.next_offset > ends.high:
        yield f"the archive ends before {archived.next_offset}, but the topic at {ends.high}: truncated"
    if committed is None:
        return
    at, metadata = committed.next_offset, read_commit_metadata(committed)
    begun_here = metadata is not None and metadata.begun_at == at  # nothing was archived before this position
    known = joined([*archived.runs, *gaps])
    # a commit with metadata is of egress, which stores first: it was archived, even if Kafka has removed it since
    was_archived = at > ends.low or metadata is not None
    if at > ends.high:
        yield f"the group committed {at}, but the topic ends at {ends.high}: truncated, or created again"
    elif not begun_here and was_archived and (known.next_offset is None or known.next_offset < at):
        end = "holds nothing" if known.next_offset is None else f"ends before {known.next_offset}"
        yield f"the group committed {at}, but the archive {end}: another bucket, or objects were removed"
    elif at < ends.low and ((known.next_offset or 0) < ends.low or known.missing_at(at)):
        yield (
            f"the group committed {at}, but the topic now begins at {ends.low}: retention, or a deletion of "
            "records, overtook the egress"
        )
