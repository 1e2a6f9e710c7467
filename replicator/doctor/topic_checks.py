"""Checks of topics: our own, the archived ones, and how near retention is to what is not archived. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from formats.errors import PluginFailed
from formats.topic_selection import unmatched
from infra.contracts.deployment import ClusterTopic
from replicator.config import Config
from replicator.doctor.archived_topics import archived
from replicator.doctor.cluster_checks import cluster_name, cluster_of, has_cluster, some
from replicator.doctor.facts import ClusterFacts, DeploymentFacts, NotRead, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity

ERROR, WARNING = Severity.ERROR, Severity.WARNING

NOT_CREATED = Kind(
    "topic-cannot-be-created",
    ERROR,
    "ingress does not start without its own topics",
    "allow CREATE on it, or create it by hand",
)
NO_TOPIC = Kind(
    "topic-not-visible",
    WARNING,
    "it does not exist, or this principal may not DESCRIBE it, which cannot be told apart: nothing of it is archived",
    "correct the name in [egress.topics], create the topic, or allow READ on it",
)
POLICY = Kind(
    "own-topic-cleanup-policy",
    ERROR,
    "checkpoints, offset map and ledger are tables, which retention would empty: records are delivered twice, or "
    "skipped; events are a log, which compaction would thin",
    "set cleanup.policy to compact alone, of the segment events to delete",
)
PARTITIONS = Kind(
    "own-topic-partitions",
    WARNING,
    "only partition 0 is used; the others are read, and cost, for nothing",
    "nothing while it runs; create the topic with one partition the next time",
)
FEW_REPLICAS = Kind(
    "own-topic-few-replicas",
    WARNING,
    "with one copy, the loss of a broker loses positions: records are delivered twice, or delivery stops",
    "add replicas (kafka-reassign-partitions.sh); ingress.internal_replication_factor is for topics that it creates",
)
MIN_IN_SYNC = Kind(
    "own-topic-min-insync",
    WARNING,
    "an acknowledged checkpoint may be on one broker only, or one broker that is down stops all writes",
    "set min.insync.replicas to 2, of 3 replicas",
)
UNCLEAN = Kind(
    "own-topic-unclean-election",
    WARNING,
    "a replica that lacks acknowledged checkpoints may become leader: records are delivered twice",
    "set unclean.leader.election.enable to false, where the cluster allows it",
)
SOURCE_UNCLEAN = Kind(
    "source-unclean-election",
    WARNING,
    "a replica that lacks records may become leader, and give their offsets to others: the log forks, and egress stops "
    "there (docs/operations.md)",
    "set unclean.leader.election.enable of these topics to false",
)
LEADERLESS = Kind(
    "topic-without-leader",
    ERROR,
    "these partitions are neither read nor written",
    "bring the brokers back that hold their replicas",
)
UNDER_MIN = Kind(
    "topic-below-min-insync",
    ERROR,
    "writes with acks=all are refused",
    "bring the brokers back that hold its replicas",
)
NEARLY_LOST = Kind(
    "retention-overtakes-soon",
    ERROR,
    "the source removes records that are not archived: they are lost, and the partition stops, or a gap is recorded "
    "(on_gap)",
    "raise retention.ms of the topic now, then see why egress is behind (`replicator status`)",
)
BEHIND = Kind(
    "retention-near",
    WARNING,
    "egress is so far behind that the source's retention comes near",
    "see why egress is behind (`replicator status`), or raise retention.ms of the topic",
)

WARN_AT, ERROR_AT = 0.5, 0.9  # of the source's retention


def own_topics(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    cluster = cluster_of(facts)
    topics = known(cluster.topics)
    unread = [f"{topic}: {one.reason}" for topic, one in cluster.creations.items() if isinstance(one, Unread)]
    for topic, refusal in cluster.creations.items():
        if not isinstance(refusal, Unread) and refusal:
            yield NOT_CREATED.at(f"topic {topic}", refusal)
    for topic, is_log in _own(facts.config).items():
        setup = topics.get(topic)
        if isinstance(setup, Unread):
            unread.append(f"{topic}: {setup.reason}")
        elif setup is not None:
            if setup.configs_problem:
                unread.append(setup.configs_problem)
            else:
                yield from _own_topic(setup, "delete" if is_log else "compact", cluster)
    if unread:
        raise NotRead("; ".join(unread))


def _own(config: Config) -> Mapping[str, bool]:
    """Our own topics; whether each is a log, and not a table."""
    if config.ingress is None:
        return {}
    events = config.ingress.segment_events_topic
    return {topic: topic == events for topic in sorted(config.ingress.own_topics)}


def _own_topic(setup: ClusterTopic, policy: str, cluster: ClusterFacts) -> Iterator[Diagnosis]:
    where, configs = f"topic {setup.name}", setup.configs
    found = configs.get("cleanup.policy", "")
    if found != policy:
        yield POLICY.at(where, f"cleanup.policy is {found!r}, and not {policy!r}")
    if len(setup.replicas) > 1:
        yield PARTITIONS.at(where, f"it has {len(setup.replicas)} partitions")
    copies, minimum = min(setup.replicas, default=1), int(configs.get("min.insync.replicas", "1"))
    if copies == 1 and not isinstance(cluster.brokers, Unread) and len(cluster.brokers) > 1:
        yield FEW_REPLICAS.at(where, f"it has one replica, in a cluster of {len(cluster.brokers)} brokers")
    elif copies > 1 and (minimum == 1 or minimum >= copies):
        yield MIN_IN_SYNC.at(where, f"min.insync.replicas is {minimum}, of {copies} replicas")
    if policy == "compact" and configs.get("unclean.leader.election.enable") == "true":  # lost events are listed again
        yield UNCLEAN.at(where, "unclean.leader.election.enable is true")


def health(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    topics = known(cluster_of(facts).topics)
    there = {name: one for name, one in topics.items() if isinstance(one, ClusterTopic)}
    if without := [f"{name}/{partition}" for name, one in there.items() for partition in one.leaderless]:
        yield LEADERLESS.at(f"partition {some(without)}", f"{len(without)} of the partitions have no leader")
    below = [
        name
        for name, one in there.items()
        if not one.leaderless and one.configs and min(one.in_sync, default=1) < int(one.configs["min.insync.replicas"])
    ]
    if below:
        yield UNDER_MIN.at(f"topic {some(below)}", "fewer replicas are in sync than min.insync.replicas asks for")


def archived_topics(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    egress = facts.config.egress
    assert egress is not None
    names, topics = known(cluster_of(facts).names), known(cluster_of(facts).topics)
    for rule in unmatched(egress.topics, names):
        what = "no visible topic matches it" if rule.pattern.is_expression else "no such topic is visible"
        yield NO_TOPIC.at(f'egress.topics."{rule.pattern.text}"', what)
    try:
        chosen = archived(facts.config, topics)
    except PluginFailed as error:
        raise NotRead(str(error)) from error
    unclean = [name for name, one in chosen.items() if one.configs.get("unclean.leader.election.enable") == "true"]
    if unclean:
        yield SOURCE_UNCLEAN.at(f"topic {some(unclean)}", "unclean.leader.election.enable is true")


def retention(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    assert facts.retention is not None
    for one in known(facts.retention):
        share = (facts.at - one.oldest) / one.retention
        oldest = one.oldest.isoformat(timespec="seconds")
        kept = one.retention // timedelta(milliseconds=1)
        what = f"its oldest record that is not archived is of {oldest}, {share:.0%} of retention.ms = {kept} ago"
        if share > ERROR_AT:
            yield NEARLY_LOST.at(f"partition {one.partition}", what)
        elif share > WARN_AT:
            yield BEHIND.at(f"partition {one.partition}", what)


def _with_cluster(section: Callable[[Config], object]) -> Callable[[DeploymentFacts], bool]:
    return lambda facts: has_cluster(facts) and section(facts.config) is not None


TOPIC_CHECKS: Sequence[Check] = (
    Check(
        name="own-topics",
        checks="ingress' own topics keep what they are given",
        where=cluster_name,
        judge=own_topics,
        kinds=(NOT_CREATED, POLICY, PARTITIONS, FEW_REPLICAS, MIN_IN_SYNC, UNCLEAN),
        applies=_with_cluster(lambda config: config.ingress),
    ),
    Check(
        name="topic-health",
        checks="partitions have leaders and enough replicas in sync",
        where=cluster_name,
        judge=health,
        kinds=(LEADERLESS, UNDER_MIN),
        applies=has_cluster,
    ),
    Check(
        name="archived-topics",
        checks="the topics of [egress.topics] are visible, and their logs do not fork",
        where=cluster_name,
        judge=archived_topics,
        kinds=(NO_TOPIC, SOURCE_UNCLEAN),
        applies=_with_cluster(lambda config: config.egress),
    ),
    Check(
        name="retention",
        checks="egress is far ahead of the source's retention",
        where=cluster_name,
        judge=retention,
        kinds=(NEARLY_LOST, BEHIND),
        applies=lambda facts: has_cluster(facts) and facts.retention is not None,
    ),
)
