"""Decides where the reading of a partition begins, from what the group, the source and the archive say."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup
from egress.start.choice import Rules, Start, StartFacts, added_later, choose_start, on_the_same_log, read_last_again
from egress.start.commit_metadata import read_commit_metadata
from egress.start.known_facts import KnownFacts
from egress.start.query import StartAt, StartQuery
from egress.topics.claims import Blocked, ClaimedTopic
from egress.topics.log_identity import ForkEvidence, from_lost_end, from_truncation
from formats.control.archive_begin import ArchiveBegin
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import covered_until, end_of
from formats.errors import DataError
from formats.forks import accepted_until, agreed_point
from formats.log_point import LogPoint
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import ClusterAdmin, Watermarks
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Runs on a pool, and may block: it reads footers. Records gaps, forks and the begins of archives, all of which may
    be repeated. Raises what its parts raise."""

    region: str
    admin: ClusterAdmin
    archive: ArchiveLookup
    control: ControlStore
    clock: Clock
    accept_missing_archive: bool

    def answer(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> StartAt | Blocked:
        """The answer for one partition. Unreadable control objects block this partition only; they must not be taken
        for absent ones."""
        source = self._source(query, topic)
        sources = [source] if topic.before is None else [source, self._source(query, topic.before)]
        try:
            unreadable = [why for s in sources if (why := known.archived[s].unreadable)]
            if not unreadable:
                return self._answer(query, topic, known)
        except DataError as error:
            unreadable = [str(error)]
        return Blocked(f"{source}: {unreadable[0]}. Restore that object of the archive, below _control/v1/")

    def _answer(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> StartAt | Blocked:
        if query.partition not in known.marks:
            return Blocked(f"{query.partition} is not in the cluster any more")
        source = self._source(query, topic)
        here = known.archived[source]
        if query.contested and self.archive.has_all(query.contested) and not self._are_repaired(query):
            return Blocked(query.contest)  # continuing after them would accept them unchecked
        found_now = query.evidence if query.forked == source else None
        # the deepest loss first: it contests all that the others contest, and one of those may be accepted by now
        evidence = (self._deeper_loss(query, topic, known), found_now, self._lost_end(query, topic, known))
        now = self.clock.now()
        forks = (None if one is None else one.fork(source, here.stored, now) for one in evidence)
        fork = next((one for one in forks if one is not None), None)
        if fork is not None:
            known = self._forked(fork, here, known)
        start = self._start(query, topic, known)
        if fork is None and not here.is_whole and (isinstance(start, Blocked) or start.lost):
            # something seems to be missing, which only the whole archive can confirm
            return self._answer(query, topic, known.with_(source, self.archive.whole(source, here)))
        if isinstance(start, Blocked):
            return start
        if query.partition in known.agreed and query.partition not in known.checked:
            return Blocked(
                f"{source}: the fork of its log was accepted, and the brokers do not say whether the log has lost more "
                "since. They are asked again"
            )
        if not here.has_begin:
            # recorded before anything is stored or committed: the only copy of it once the group's offsets expire
            begin = ArchiveBegin(offset=start.metadata.begun_at, reason=start.why, recorded_at=self.clock.now())
            recorded = self.control.begins.record(source, begin)
            if recorded.offset != begin.offset:  # another process was faster, and may have stored segments by now
                here = replace(here, has_begin=True, is_begin_lowered=True)
                return self._answer(query, topic, known.with_(source, self.archive.whole(source, here)))
        for offsets in start.lost:
            self._record(source, offsets, start, known.marks[query.partition])
        return StartAt(topic, source, start, tuple(self.archive.beyond(source, here, start.next_offset)))

    def _are_repaired(self, query: StartQuery) -> bool:
        """Whether the contested segments were damaged, and are not any more: they are compared again then."""
        return query.are_damaged and self.archive.are_sound(query.contested)

    def agreed(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> LogPoint | None:
        """The point that the brokers have to confirm for a log whose fork was accepted: the archive up to the fork has
        no point that says anything about this log, and the log may lose more while the operator decides or just after.
        The consumer cannot check it, since it takes a record between the point and its start for a fork."""
        here, marks = known.archived[self._source(query, topic)], known.marks.get(query.partition)
        committed = known.commit(query.partition, topic)
        if topic.before is not None and committed is None and not (here.stored or here.forks):
            return self.agreed(query, topic.before, known)  # the path before is all that says anything about the log
        point = agreed_point(here.forks, here.details)
        if point is None or marks is None or marks.low > point.next_offset:
            return None  # also when retention removed the records that could be of another log
        if committed is not None and committed.next_offset > accepted_until(here.forks, here.details):
            return None  # segments archived after the fork are of the new log, and say more
        return point

    def _deeper_loss(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> ForkEvidence | None:
        """Evidence that a log whose fork was accepted has lost more."""
        truncated = known.checked.get(query.partition)
        committed = known.commit(query.partition, topic)
        return None if truncated is None else from_truncation(truncated, committed.next_offset if committed else 0)

    def _lost_end(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> ForkEvidence | None:
        """Evidence that a log has lost its end, for a partition whose last segments were stored but not committed: the
        group does not know their leader epoch, and the next record may come much later."""
        here, marks = known.archived[self._source(query, topic)], known.marks[query.partition]
        committed = known.commit(query.partition, topic)
        end = end_of(here.stored)
        if committed is None or committed.next_offset > marks.high or end <= marks.high or here.waiting:
            return None
        if end <= accepted_until(here.forks, here.details):
            return None  # these segments are of the log before the accepted fork
        return from_lost_end(end, marks.high, committed.next_offset)

    def _start(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> Start | Blocked:
        """The start in the archive path of `topic`. May read the begin of its archive, and its last footer."""
        partition, source = query.partition, self._source(query, topic)
        here, marks = known.archived[source], known.marks[partition]
        committed = known.commit(partition, topic)
        metadata = None if committed is None else read_commit_metadata(committed)
        begun = None if metadata is None else metadata.begun_at
        if begun is None and here.has_begin:
            recorded = self.control.begins.of(source) if here.is_begin_lowered else self.control.begins.first_of(source)
            begun = None if recorded is None else recorded.offset
        if begun is None and topic.before is not None:
            after_fork = self._begin_after_fork(query, topic.before, known)
            if isinstance(after_fork, Blocked):
                return after_fork
            begun = after_fork
        there = None if topic.before is None else known.archived[self._source(query, topic.before)]
        is_new = committed is None and begun is None and not here.stored and not here.gaps
        facts = StartFacts(
            committed=committed,
            archived=here.stored,
            recorded=here.gaps,
            marks=marks,
            policy_offset=self._policy_offset(query, topic, known) if is_new else marks.low,
            partition_count=topic.facts.partition_count,
            incarnation_id=topic.name,
            begun=begun,
            forks=here.forks,
            gaps=here.details,
            accepted_before=-1 if there is None else accepted_until(there.forks, there.details),
        )
        rules = Rules(accept_missing_archive=self.accept_missing_archive, record_gaps=query.settings.on_gap == "record")
        start = choose_start(facts, rules)
        if isinstance(start, Blocked):
            return start
        has_epoch = committed is not None and committed.leader_epoch is not None
        last = None if has_epoch else self.archive.last_record(source, here, start.next_offset)
        if isinstance(last, Blocked):
            return last
        start = read_last_again(start, last, facts)
        point: LogPoint | Blocked | None = None if last is None else last.point
        if committed is not None and committed.leader_epoch is not None:
            point = LogPoint(committed.next_offset, committed.leader_epoch)
        elif topic.before is not None and not here.stored:
            point = self._fork_point(query, start, topic.before, known)
        return point if isinstance(point, Blocked) else on_the_same_log(start, point, facts)

    def _fork_point(
        self, query: StartQuery, start: Start, before: ClaimedTopic, known: KnownFacts
    ) -> LogPoint | Blocked | None:
        """The point of the log that the archive path before the fork, or its last commit, knows at `start`, where the
        next one begins. None when what that path holds there is of the log before a fork."""
        source = self._source(query, before)
        there, committed = known.archived[source], known.commit(query.partition, before)
        if any(fork.contested.start < start.next_offset for fork in there.waiting):
            return None  # retention took what the new log held between the fork and here
        for fork in there.waiting:
            if fork.end_offset == start.next_offset and fork.leader_epoch is not None:
                return LogPoint(fork.end_offset, fork.leader_epoch)
        old_until = accepted_until(there.forks, there.details)
        is_here = committed is not None and old_until < committed.next_offset == start.next_offset
        if committed is not None and committed.leader_epoch is not None and is_here:
            return LogPoint(committed.next_offset, committed.leader_epoch)
        last = self.archive.last_record(source, there, start.next_offset) if old_until < start.next_offset else None
        if isinstance(last, Blocked):
            return last
        if last is not None and last.offset >= old_until:
            return last.point
        # the point that was checked already: if the log has lost more since the fork was accepted, its reader finds it
        has_lost_more = known.checked.get(query.partition) is not None
        return known.agreed[query.partition] if has_lost_more else None

    def _begin_after_fork(self, query: StartQuery, before: ClaimedTopic, known: KnownFacts) -> int | Blocked | None:
        """Where the archive below the path after a fork begins: where the logs differ, and for a partition whose log
        did not fork, after the last offset archived below the path `before`. So the two paths hold everything, and
        nothing twice. None for a partition that the path before never had, because it was added since."""
        there = known.archived[self._source(query, before)]
        if there.is_unknown and known.commit(query.partition, before) is None:
            return None  # the start policy is for a topic's first path: here it would skip what was written since
        if there.waiting:
            return min(fork.contested.start for fork in there.waiting)
        start = self._start(query, before, known)
        # a commit may still be in flight, and segments stored there must not be stored here as well
        if isinstance(start, Blocked):
            return start
        if start.lost:
            return min(offsets.start for offsets in start.lost)  # so that the gap is recorded below this path
        beyond = self.archive.beyond(self._source(query, before), there, start.next_offset)
        return covered_until(beyond, start.next_offset)

    def _forked(self, fork: LogFork, here: ArchivedSegments, known: KnownFacts) -> KnownFacts:
        """Record the fork, and return `known` with it, even if an earlier fork is already recorded at that offset."""
        # recorded before the partition stops: the next owner finds it, however long the log is by then
        self.control.forks.record(fork)
        if all(one.contested != fork.contested for one in here.forks):  # else it was found by an earlier lookup
            log.error(
                "log_forked",
                extra={
                    log_fields.REGION: fork.source.region,
                    log_fields.TOPIC: fork.source.path,
                    log_fields.PARTITION: fork.source.partition,
                    log_fields.OFFSET: fork.next_offset,
                    log_fields.LEADER_EPOCH: fork.leader_epoch,
                    log_fields.END: fork.end_offset,
                    log_fields.REASON: fork.evidence,
                },
            )
        details = here.details or self.control.gaps.of(fork.source)
        return known.with_(fork.source, replace(here, forks=(*here.forks, fork), details=details))

    def _record(self, source: SourcePartition, offsets: OffsetRange, start: Start, marks: Watermarks) -> None:
        gap = RecordedGap(
            source=source,
            offsets=offsets,
            reason=f"{start.why}: the source's log began at {marks.low} (retention, or a deletion of records)",
            low=marks.low,
            high=marks.high,
            recorded_at=self.clock.now(),
        )
        # recorded before it is skipped, so that a crash before the next segment leaves an explained gap
        with durable(Step.RECORD_GAP):
            self.control.gaps.record(gap)
        log.warning(
            "gap_recorded",
            extra={
                log_fields.REGION: source.region,
                log_fields.TOPIC: source.path,
                log_fields.PARTITION: source.partition,
                log_fields.START: offsets.start,
                log_fields.END: offsets.end,
                log_fields.REASON: gap.reason,
            },
        )

    def _policy_offset(self, query: StartQuery, topic: ClaimedTopic, known: KnownFacts) -> int:
        """The start policy's offset. Partitions that appeared after their topic was first archived, and later
        incarnations of a topic, are read from their log start whatever the policy, so that records written before they
        were noticed are not lost."""
        start, partition, marks = query.settings.start, query.partition.partition, known.marks[query.partition]
        if start == "earliest" or query.appeared or not topic.is_first or added_later(partition, known.commits(topic)):
            return marks.low
        if start == "latest":
            return marks.high
        return self.admin.offsets_at([query.partition], start).get(query.partition, marks.low)

    def _source(self, query: StartQuery, topic: ClaimedTopic) -> SourcePartition:
        return topic.source(self.region, query.partition.partition)
