"""`adopt --fork`: continue the archive of a topic whose log has forked in a new path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from egress.topics.claims import Blocked, ClaimedTopic, TopicClaims, facts_of
from formats.control.claim import TopicClaim
from formats.control.fork import LogFork
from formats.errors import TargetError
from formats.forks import accept_command, unresolved
from formats.incarnation import fork_id, generated_id, later_ids, newest_fork
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import ClusterAdmin
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock


def adopt_fork(
    store: SegmentStore, control: ControlStore, admin: ClusterAdmin, region: str, topic: str, *, clock: Clock
) -> ClaimedTopic:
    """Continue the archive after the forks of a topic's log in a new path, for every partition of the topic: see
    `formats.forks`. A running egress follows within minutes.

    Repeating it changes nothing, unless the log forked again. Raises TargetError when the topic does not exist, when no
    fork of its log waits for an operator, or when egress has not yet begun all partitions after the previous fork; and
    what store and cluster raise.
    """
    facts, cluster_id = facts_of(admin, topic)
    claimed = control.claims.paths(region)
    current_topic = TopicClaims(region, control, clock).resolve(facts, cluster_id, claimed)
    if isinstance(current_topic, Blocked):
        raise TargetError(f"adopt --fork {topic}: {current_topic.reason}")
    path = current_topic.incarnation.path
    forks_of = {s.partition: waiting_forks(store, control, s) for s in control.forks.sources(region, path)}
    forked = {partition for partition, waiting in forks_of.items() if waiting}
    if not forked:
        if current_topic.before is not None:
            return current_topic
        raise TargetError(
            f"adopt --fork {topic}: no fork of its log is recorded for {region}/{path} that waits for you: there is "
            "nothing to continue after"
        )
    # The resolver reads one path before the current one: a partition without a begin in this path would be read from
    # its log start in the next, although the path before this one holds those records.
    missing = (
        set(range(facts.partition_count)) - control.begins.partitions(region, path) - forked
        if current_topic.before
        else set()
    )
    if missing:
        accept = [f"`{accept_command(fork)}`" for partition in sorted(forked) for fork in forks_of[partition]]
        raise TargetError(
            f"adopt --fork {topic}: egress has not yet found where partitions {sorted(missing)} continue in "
            f"{region}/{path}, after the last fork. Let it run until they are archived there, or until /readyz names "
            "what keeps them from it, which has to be repaired first; then run this again. What needs no waiting is to "
            f"continue in the same path: {' and '.join(accept)}"
        )
    later = later_ids(claimed, topic)
    number = len(later) + (topic in claimed)
    if facts.topic_id:
        forks = newest_fork(later, facts.topic_id) + 1
        name = fork_id(facts.topic_id, forks)
    else:
        current = control.claims.of(region, path)
        forks = 1 + (0 if current is None else current.fork)
        name = generated_id(cluster_id, number)
    successor = replace(current_topic.under(name), before=replace(current_topic, before=None))
    claim = TopicClaim(
        topic_id=facts.topic_id or name,
        cluster_id=cluster_id,
        number=number,
        claimed_at=clock.now(),
        fork=forks,
        forked_from=path,
    )
    with durable(Step.CLAIM_PATH):
        control.claims.record(region, successor.incarnation.path, claim)
    return successor


def waiting_forks(store: SegmentStore, control: ControlStore, source: SourcePartition) -> Sequence[LogFork]:
    """The forks of one partition's log that an operator has not resolved."""
    forks = control.forks.of(source)
    covered = (info.segment.offsets for info in store.list(source)) if forks else ()
    return unresolved(forks, control.gaps.of(source), covered) if forks else ()
