"""Checks of a cluster: its brokers, limits of transactions, and rights. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from infra.contracts.deployment import ClusterTopic
from replicator.doctor.facts import ClusterFacts, DeploymentFacts, NotRead, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity
from replicator.first_few import first_few
from replicator.rights.kafka import Acl, acls

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

OPTIONAL_OPERATIONS = frozenset({"ALTER", "ALTER_CONFIGS"})  # without them destinations do not follow their sources
OPTIONAL_OF_ROLE = {"egress": frozenset({"DESCRIBE_CONFIGS"})}  # without it the catalogue lacks the topics' configs
SINCE_3_3 = "early.start.listeners"  # a setting of brokers that 3.3 brought
OF_EVERY_BROKER = "listeners"  # only managed clusters, which show few settings, do not show it
SHORTEST_OFFSETS = timedelta(days=1)
MOST_NAMED = 3


def cluster_of(facts: DeploymentFacts) -> ClusterFacts:
    assert facts.cluster is not None
    return facts.cluster


def cluster_name(facts: DeploymentFacts) -> str:
    return f"cluster {cluster_of(facts).servers}"


def some(names: Collection[str]) -> str:
    """The first few of them."""
    return first_few(sorted(names), MOST_NAMED)


def reachable(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    brokers = cluster_of(facts).brokers
    if isinstance(brokers, Unread):
        yield UNREACHABLE.at(cluster_name(facts), brokers.reason)


def version(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    configs = known(cluster_of(facts).broker_configs)
    if SINCE_3_3 in configs:
        return
    if OF_EVERY_BROKER not in configs:
        raise NotRead("the cluster shows only some of its brokers' settings")
    yield TOO_OLD.at(cluster_name(facts), f"the brokers do not know {SINCE_3_3}, which Kafka 3.3 brought")


def limits(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    cluster, ingress = cluster_of(facts), facts.config.ingress
    configs = known(cluster.broker_configs)
    limit = _number(configs, "transaction.max.timeout.ms", 900_000)
    if ingress is not None and ingress.delivery == "exactly-once":
        if ingress.transaction_timeout > timedelta(milliseconds=limit):
            yield TRANSACTION_LIMIT.at(
                cluster_name(facts),
                f"ingress.transaction_timeout is {ingress.transaction_timeout.total_seconds():g} s, and the brokers' "
                f"transaction.max.timeout.ms {limit}",
            )
        copies = _number(configs, "transaction.state.log.replication.factor", 3)
        if copies == 1 and len(known(cluster.brokers)) > 1:
            yield TRANSACTIONS_FRAGILE.at(cluster_name(facts), "transaction.state.log.replication.factor is 1")
    minutes = _number(configs, "offsets.retention.minutes", 10_080)
    if facts.config.egress is not None and timedelta(minutes=minutes) < SHORTEST_OFFSETS:
        yield OFFSETS_FORGOTTEN.at(cluster_name(facts), f"offsets.retention.minutes is {minutes}")


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    """A managed cluster may leave a setting out, or its value."""
    return int(configs.get(name) or default)


def transactions(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    refused = cluster_of(facts).transactions
    if refused is not None and (reason := known(refused)):
        yield TRANSACTIONS_REFUSED.at(cluster_name(facts), reason)


def rights(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    cluster = cluster_of(facts)
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
    optional = OPTIONAL_OPERATIONS | OPTIONAL_OF_ROLE.get(role, frozenset())
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name, topic in topics.items():
        if not acl.name.covers(name):
            continue
        if isinstance(topic, Unread):
            lacking.setdefault(("DESCRIBE",), []).append(name)
            continue
        needed = set(acl.operations) - ({"CREATE"} if not acl.name.is_prefix else set())  # it exists
        if topic.operations is not None and (missing := needed - set(topic.operations)):
            for part in (missing - optional, missing & optional):
                if part:
                    lacking.setdefault(tuple(sorted(part)), []).append(name)
    for operations_, names in lacking.items():
        kind = RIGHT_LEFT_OUT if set(operations_) <= optional else RIGHT_MISSING
        yield kind.at(f"topic {some(names)}", f"role {role} lacks {', '.join(operations_)}")


def has_cluster(facts: DeploymentFacts) -> bool:
    return facts.cluster is not None


CLUSTER_CHECKS: Sequence[Check] = (
    Check(
        name="cluster-reachable",
        checks="a broker answers to this principal",
        where=cluster_name,
        judge=reachable,
        kinds=(UNREACHABLE,),
        applies=has_cluster,
    ),
    Check(
        name="cluster-version",
        checks="the brokers are Kafka 3.3 or newer",
        where=cluster_name,
        judge=version,
        kinds=(TOO_OLD,),
        applies=has_cluster,
    ),
    Check(
        name="cluster-limits",
        checks="the brokers' limits of transactions and group offsets fit the settings",
        where=cluster_name,
        judge=limits,
        kinds=(TRANSACTION_LIMIT, TRANSACTIONS_FRAGILE, OFFSETS_FORGOTTEN),
        applies=has_cluster,
    ),
    Check(
        name="transactions",
        checks="the cluster takes a transaction of this principal",
        where=cluster_name,
        judge=transactions,
        kinds=(TRANSACTIONS_REFUSED,),
        applies=lambda facts: facts.cluster is not None and facts.cluster.transactions is not None,
    ),
    Check(
        name="cluster-rights",
        checks="this principal may do what the roles need",
        where=cluster_name,
        judge=rights,
        kinds=(RIGHT_MISSING, RIGHT_LEFT_OUT),
        applies=has_cluster,
    ),
)
