"""Asks the group, the source and the archive about newly assigned partitions, and answers where reading begins. May
block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup, Recorded
from egress.start.commit_metadata import read_commit_metadata
from egress.start.decision import StartDecision
from egress.start.known_facts import KnownFacts, commit_of
from egress.start.log_lookup import OneByOne, check_points, marks_of
from egress.start.lookup_steps import LookupStep, Next, run_steps
from egress.start.query import Answered, StartAnswer, StartQuery, Unknown
from egress.topics.claims import Blocked, ClaimedTopic, TopicClaims, another_cluster
from formats.errors import ReplicatorError
from formats.segment import SourcePartition
from infra.contracts.cluster import ClusterAdmin, Committed, LogProbe, TopicFacts, TopicPartition, describe_each
from infra.contracts.consumer import SourceConsumer


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
    """Runs on a pool. Raises what its parts raise. Claims archive paths, which may be repeated; `decision` records what
    it finds."""

    region: str
    cluster_id: str  # of the cluster at the start of this process
    consumer: SourceConsumer
    admin: ClusterAdmin
    probe: LogProbe
    archive: ArchiveLookup
    claims: TopicClaims
    decision: StartDecision

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
        everything = [partition for one in facts.values() for partition in one.partitions]
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
        sources = [[path.source(self.region, query.partition.partition) for query in queries] for path in paths]
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
        facts = KnownFacts(shared.committed, archived, marks)
        agreed = {
            one.query.partition: point
            for one in found
            if (point := self.decision.agreed(one.query, one.topic, facts)) is not None
        }
        # after the watermarks: a log that is truncated later than this no longer matches them, which its reader notices
        facts = replace(facts, agreed=agreed, checked=check_points(self.probe, agreed))
        return [self._answer_step(one, facts, shared) for one in found]

    def _answer_step(self, found: _Found, facts: KnownFacts, shared: _Shared) -> LookupStep[_Found]:
        def run() -> Next[_Found]:
            shared.answered(found.query.partition, self.decision.answer(found.query, found.topic, facts))
            return Next()

        return LookupStep(run, shared.fails([found.query]))

    @staticmethod
    def _archived_until(
        query: StartQuery, topic: ClaimedTopic, committed: Mapping[TopicPartition, Committed]
    ) -> int | None:
        """The committed offset, if its metadata also has the begin of the archive; None where the whole archive is
        needed."""
        commit = commit_of(committed.get(query.partition), topic)
        if commit is None or read_commit_metadata(commit) is None:
            return None
        return commit.next_offset if query.evidence is None and topic.before is None else None


def _answer_all(queries: Collection[StartQuery], answer: StartAnswer, answered: Answered) -> None:
    for query in queries:
        answered(query.partition, answer)
