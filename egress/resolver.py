"""Finds where reading begins for partitions just assigned: asks the group, the source and the archive; may block."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from egress.positions import Hold, Start, added_later, choose_start, read_note
from replicator.config import EgressTopicSettings
from replicator.protocols import ClusterAdmin, Committed, SourceConsumer, TopicFacts, TopicPartition, Watermarks
from replicator.segment import Segment, SourcePartition
from replicator.store import SegmentStore


@dataclass(frozen=True, slots=True)
class Wanted:
    """One partition to position, with what is known of its topic."""

    partition: TopicPartition
    source: SourcePartition
    settings: EgressTopicSettings
    facts: TopicFacts
    appeared: bool  # its topic was created while we were looking: everything in it is news
    contested: Segment | None = None  # stored, and found to contradict what was read
    contest: str = ""  # in which way


@dataclass(frozen=True, slots=True)
class Resolver:
    """Runs on a pool. Raises what its parts raise; nothing is changed anywhere, so it may be repeated."""

    consumer: SourceConsumer
    admin: ClusterAdmin
    store: SegmentStore
    accept_missing_archive: bool

    def resolve(self, wanted: Collection[Wanted], pool: Executor) -> Mapping[TopicPartition, Start | Hold]:
        """`pool` lists the archive's partitions side by side; not the one this runs on."""
        partitions = [w.partition for w in wanted]
        topics = {w.facts.name: w.facts for w in wanted}
        everything = [TopicPartition(f.name, p) for f in topics.values() for p in range(f.partition_count)]
        committed = self.consumer.committed(everything)
        listed = list(pool.map(lambda w: [i.segment for i in self.store.list(w.source)], wanted))
        # last: whatever is archived or committed by now lies below the log's end
        marks = self.admin.watermarks(partitions)
        return {
            w.partition: self._choose(w, committed, archived, marks) for w, archived in zip(wanted, listed, strict=True)
        }

    def _choose(
        self,
        wanted: Wanted,
        committed: Mapping[TopicPartition, Committed],
        archived: Collection[Segment],
        marks: Mapping[TopicPartition, Watermarks],
    ) -> Start | Hold:
        partition = wanted.partition
        if partition not in marks:
            return Hold(f"{partition} is not in the cluster any more")
        if wanted.contested in archived:
            return Hold(wanted.contest)  # going on behind it would accept it unseen
        return choose_start(
            committed.get(partition),
            archived,
            marks[partition],
            self._policy_offset(wanted, committed, marks[partition]),
            wanted.facts.partition_count,
            accept_missing_archive=self.accept_missing_archive,
        )

    def _policy_offset(self, wanted: Wanted, committed: Mapping[TopicPartition, Committed], marks: Watermarks) -> int:
        """Partitions that appeared after their topic was first positioned are read from their beginning, whatever the
        policy: what was written before we noticed them is not to be lost."""
        start, partition = wanted.settings.start, wanted.partition.partition
        notes = [n for p, c in committed.items() if p.topic == wanted.partition.topic and (n := read_note(c))]
        if start == "earliest" or wanted.appeared or added_later(partition, notes):
            return marks.low
        if start == "latest":
            return marks.high
        return self.admin.offsets_at([wanted.partition], start).get(wanted.partition, marks.low)
