"""Finds where reading begins for newly assigned partitions, from the group, the source and the archive. May block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from egress.settings import EgressTopicSettings
from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup, Recorded
from egress.start.choice import (
    Rules,
    Start,
    StartFacts,
    added_later,
    choose_start,
    is_of,
    on_the_same_log,
    read_last_again,
)
from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from egress.start.log_lookup import OneByOne, check_points, marks_of
from egress.start.lookup_steps import LookupStep, Next, run_steps
from egress.topics.claims import Blocked, ClaimedTopic, TopicClaims, another_cluster
from egress.topics.log_identity import ForkEvidence, from_lost_end, from_truncation
from formats.control.archive_begin import ArchiveBegin
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import covered_until, end_of
from formats.errors import DataError, ReplicatorError
from formats.forks import accepted_until, agreed_point
from formats.log_point import LogPoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import (
    ClusterAdmin,
    Committed,
    LogProbe,
    LogTruncated,
    TopicFacts,
    TopicPartition,
    Watermarks,
    describe_each,
)
from infra.contracts.consumer import SourceConsumer
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Asks where reading one partition begins, with what is known of its topic."""

    partition: TopicPartition
    settings: EgressTopicSettings
    appeared: bool  # its topic was created while this process ran: everything in it is new
    contested: Collection[Segment] = ()  # stored segments that differ from what was read
    contest: str = ""  # how they differ
    forked: SourcePartition | None = None  # whose log `evidence` is about: the topic may be another one by now
    evidence: ForkEvidence | None = None  # that its log has forked, found just now


@dataclass(frozen=True, slots=True)
class StartAt:
    """Read this partition of this incarnation from `start`. The ranges that `start` lists as lost, and the begin of the
    archive, are recorded already."""

    topic: ClaimedTopic
    source: SourcePartition
    start: Start
    beyond: tuple[Segment, ...] = ()  # stored already, after `start`: what is read again has to agree with them


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store, or a broker, does not answer for now: a leader is usually elected within seconds."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Known:
    """The answers of the group, the source and the archive, for all partitions whose watermarks were asked at once."""

    committed: Mapping[TopicPartition, Committed]
    archived: Mapping[SourcePartition, ArchivedSegments]
    marks: Mapping[TopicPartition, Watermarks]
    # points before accepted forks; only where nothing newer is archived
    agreed: Mapping[TopicPartition, LogPoint] = field(default_factory=dict)
    # how the log compares to those points now; absent: no answer
    checked: Mapping[TopicPartition, LogTruncated | None] = field(default_factory=dict)

    def with_(self, source: SourcePartition, archived: ArchivedSegments) -> _Known:
        return replace(self, archived={**self.archived, source: archived})

    def commits(self, topic: ClaimedTopic) -> list[CommitMetadata]:
        """The metadata of the commits of all partitions of the topic."""
        of_topic = (c for p, c in self.committed.items() if p.topic == topic.facts.name)
        return [n for c in of_topic if _commit_of(c, topic) and (n := read_commit_metadata(c))]


StartAnswer = StartAt | Blocked | Unknown
Answered = Callable[[TopicPartition, StartAnswer], None]


@dataclass(frozen=True, slots=True)
class _Found:
    """A query, with what the archive holds of its partition, in each path of its topic."""

    query: StartQuery
    topic: ClaimedTopic
    archived: Mapping[SourcePartition, ArchivedSegments]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What all queries of one call share."""

    cluster_id: str
    claimed: frozenset[str]
    committed: Mapping[TopicPartition, Committed]
    recorded: Recorded
    patience: OneByOne
    answered: Answered

    def fails(self, queries: Collection[StartQuery]) -> Callable[[ReplicatorError], None]:
        return lambda error: _answer_all(queries, Unknown(str(error)), self.answered)


@dataclass(frozen=True, slots=True)
class StartResolver:
    """Runs on a pool. Raises what its parts raise. Claims archive paths, and records gaps, forks and the begins of
    archives; all of these may be repeated."""

    region: str
    cluster_id: str  # of the cluster at the start of this process
    consumer: SourceConsumer
    admin: ClusterAdmin
    probe: LogProbe
    archive: ArchiveLookup
    control: ControlStore
    claims: TopicClaims
    clock: Clock
    accept_missing_archive: bool

    def resolve(self, queries: Collection[StartQuery], pool: Executor, answered: Answered) -> None:
        """Answer every query once. `answered` is called on any thread, as soon as an answer is known: an archive that
        answers late, or fails, for one partition holds up no other. After an exception, the queries without an answer
        get none. `pool` looks partitions up in parallel; it must not be the pool that this runs on."""
        by_topic: dict[str, list[StartQuery]] = {}
        for query in queries:
            by_topic.setdefault(query.partition.topic, []).append(query)
        cluster_id = self.admin.cluster_id()
        if cluster_id != self.cluster_id:
            _answer_all(queries, Blocked(another_cluster(cluster_id, self.cluster_id)), answered)
            return
        facts, refused = describe_each(self.admin, by_topic)
        for topic in by_topic.keys() - facts.keys():
            error = refused.get(topic)
            why = f"{topic} is not in the cluster any more" if error is None else str(error)
            _answer_all(by_topic[topic], Blocked(why), answered)
        claimed = self.claims.claimed()
        everything = [TopicPartition(f.name, p) for f in facts.values() for p in range(f.partition_count)]
        shared = _Shared(
            cluster_id=cluster_id,
            claimed=claimed,
            committed=self.consumer.committed(everything),
            recorded=self.archive.recorded(self.region, len(facts), pool),
            patience=OneByOne(),
            answered=answered,
        )
        steps = [self._topic_step(one, by_topic[one.name], shared) for one in facts.values()]
        run_steps(steps, pool, lambda found: self._ask(found, pool, shared))

    def _topic_step(self, facts: TopicFacts, queries: Sequence[StartQuery], shared: _Shared) -> LookupStep[_Found]:
        return LookupStep(lambda: self._of_topic(facts, queries, shared), shared.fails(queries))

    def _of_topic(self, facts: TopicFacts, queries: Sequence[StartQuery], shared: _Shared) -> Next[_Found]:
        """Claim the topic's path, and look its partitions up in the archive; where that would take too many requests,
        leave their segments to a step for each."""
        topic = self.claims.resolve(facts, shared.cluster_id, shared.claimed)
        if isinstance(topic, Blocked):
            _answer_all(queries, topic, shared.answered)
            return Next()
        paths = [topic] if topic.before is None else [topic, topic.before]
        sources = [[self._source(query, path) for query in queries] for path in paths]
        archived: dict[SourcePartition, ArchivedSegments] = {}
        for some in sources:
            archived |= self.archive.control_objects(some, shared.recorded)
        # listed after the gaps, so that segments stored before a gap was recorded are seen
        unlisted: set[SourcePartition] = set()
        for path, some in zip(paths, sources, strict=True):
            listed = {} if path.is_new else self.archive.segments(some)
            if listed is None:
                unlisted.update(some)
            else:
                archived |= {source: replace(archived[source], infos=listed.get(source, ())) for source in some}
        found = [
            _Found(query, topic, {source: archived[source] for source in own})
            for query, own in zip(queries, zip(*sources, strict=True), strict=True)
        ]
        if not unlisted:
            return Next(found)
        return Next(steps=[self._partition_step(one, unlisted.intersection(one.archived), shared) for one in found])

    def _partition_step(
        self, found: _Found, unlisted: Collection[SourcePartition], shared: _Shared
    ) -> LookupStep[_Found]:
        until = self._archived_until(found.query, found.topic, shared.committed)

        def run() -> Next[_Found]:
            listed = {s: self.archive.of_partition(s, found.archived[s], until) for s in unlisted}
            return Next([replace(found, archived={**found.archived, **listed})])

        return LookupStep(run, shared.fails([found.query]))

    def _ask(self, found: Sequence[_Found], pool: Executor, shared: _Shared) -> Sequence[LookupStep[_Found]]:
        """Ask the brokers about partitions whose archive is known. Returns the steps that answer."""
        # asked last, so that everything archived or committed by now lies below the log's end
        try:
            marks, failed = marks_of(self.admin, [one.query.partition for one in found], pool, shared.patience)
        except ReplicatorError as error:
            shared.fails([one.query for one in found])(error)
            return ()
        for partition, why in failed.items():
            shared.answered(partition, Unknown(why))
        found = [one for one in found if one.query.partition not in failed]
        archived = {source: known for one in found for source, known in one.archived.items()}
        facts = _Known(shared.committed, archived, marks)
        agreed = {
            one.query.partition: point
            for one in found
            if (point := self._agreed(one.query, one.topic, facts)) is not None
        }
        # after the watermarks: a log that is truncated later than this no longer matches them, which its reader notices
        facts = replace(facts, agreed=agreed, checked=check_points(self.probe, agreed))
        return [self._answer_step(one, facts, shared) for one in found]

    def _answer_step(self, found: _Found, facts: _Known, shared: _Shared) -> LookupStep[_Found]:
        def run() -> Next[_Found]:
            shared.answered(found.query.partition, self._one(found.query, found.topic, facts))
            return Next()

        return LookupStep(run, shared.fails([found.query]))

    def _source(self, query: StartQuery, topic: ClaimedTopic) -> SourcePartition:
        return topic.source(self.region, query.partition.partition)

    @staticmethod
    def _archived_until(
        query: StartQuery, topic: ClaimedTopic, committed: Mapping[TopicPartition, Committed]
    ) -> int | None:
        """The committed offset, if its metadata also has the begin of the archive; None where the whole archive is
        needed."""
        commit = _commit_of(committed.get(query.partition), topic)
        if commit is None or read_commit_metadata(commit) is None:
            return None
        return commit.next_offset if query.evidence is None and topic.before is None else None

    def _one(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> StartAt | Blocked:
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

    def _answer(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> StartAt | Blocked:
        if query.partition not in known.marks:
            return Blocked(f"{query.partition} is not in the cluster any more")
        source = self._source(query, topic)
        here = known.archived[source]
        if query.contested and self.archive.has_all(query.contested):
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
            recorded = self.control.record_begin(source, begin)
            if recorded.offset != begin.offset:  # another process was faster, and may have stored segments by now
                here = replace(here, has_begin=True, is_begin_lowered=True)
                return self._answer(query, topic, known.with_(source, self.archive.whole(source, here)))
        for offsets in start.lost:
            self._record(source, offsets, start, known.marks[query.partition])
        return StartAt(topic, source, start, tuple(self.archive.beyond(source, here, start.next_offset)))

    def _agreed(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> LogPoint | None:
        """The point that the brokers have to confirm for a log whose fork was accepted: the archive up to the fork has
        no point that says anything about this log, and the log may lose more while the operator decides or just after.
        The consumer cannot check it, since it takes a record between the point and its start for a fork."""
        here, marks = known.archived[self._source(query, topic)], known.marks.get(query.partition)
        committed = _commit_of(known.committed.get(query.partition), topic)
        if topic.before is not None and committed is None and not (here.stored or here.forks):
            return self._agreed(query, topic.before, known)  # the path before is all that says anything about the log
        point = agreed_point(here.forks, here.details)
        if point is None or marks is None or marks.low > point.next_offset:
            return None  # also when retention removed the records that could be of another log
        if committed is not None and committed.next_offset > accepted_until(here.forks, here.details):
            return None  # segments archived after the fork are of the new log, and say more
        return point

    def _deeper_loss(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> ForkEvidence | None:
        """Evidence that a log whose fork was accepted has lost more."""
        truncated = known.checked.get(query.partition)
        committed = _commit_of(known.committed.get(query.partition), topic)
        return None if truncated is None else from_truncation(truncated, committed.next_offset if committed else 0)

    def _lost_end(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> ForkEvidence | None:
        """Evidence that a log has lost its end, for a partition whose last segments were stored but not committed: the
        group does not know their leader epoch, and the next record may come much later."""
        here, marks = known.archived[self._source(query, topic)], known.marks[query.partition]
        committed = _commit_of(known.committed.get(query.partition), topic)
        end = end_of(here.stored)
        if committed is None or committed.next_offset > marks.high or end <= marks.high or here.waiting:
            return None
        if end <= accepted_until(here.forks, here.details):
            return None  # these segments are of the log before the accepted fork
        return from_lost_end(end, marks.high, committed.next_offset)

    def _start(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> Start | Blocked:
        """The start in the archive path of `topic`. May read the begin of its archive, and its last footer."""
        partition, source = query.partition, self._source(query, topic)
        here, marks = known.archived[source], known.marks[partition]
        committed = _commit_of(known.committed.get(partition), topic)
        metadata = None if committed is None else read_commit_metadata(committed)
        begun = None if metadata is None else metadata.begun_at
        if begun is None and here.has_begin:
            recorded = self.control.begin(source) if here.is_begin_lowered else self.control.first_begin(source)
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
        self, query: StartQuery, start: Start, before: ClaimedTopic, known: _Known
    ) -> LogPoint | Blocked | None:
        """The point of the log that the archive path before the fork, or its last commit, knows at `start`, where the
        next one begins. None when what that path holds there is of the log before a fork."""
        source = self._source(query, before)
        there, committed = known.archived[source], _commit_of(known.committed.get(query.partition), before)
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

    def _begin_after_fork(self, query: StartQuery, before: ClaimedTopic, known: _Known) -> int | Blocked | None:
        """Where the archive below the path after a fork begins: where the logs differ, and for a partition whose log
        did not fork, after the last offset archived below the path `before`. So the two paths hold everything, and
        nothing twice. None for a partition that the path before never had, because it was added since."""
        there = known.archived[self._source(query, before)]
        if there.is_unknown and _commit_of(known.committed.get(query.partition), before) is None:
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

    def _forked(self, fork: LogFork, here: ArchivedSegments, known: _Known) -> _Known:
        """Record the fork, and return `known` with it, even if an earlier fork is already recorded at that offset."""
        # recorded before the partition stops: the next owner finds it, however long the log is by then
        self.control.record_fork(fork)
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
        details = here.details or self.control.gaps(fork.source)
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
            self.control.record_gap(gap)
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

    def _policy_offset(self, query: StartQuery, topic: ClaimedTopic, known: _Known) -> int:
        """The start policy's offset. Partitions that appeared after their topic was first archived, and later
        incarnations of a topic, are read from their log start whatever the policy, so that records written before they
        were noticed are not lost."""
        start, partition, marks = query.settings.start, query.partition.partition, known.marks[query.partition]
        if start == "earliest" or query.appeared or not topic.is_first or added_later(partition, known.commits(topic)):
            return marks.low
        if start == "latest":
            return marks.high
        return self.admin.offsets_at([query.partition], start).get(query.partition, marks.low)


def _answer_all(queries: Collection[StartQuery], answer: StartAnswer, answered: Answered) -> None:
    for query in queries:
        answered(query.partition, answer)


def _commit_of(committed: Committed | None, topic: ClaimedTopic) -> Committed | None:
    """`committed`, or None for the commit of an earlier incarnation, whose offset is of a log that is gone."""
    return committed if committed is not None and is_of(committed, topic.name, is_first=topic.is_first) else None
