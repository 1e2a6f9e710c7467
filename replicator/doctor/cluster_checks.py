"""Checks of a cluster: its brokers, our topics, the archived topics, rights, and limits of transactions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from infra.contracts.deployment import ClusterTopic
from replicator.config import Config
from replicator.doctor.facts import ClusterFacts, DeploymentFacts, NotRead, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity
from replicator.rights.kafka import EVERYTHING, Acl, Name, acls

ERROR, WARNING = Severity.ERROR, Severity.WARNING

UNREACHABLE = Kind(
    "cluster-unreachable",
    ERROR,
    "nothing is archived or delivered while no broker answers",
    "repair what the reason names: addresses, TLS, SASL, or the network",
)
TOO_OLD = Kind(
    "cluster-too-old",
    ERROR,
    "the fence of exactly-once, and transactions themselves, are proved on Kafka 3.3 and newer only",
    "upgrade the brokers to Kafka 3.3 or newer",
)
TRANSACTION_LIMIT = Kind(
    "transaction-timeout-refused",
    ERROR,
    "the cluster refuses every transaction of ingress, so that nothing is delivered",
    "lower ingress.transaction_timeout, or raise the brokers' transaction.max.timeout.ms",
)
TRANSACTIONS_REFUSED = Kind(
    "transactions-refused",
    ERROR,
    "ingress writes each round in a transaction, so that nothing is delivered",
    "allow what the reason names: `replicator rights ingress --kafka-acls` prints the ACLs",
)
TRANSACTIONS_FRAGILE = Kind(
    "transaction-log-fragile",
    WARNING,
    "with one copy, the loss of a broker loses the state of transactions, and ingress stops",
    "raise transaction.state.log.replication.factor, before the topic __transaction_state exists, and reassign its "
    "partitions afterwards",
)
OFFSETS_FORGOTTEN = Kind(
    "group-offsets-forgotten-soon",
    WARNING,
    "after an outage of that length the cluster forgets where egress stands, which then asks the archive",
    "raise the brokers' offsets.retention.minutes",
)
RIGHT_MISSING = Kind(
    "cluster-right-missing",
    ERROR,
    "the command of this role stops at these topics or this group, and says so",
    "allow it: `replicator rights ROLE --kafka-acls` prints the ACLs",
)
RIGHT_LEFT_OUT = Kind(
    "cluster-right-optional",
    WARNING,
    "something is left out without it, and everything else goes on: docs/rights.md says what",
    "allow it, or set the setting that needs it to off: `replicator rights ROLE --kafka-acls` prints the ACLs",
)
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
    "the source removes records that are not archived: they are lost, and a gap is recorded",
    "raise retention.ms of the topic now, then see why egress is behind (`replicator status`)",
)
BEHIND = Kind(
    "retention-near",
    WARNING,
    "egress is so far behind that the source's retention comes near",
    "see why egress is behind (`replicator status`), or raise retention.ms of the topic",
)

OPTIONAL_OPERATIONS = frozenset({"ALTER", "ALTER_CONFIGS"})  # without them destinations do not follow their sources
SINCE_3_3 = "early.start.listeners"  # a setting of brokers that 3.3 brought
OF_EVERY_BROKER = "listeners"  # only managed clusters, which show few settings, do not show it
SHORTEST_OFFSETS = timedelta(days=1)
WARN_AT, ERROR_AT = 0.5, 0.9  # of the source's retention
MOST_NAMED = 3


def _cluster(facts: DeploymentFacts) -> ClusterFacts:
    assert facts.cluster is not None
    return facts.cluster


def _where(facts: DeploymentFacts) -> str:
    return f"cluster {_cluster(facts).servers}"


def some(names: Collection[str]) -> str:
    """The first few of them."""
    first, more = sorted(names)[:MOST_NAMED], len(names) - MOST_NAMED
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def reachable(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    brokers = _cluster(facts).brokers
    if isinstance(brokers, Unread):
        yield UNREACHABLE.at(_where(facts), brokers.reason)


def version(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    configs = known(_cluster(facts).broker_configs)
    if SINCE_3_3 in configs:
        return
    if OF_EVERY_BROKER not in configs:
        raise NotRead("the cluster shows only some of its brokers' settings")
    yield TOO_OLD.at(_where(facts), f"the brokers do not know {SINCE_3_3}, which Kafka 3.3 brought")


def limits(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    cluster, ingress = _cluster(facts), facts.config.ingress
    configs = known(cluster.broker_configs)
    limit = _number(configs, "transaction.max.timeout.ms", 900_000)
    if ingress is not None and ingress.delivery == "exactly-once":
        if ingress.transaction_timeout > timedelta(milliseconds=limit):
            yield TRANSACTION_LIMIT.at(
                _where(facts),
                f"ingress.transaction_timeout is {ingress.transaction_timeout.total_seconds():g} s, and the brokers' "
                f"transaction.max.timeout.ms {limit}",
            )
        copies = _number(configs, "transaction.state.log.replication.factor", 3)
        if copies == 1 and len(known(cluster.brokers)) > 1:
            yield TRANSACTIONS_FRAGILE.at(_where(facts), "transaction.state.log.replication.factor is 1")
    minutes = _number(configs, "offsets.retention.minutes", 10_080)
    if facts.config.egress is not None and timedelta(minutes=minutes) < SHORTEST_OFFSETS:
        yield OFFSETS_FORGOTTEN.at(_where(facts), f"offsets.retention.minutes is {minutes}")


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    """A managed cluster may leave a setting out, or its value."""
    return int(configs.get(name) or default)


def transactions(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    refused = _cluster(facts).transactions
    if refused is not None and (reason := known(refused)):
        yield TRANSACTIONS_REFUSED.at(_where(facts), reason)


def rights(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    cluster = _cluster(facts)
    topics = known(cluster.topics)
    unread: list[str] = []
    for role in facts.roles:
        for acl in acls(role, facts.config):
            try:
                yield from _of_acl(role.name, acl, cluster, topics)
            except NotRead as error:
                unread.append(str(error))
    if unread:
        raise NotRead("; ".join(dict.fromkeys(unread)))


def _of_acl(
    role: str, acl: Acl, cluster: ClusterFacts, topics: Mapping[str, ClusterTopic | Unread]
) -> Iterator[Diagnosis]:
    if acl.kind == "group":
        operations = known(cluster.groups.get(acl.name.text, Unread(f"group {acl.name.text} was not asked for")))
        if operations is not None and (missing := set(acl.operations) - set(operations)):
            yield RIGHT_MISSING.at(f"group {acl.name.text}", f"role {role} lacks {', '.join(sorted(missing))}")
    if acl.kind != "topic":
        return
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name, topic in topics.items():
        if not covers(acl.name, name):
            continue
        if isinstance(topic, Unread):
            lacking.setdefault(("DESCRIBE",), []).append(name)
            continue
        needed = set(acl.operations) - ({"CREATE"} if not acl.name.is_prefix else set())  # it exists
        if topic.operations is not None and (missing := needed - set(topic.operations)):
            for part in (missing - OPTIONAL_OPERATIONS, missing & OPTIONAL_OPERATIONS):
                if part:
                    lacking.setdefault(tuple(sorted(part)), []).append(name)
    for operations_, names in lacking.items():
        kind = RIGHT_LEFT_OUT if set(operations_) <= OPTIONAL_OPERATIONS else RIGHT_MISSING
        yield kind.at(f"topic {some(names)}", f"role {role} lacks {', '.join(operations_)}")


def covers(acl: Name, topic: str) -> bool:
    """Whether a topic is one of those that an ACL names."""
    if acl.is_prefix:
        return topic.startswith(acl.text)
    return acl.text in (EVERYTHING, topic)


def own_topics(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    cluster = _cluster(facts)
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
    topics = known(_cluster(facts).topics)
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
    names, topics = known(_cluster(facts).names), known(_cluster(facts).topics)
    for rule in egress.topics:
        text = rule.pattern.text
        if not any(rule.pattern.matches(name) for name in names):
            what = "no visible topic matches it" if rule.pattern.is_expression else "no such topic is visible"
            yield NO_TOPIC.at(f'egress.topics."{text}"', what)
    unclean = [
        name
        for name, one in topics.items()
        if isinstance(one, ClusterTopic)
        and any(rule.pattern.matches(name) for rule in egress.topics)
        and one.configs.get("unclean.leader.election.enable") == "true"
    ]
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


def _has_cluster(facts: DeploymentFacts) -> bool:
    return facts.cluster is not None


def _with_cluster(section: Callable[[Config], object]) -> Callable[[DeploymentFacts], bool]:
    return lambda facts: facts.cluster is not None and section(facts.config) is not None


CLUSTER_CHECKS: Sequence[Check] = (
    Check(
        name="cluster-reachable",
        checks="a broker answers to this principal",
        where=_where,
        judge=reachable,
        kinds=(UNREACHABLE,),
        applies=_has_cluster,
    ),
    Check(
        name="cluster-version",
        checks="the brokers are Kafka 3.3 or newer",
        where=_where,
        judge=version,
        kinds=(TOO_OLD,),
        applies=_has_cluster,
    ),
    Check(
        name="cluster-limits",
        checks="the brokers' limits of transactions and group offsets fit the settings",
        where=_where,
        judge=limits,
        kinds=(TRANSACTION_LIMIT, TRANSACTIONS_FRAGILE, OFFSETS_FORGOTTEN),
        applies=_has_cluster,
    ),
    Check(
        name="transactions",
        checks="the cluster takes a transaction of this principal",
        where=_where,
        judge=transactions,
        kinds=(TRANSACTIONS_REFUSED,),
        applies=lambda facts: facts.cluster is not None and facts.cluster.transactions is not None,
    ),
    Check(
        name="cluster-rights",
        checks="this principal may do what the roles need",
        where=_where,
        judge=rights,
        kinds=(RIGHT_MISSING, RIGHT_LEFT_OUT),
        applies=_has_cluster,
    ),
    Check(
        name="own-topics",
        checks="ingress' own topics keep what they are given",
        where=_where,
        judge=own_topics,
        kinds=(NOT_CREATED, POLICY, PARTITIONS, FEW_REPLICAS, MIN_IN_SYNC, UNCLEAN),
        applies=_with_cluster(lambda config: config.ingress),
    ),
    Check(
        name="topic-health",
        checks="partitions have leaders and enough replicas in sync",
        where=_where,
        judge=health,
        kinds=(LEADERLESS, UNDER_MIN),
        applies=_has_cluster,
    ),
    Check(
        name="archived-topics",
        checks="the topics of [egress.topics] are visible, and their logs do not fork",
        where=_where,
        judge=archived_topics,
        kinds=(NO_TOPIC, SOURCE_UNCLEAN),
        applies=_with_cluster(lambda config: config.egress),
    ),
    Check(
        name="retention",
        checks="egress is far ahead of the source's retention",
        where=_where,
        judge=retention,
        kinds=(NEARLY_LOST, BEHIND),
        applies=lambda facts: facts.cluster is not None and facts.retention is not None,
    ),
)
