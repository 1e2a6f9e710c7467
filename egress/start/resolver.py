"""Finds where reading begins for partitions just assigned: asks the group, the source and the archive; may block."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from egress.settings import EgressTopicSettings
from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup
from egress.start.choice import (
    LastRecord,
    Rules,
    Start,
    StartFacts,
    added_later,
    again,
    choose_start,
    is_of,
    on_the_same_log,
)
from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from egress.start.log_lookup import compared, marks_of
from egress.topics.claims import Blocked, ClaimedTopic, TopicClaims, another_cluster
from egress.topics.log_identity import ForkEvidence, from_lost_end, from_truncation
from formats.control.archive_begin import ArchiveBegin
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import covered_until, end_of
from formats.errors import DataError
from formats.forks import accepted_until, agreed_point
from formats.log_point import LogPoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import (
    ClusterAdmin,
    Committed,
    LogProbe,
    LogTruncated,
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
    """One partition to position, with what is known of its topic."""

    partition: TopicPartition
    settings: EgressTopicSettings
    appeared: bool  # its topic was created while we were looking: everything in it is news
    contested: Collection[Segment] = ()  # stored, and found not to be what was read
    contest: str = ""  # in which way
    forked: SourcePartition | None = None  # of which `evidence` is: by now its topic may be another one
    evidence: ForkEvidence | None = None  # that its log has forked, found just now


@dataclass(frozen=True, slots=True)
class StartAt:
    """Read this partition of this life; what `start` says is lost is written down, and where its archive begins."""

    life: ClaimedTopic
    source: SourcePartition
    start: Start
    beyond: tuple[Segment, ...] = ()  # stored already, behind `start`: what is read again has to agree with them


@dataclass(frozen=True, slots=True)
class Unknown:
    """No broker says where its log ends, for now: a leader is elected, as a rule within seconds."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What was asked of group, source and archive, of all partitions at once."""

    committed: Mapping[TopicPartition, Committed]
    archived: Mapping[SourcePartition, ArchivedSegments]
    marks: Mapping[TopicPartition, Watermarks]
    # points before accepted forks; only where nothing newer is archived
    agreed: Mapping[TopicPartition, LogPoint] = field(default_factory=dict)
    # of those what the log says now; left out: nothing
    compared: Mapping[TopicPartition, LogTruncated | None] = field(default_factory=dict)

    def with_(self, source: SourcePartition, archived: ArchivedSegments) -> _Known:
        return replace(self, archived={**self.archived, source: archived})

    def notes(self, life: ClaimedTopic) -> list[CommitMetadata]:
        """Of the commits of all partitions of the topic."""
        of_topic = (c for p, c in self.committed.items() if p.topic == life.facts.name)
        return [n for c in of_topic if _believed(c, life) and (n := read_commit_metadata(c))]


@dataclass(frozen=True, slots=True)
class StartResolver:
    """Runs on a pool. Raises what its parts raise. It claims places, records gaps, forks and where archives begin, all
    of which may be repeated."""

    region: str
    cluster_id: str  # of the cluster this process began with
    consumer: SourceConsumer
    admin: ClusterAdmin
    probe: LogProbe
    archive: ArchiveLookup
    control: ControlStore
    places: TopicClaims
    clock: Clock
    accept_missing_archive: bool

    def resolve(
        self, wanted: Collection[StartQuery], pool: Executor
    ) -> Mapping[TopicPartition, StartAt | Blocked | Unknown]:
        """`pool` asks the archive about partitions side by side; not the one this runs on."""
        lives = self._lives({w.partition.topic for w in wanted}, pool)
        answers: dict[TopicPartition, StartAt | Blocked | Unknown] = {}
        known: list[tuple[StartQuery, ClaimedTopic]] = []
        for one in wanted:
            life = lives[one.partition.topic]
            if isinstance(life, Blocked):
                answers[one.partition] = life
            else:
                known.append((one, life))
        topics = {life.facts.name: life.facts for _, life in known}
        everything = [TopicPartition(f.name, p) for f in topics.values() for p in range(f.partition_count)]
        committed = self.consumer.committed(everything)
        sources: dict[SourcePartition, int | None] = {}
        for one, life in known:
            sources[self._source(one, life)] = self._archived_until(one, life, committed)
            if life.before is not None:
                sources[self._source(one, life.before)] = None
        archived = self.archive.find(sources, pool)
        # last: whatever is archived or committed by now lies below the log's end
        marks, failed = marks_of(self.admin, [one.partition for one, _ in known], pool)
        answers |= {p: Unknown(error) for p, error in failed.items()}
        known = [(one, life) for one, life in known if one.partition not in failed]
        facts = _Known(committed, archived, marks)
        agreed = {w.partition: point for w, life in known if (point := self._agreed(w, life, facts)) is not None}
        # behind the marks: a log that is cut after this is another one than they say, which its reader notices
        facts = replace(facts, agreed=agreed, compared=compared(self.probe, agreed))
        found = pool.map(lambda pair: self._one(pair[0], pair[1], facts), known)
        return answers | {one.partition: answer for (one, _), answer in zip(known, found, strict=True)}

    def _lives(self, topics: Collection[str], pool: Executor) -> Mapping[str, ClaimedTopic | Blocked]:
        cluster_id = self.admin.cluster_id()
        if cluster_id != self.cluster_id:
            return dict.fromkeys(topics, Blocked(another_cluster(cluster_id, self.cluster_id)))
        facts, refused = describe_each(self.admin, topics)
        lives: dict[str, ClaimedTopic | Blocked] = {
            topic: Blocked(f"{topic} is not in the cluster any more") for topic in topics
        }
        lives |= {topic: Blocked(str(error)) for topic, error in refused.items()}
        claimed = self.places.claimed()
        return lives | dict(
            zip(facts, pool.map(lambda f: self.places.life(f, cluster_id, claimed), facts.values()), strict=True)
        )

    def _source(self, wanted: StartQuery, life: ClaimedTopic) -> SourcePartition:
        return life.source(self.region, wanted.partition.partition)

    @staticmethod
    def _archived_until(
        wanted: StartQuery, life: ClaimedTopic, committed: Mapping[TopicPartition, Committed]
    ) -> int | None:
        """What the group says, if it also says where the archive begins; None where all of the archive is needed."""
        said = _believed(committed.get(wanted.partition), life)
        if said is None or read_commit_metadata(said) is None or wanted.evidence is not None or life.before is not None:
            return None
        return said.next_offset

    def _one(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> StartAt | Blocked:
        """Objects of one partition that cannot be read hold up no other. They say something, and least of all that
        there is nothing to say."""
        source = self._source(wanted, life)
        sources = [source] if life.before is None else [source, self._source(wanted, life.before)]
        try:
            unreadable = [why for s in sources if (why := known.archived[s].unreadable)]
            if not unreadable:
                return self._answer(wanted, life, known)
        except DataError as error:
            unreadable = [str(error)]
        return Blocked(f"{source}: {unreadable[0]}. Restore that object of the archive, below _control/v1/")

    def _answer(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> StartAt | Blocked:
        if wanted.partition not in known.marks:
            return Blocked(f"{wanted.partition} is not in the cluster any more")
        source = self._source(wanted, life)
        here = known.archived[source]
        if wanted.contested and self.archive.holds(wanted.contested):
            return Blocked(wanted.contest)  # going on behind them would accept them unseen
        found_now = wanted.evidence if wanted.forked == source else None
        # a deeper loss first: it contests all that the others do, of which one may be what was accepted meanwhile
        evidence = self._deeper(wanted, life, known) or found_now or self._lost_end(wanted, life, known)
        fork = None if evidence is None else evidence.fork(source, here.stored, self.clock.now())
        if fork is not None:
            known = self._forked(fork, here, known)
        start = self._start(wanted, life, known)
        if fork is None and not here.is_whole and (isinstance(start, Blocked) or start.lost):
            # something seems to be missing, which only all that is archived can say
            return self._answer(wanted, life, known.with_(source, self.archive.whole(source, here)))
        if isinstance(start, Blocked):
            return start
        if wanted.partition in known.agreed and wanted.partition not in known.compared:
            return Blocked(
                f"{source}: the fork of its log was accepted, and the brokers do not say whether the log has lost more "
                "since. They are asked again"
            )
        if not here.has_begin:
            # written down before anything is stored or committed: the only place that says it when offsets expire
            begin = ArchiveBegin(offset=start.note.begun_at, reason=start.why, recorded_at=self.clock.now())
            stands = self.control.record_begin(source, begin)
            if stands.offset != begin.offset:  # another process was faster
                return self._answer(wanted, life, known.with_(source, replace(here, has_begin=True)))
        for offsets in start.lost:
            self._record(source, offsets, start, known.marks[wanted.partition])
        return StartAt(life, source, start, tuple(self.archive.beyond(source, here, start.next_offset)))

    def _agreed(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> LogPoint | None:
        """What to have confirmed of a log whose fork was accepted: what is archived up to there has no point that says
        anything of it, and it may lose more while the operator decides or just after. The consumer is not asked to: it
        takes a record between the point and its start for a fork."""
        here, marks = known.archived[self._source(wanted, life)], known.marks.get(wanted.partition)
        point = agreed_point(here.forks, here.details)
        if point is None or marks is None or marks.low > point.next_offset:
            return None  # or retention took what could be another log's
        committed = _believed(known.committed.get(wanted.partition), life)
        if committed is not None and committed.next_offset > accepted_until(here.forks, here.details):
            return None  # what was archived behind the fork is of the new log, and tells more
        return point

    def _deeper(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> ForkEvidence | None:
        """That a log whose fork was accepted has lost more."""
        truncated = known.compared.get(wanted.partition)
        committed = _believed(known.committed.get(wanted.partition), life)
        return None if truncated is None else from_truncation(truncated, committed.next_offset if committed else 0)

    def _lost_end(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> ForkEvidence | None:
        """Of a partition whose last segments were stored and not committed: no leader epoch of theirs is known to the
        group, and records that follow may be a long time in coming."""
        here, marks = known.archived[self._source(wanted, life)], known.marks[wanted.partition]
        committed = _believed(known.committed.get(wanted.partition), life)
        end = end_of(here.stored)
        if committed is None or committed.next_offset > marks.high or end <= marks.high or here.waiting:
            return None
        if end <= accepted_until(here.forks, here.details):
            return None  # of the log before, and accepted
        return from_lost_end(end, marks.high, committed.next_offset)

    def _start(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> Start | Blocked:
        """In the place of `life`. May read the begin of its archive, and the footer of its last segment."""
        partition, source = wanted.partition, self._source(wanted, life)
        here, marks = known.archived[source], known.marks[partition]
        committed = _believed(known.committed.get(partition), life)
        note = None if committed is None else read_commit_metadata(committed)
        begun = None if note is None else note.begun_at
        if begun is None and here.has_begin:
            recorded = self.control.begin(source)
            begun = None if recorded is None else recorded.offset
        if begun is None and life.before is not None:
            behind = self._behind_fork(wanted, life.before, known)
            if isinstance(behind, Blocked):
                return behind
            begun = behind
        is_new = committed is None and begun is None and not here.stored and not here.gaps
        facts = StartFacts(
            committed=committed,
            archived=here.stored,
            recorded=here.gaps,
            marks=marks,
            policy_offset=self._policy_offset(wanted, life, known) if is_new else marks.low,
            partition_count=life.facts.partition_count,
            life=life.name,
            begun=begun,
            forks=here.forks,
            gaps=here.details,
        )
        rules = Rules(
            accept_missing_archive=self.accept_missing_archive, record_gaps=wanted.settings.on_gap == "record"
        )
        start = choose_start(facts, rules)
        if isinstance(start, Blocked):
            return start
        has_epoch = committed is not None and committed.leader_epoch is not None
        last = None if has_epoch else self.archive.last_record(source, here, start.next_offset)
        if isinstance(last, Blocked):
            return last
        start = again(start, last, facts)
        point: LogPoint | Blocked | None = None if last is None else last.point
        if committed is not None and committed.leader_epoch is not None:
            point = LogPoint(committed.next_offset, committed.leader_epoch)
        elif life.before is not None and not here.stored:
            point = self._fork_point(start, self._source(wanted, life.before), known)
        return point if isinstance(point, Blocked) else on_the_same_log(start, point, facts)

    def _fork_point(self, start: Start, before: SourcePartition, known: _Known) -> LogPoint | Blocked | None:
        """What the place before knows of the log at the begin of the one behind a fork."""
        there = known.archived[before]
        for fork in there.waiting:
            if fork.end_offset == start.next_offset and fork.leader_epoch is not None:
                return LogPoint(fork.end_offset, fork.leader_epoch)
        last = self.archive.last_record(before, there, start.next_offset)
        return last.point if isinstance(last, LastRecord) else last

    def _behind_fork(self, wanted: StartQuery, before: ClaimedTopic, known: _Known) -> int | Blocked | None:
        """Where the archive of a place behind a fork begins: where the logs differ. Of a partition whose log did not
        fork, behind what is archived in the place before. So the two hold everything, and nothing twice. None for a
        partition that the place before never had: it was added since."""
        there = known.archived[self._source(wanted, before)]
        if there.is_unknown and _believed(known.committed.get(wanted.partition), before) is None:
            return None  # a start policy is for the topic's first place: it would pass over what was written since
        if there.waiting:
            return min(fork.contested.start for fork in there.waiting)
        start = self._start(wanted, before, known)
        # a commit may be on its way still, and what is stored there is not to be stored here too
        if isinstance(start, Blocked):
            return start
        if start.lost:
            return min(offsets.start for offsets in start.lost)  # so that it is this place that records the gap
        beyond = self.archive.beyond(self._source(wanted, before), there, start.next_offset)
        return covered_until(beyond, start.next_offset)

    def _forked(self, fork: LogFork, here: ArchivedSegments, known: _Known) -> _Known:
        """The same, with this fork; also when the record of an earlier one stands at that offset."""
        # recorded, then held: the next owner finds it, however long the log is by then
        self.control.record_fork(fork)
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
        # written down, then passed over: a crash before the next segment leaves a gap that is explained
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

    def _policy_offset(self, wanted: StartQuery, life: ClaimedTopic, known: _Known) -> int:
        """Partitions that appeared after their topic was first positioned are read from their beginning, whatever the
        policy, and so are later lives of a topic: what was written before we noticed them is not to be lost."""
        start, partition, marks = wanted.settings.start, wanted.partition.partition, known.marks[wanted.partition]
        if start == "earliest" or wanted.appeared or not life.is_first or added_later(partition, known.notes(life)):
            return marks.low
        if start == "latest":
            return marks.high
        return self.admin.offsets_at([wanted.partition], start).get(wanted.partition, marks.low)


def _believed(committed: Committed | None, life: ClaimedTopic) -> Committed | None:
    """None for the commit of an earlier incarnation: an offset of a log that is gone."""
    return committed if committed is not None and is_of(committed, life.name, is_first=life.is_first) else None
