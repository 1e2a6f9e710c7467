"""Finds where reading begins for partitions just assigned: asks the group, the source and the archive; may block."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from egress.places import Life, Places, another_cluster
from egress.positions import Facts, Hold, Rules, Start, added_later, choose_start, is_of
from replicator import logkeys
from replicator.commit_note import read_note
from replicator.config import EgressTopicSettings
from replicator.control import RecordedGap
from replicator.control_store import ControlStore
from replicator.describing import describe_each
from replicator.durable import Step, durable
from replicator.protocols import Clock, ClusterAdmin, Committed, SourceConsumer, TopicPartition, Watermarks
from replicator.segment import OffsetRange, Segment, SourcePartition
from replicator.store import SegmentStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One partition to position, with what is known of its topic."""

    partition: TopicPartition
    settings: EgressTopicSettings
    appeared: bool  # its topic was created while we were looking: everything in it is news
    contested: Segment | None = None  # stored, and found to contradict what was read
    contest: str = ""  # in which way


@dataclass(frozen=True, slots=True)
class Begin:
    """Read this partition of this life; what `start` says is lost is written down."""

    life: Life
    source: SourcePartition
    start: Start


@dataclass(frozen=True, slots=True)
class _Archived:
    segments: Collection[Segment]
    gaps: Collection[OffsetRange]


@dataclass(frozen=True, slots=True)
class Resolver:
    """Runs on a pool. Raises what its parts raise. It claims places and records gaps, both of which may be repeated."""

    region: str
    cluster_id: str  # of the cluster this process began with
    consumer: SourceConsumer
    admin: ClusterAdmin
    store: SegmentStore
    control: ControlStore
    places: Places
    clock: Clock
    accept_missing_archive: bool

    def resolve(self, wanted: Collection[Wanted], pool: Executor) -> Mapping[TopicPartition, Begin | Hold]:
        """`pool` asks the archive about partitions side by side; not the one this runs on."""
        lives = self._lives({w.partition.topic for w in wanted}, pool)
        answers: dict[TopicPartition, Begin | Hold] = {}
        known: list[tuple[Wanted, Life]] = []
        for one in wanted:
            life = lives[one.partition.topic]
            if isinstance(life, Hold):
                answers[one.partition] = life
            else:
                known.append((one, life))
        topics = {life.facts.name: life.facts for _, life in known}
        everything = [TopicPartition(f.name, p) for f in topics.values() for p in range(f.partition_count)]
        committed = self.consumer.committed(everything)
        sources = [life.source(self.region, one.partition.partition) for one, life in known]
        listed = list(pool.map(self._archived, sources))
        # last: whatever is archived or committed by now lies below the log's end
        marks = self.admin.watermarks([one.partition for one, _ in known])
        for (one, life), archived in zip(known, listed, strict=True):
            answers[one.partition] = self._answer(one, life, committed, archived, marks.get(one.partition))
        return answers

    def _lives(self, topics: Collection[str], pool: Executor) -> Mapping[str, Life | Hold]:
        cluster_id = self.admin.cluster_id()
        if cluster_id != self.cluster_id:
            return dict.fromkeys(topics, Hold(another_cluster(cluster_id, self.cluster_id)))
        facts, refused = describe_each(self.admin, topics)
        lives: dict[str, Life | Hold] = {topic: Hold(f"{topic} is not in the cluster any more") for topic in topics}
        lives |= {topic: Hold(str(error)) for topic, error in refused.items()}
        return lives | dict(
            zip(facts, pool.map(lambda f: self.places.life(f, cluster_id), facts.values()), strict=True)
        )

    def _archived(self, source: SourcePartition) -> _Archived:
        return _Archived([i.segment for i in self.store.list(source)], self.control.gap_ranges(source))

    def _answer(
        self,
        wanted: Wanted,
        life: Life,
        committed: Mapping[TopicPartition, Committed],
        archived: _Archived,
        marks: Watermarks | None,
    ) -> Begin | Hold:
        partition = wanted.partition
        if marks is None:
            return Hold(f"{partition} is not in the cluster any more")
        if wanted.contested in archived.segments:
            return Hold(wanted.contest)  # going on behind it would accept it unseen
        # of an earlier life: offsets of a log that is gone
        believed = {p: c for p, c in committed.items() if is_of(c, life.name, is_first=life.is_first)}
        facts = Facts(
            committed=believed.get(partition),
            archived=archived.segments,
            recorded=archived.gaps,
            marks=marks,
            policy_offset=self._policy_offset(wanted, life, believed, marks),
            partition_count=life.facts.partition_count,
            life=life.name,
        )
        rules = Rules(
            accept_missing_archive=self.accept_missing_archive, record_gaps=wanted.settings.on_gap == "record"
        )
        start = choose_start(facts, rules)
        if isinstance(start, Hold):
            return start
        source = life.source(self.region, partition.partition)
        for offsets in start.lost:
            self._record(source, offsets, start, marks)
        return Begin(life, source, start)

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
                logkeys.REGION: source.region,
                logkeys.TOPIC: source.place,
                logkeys.PARTITION: source.partition,
                logkeys.START: offsets.start,
                logkeys.END: offsets.end,
                logkeys.REASON: gap.reason,
            },
        )

    def _policy_offset(
        self, wanted: Wanted, life: Life, committed: Mapping[TopicPartition, Committed], marks: Watermarks
    ) -> int:
        """Partitions that appeared after their topic was first positioned are read from their beginning, whatever the
        policy, and so are later lives of a topic: what was written before we noticed them is not to be lost."""
        start, partition = wanted.settings.start, wanted.partition.partition
        notes = [n for p, c in committed.items() if p.topic == wanted.partition.topic and (n := read_note(c))]
        if start == "earliest" or wanted.appeared or not life.is_first or added_later(partition, notes):
            return marks.low
        if start == "latest":
            return marks.high
        return self.admin.offsets_at([wanted.partition], start).get(wanted.partition, marks.low)
