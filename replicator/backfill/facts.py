"""Looks up what source, group and archive know of partitions that are to be filled. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from sys import maxsize

from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup
from egress.start.choice import LastRecord, is_of
from egress.start.commit_metadata import read_commit_metadata
from egress.start.log_lookup import check_points
from egress.topics.claims import unclaimed_segments
from formats.errors import DataError
from formats.forks import explain, unresolved
from formats.incarnation import Incarnation, current
from formats.log_point import LogPoint
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.archive.forward_listing import covered
from infra.contracts.cluster import (
    ClusterAdmin,
    Committed,
    ConsumerGroups,
    LogEnds,
    LogProbe,
    TopicFacts,
    TopicPartition,
)
from replicator.backfill.plan import PartitionFacts

# Reasons of the begins that a backfill records.
FIRST = "backfill before egress"  # of an archive that egress has not begun
EARLIER = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicArchive:
    """A topic of the cluster, and where it is archived."""

    facts: TopicFacts
    incarnation: Incarnation
    is_first: bool  # the incarnation has the plain path
    refused: str = ""  # why nothing may be written there

    @property
    def name(self) -> str:
        """The incarnation's id in the metadata of commits."""
        return self.incarnation.id or self.facts.topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFinder:
    """Raises what its parts raise."""

    region: str
    group_id: str  # of egress
    admin: ClusterAdmin
    groups: ConsumerGroups
    probe: LogProbe
    archive: Archive
    is_committed_only: bool = True  # what is read: up to the last stable offset

    def topics(self, names: Collection[str]) -> Mapping[str, TopicArchive]:
        """Topics of the cluster, with the path that egress archives each in, or would claim for it."""
        cluster_id, control = self.admin.cluster_id(), self.archive.control
        claimed = control.claims.paths(self.region)
        found = {}
        for name, facts in self.admin.describe(names).items():
            claim = control.claims.of(self.region, name)
            incarnation = current(
                name,
                facts.topic_id,
                cluster_id,
                first_id=None if claim is None else claim.topic_id,
                claimed=claimed,
            )
            refused = ""
            if claim is None and not incarnation.id and control.claims.has_objects(self.region, name):
                refused = unclaimed_segments(facts)
            elif incarnation.fork:
                refused = (
                    f"its log forked, and {incarnation.path} begins where the logs differ: what is before is of the "
                    "path before"
                )
            found[name] = TopicArchive(
                facts=facts, incarnation=incarnation, is_first=not incarnation.id, refused=refused
            )
        return found

    def partitions(
        self, topics: Mapping[SourcePartition, TopicArchive], pool: Executor
    ) -> Mapping[SourcePartition, PartitionFacts]:
        """Partitions that the cluster does not have are left out."""
        wanted = {TopicPartition(source.topic, source.partition): source for source in topics}
        commits = self.groups.committed(self.group_id, list(wanted))
        ends = self.probe.ends(list(wanted))  # after the commits, so that none lies behind the end of its log
        known = [(p, s) for p, s in wanted.items() if p in ends]
        commits = {p: c for p, c in commits.items() if is_of(c, (t := topics[wanted[p]]).name, is_first=t.is_first)}
        found = pool.map(lambda pair: self._one(pair[1], topics[pair[1]], commits.get(pair[0]), ends[pair[0]]), known)
        facts = {partition: one for (partition, _), one in zip(known, found, strict=True)}
        return {one.source: one for one in self._on_the_same_log(facts, commits, ends, pool)}

    def _on_the_same_log(
        self,
        facts: Mapping[TopicPartition, PartitionFacts],
        commits: Mapping[TopicPartition, Committed],
        ends: Mapping[TopicPartition, LogEnds],
        pool: Executor,
    ) -> Iterator[PartitionFacts]:
        """Refuses partitions whose log does not have the last that is archived: only then all before it is of the same
        log, too."""
        asked = [partition for partition, one in facts.items() if not one.refused]
        answers = pool.map(lambda p: self.archived_point(facts[p], commits.get(p)), asked)
        points = dict(zip(asked, answers, strict=True))
        known = {p: point for p, point in points.items() if isinstance(point, LogPoint)}
        checked = check_points(self.probe, known)
        for partition, one in facts.items():
            point, committed, problem = points.get(partition), commits.get(partition), ""
            if isinstance(point, str):
                problem = point
            elif point is not None and partition not in checked:
                problem = "the brokers do not say whether its log is the one that is archived: try again"
            elif (truncated := checked.get(partition)) is not None:
                problem = f"its log is not the one that is archived: {truncated.reason}. `replicator status` says more"
            elif committed is not None and not one.refused and ends[partition].high < committed.next_offset:
                problem = f"egress has committed {committed.next_offset}, and its log ends at {ends[partition].high}"
            yield replace(one, refused=problem) if problem else one

    def archived_point(self, facts: PartitionFacts, committed: Committed | None) -> LogPoint | str | None:
        """A point of the log that is archived: that of egress's commit, else that after the last archived record. None
        when none is known; a text when it cannot be read."""
        if committed is not None and committed.leader_epoch is not None:
            return LogPoint(committed.next_offset, committed.leader_epoch)
        if not facts.covered:
            return None
        end = max(one.next_offset for one in facts.covered)
        lookup = ArchiveLookup(self.archive)
        last = lookup.last_record(facts.source, ArchivedSegments(known_from=maxsize), end)
        if last is None:
            return None
        return last.point if isinstance(last, LastRecord) else last.reason

    def _one(
        self, source: SourcePartition, topic: TopicArchive, committed: Committed | None, ends: LogEnds
    ) -> PartitionFacts:
        control = self.archive.control
        refused = topic.refused
        try:
            recorded, begin = control.gaps.ranges(source), control.begins.of(source)  # gaps before the segments
            first, forks = control.begins.first_of(source), control.forks.of(source)
        except DataError as error:
            recorded, begin, first, forks = (), None, None, ()
            refused = refused or f"{error}. Restore that object of the archive"
        runs = covered(self.archive.segments, source).runs
        waiting = unresolved(forks, control.gaps.of(source) if forks else (), runs)
        if waiting and not refused:
            refused = explain(waiting[0])
        return PartitionFacts(
            source=source,
            low=ends.low,
            stable=ends.stable if self.is_committed_only else ends.high,
            begin=_begin(None if begin is None else begin.offset, committed, runs[0].start if runs else None),
            committed=None if committed is None else committed.next_offset,
            is_begun=committed is not None or (bool(runs) if first is None else first.reason != FIRST),
            covered=runs,
            recorded=tuple(recorded),
            refused=refused,
        )


def _begin(recorded: int | None, committed: Committed | None, first_stored: int | None) -> int | None:
    """Where the archive begins: as recorded, else as the commits of egress say, else with its first segment."""
    if recorded is not None:
        return recorded
    metadata = None if committed is None else read_commit_metadata(committed)
    return metadata.begun_at if metadata is not None else first_stored
