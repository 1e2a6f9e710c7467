"""Creates our topics in the target cluster with the required configs, or checks those of existing topics.

Segment events are a log with time-based retention; checkpoints and the ledger are compacted tables. Either kind fails
silently with the other's cleanup policy: a compacted event log drops events, and a checkpoint topic with time-based
retention loses positions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from formats.errors import TargetError
from infra.contracts.cluster import ClusterAdmin
from infra.kafka.client.topic_configs import CLEANUP_POLICY, TopicConfigs
from infra.runtime.crash_points import Step, durable
from infra.runtime.log_fields import NEXT, REASON, TOPIC

RETENTION, RETENTION_BYTES = "retention.ms", "retention.bytes"
UNCLEAN = "unclean.leader.election.enable"
PARTITIONS = 1  # for a few events and checkpoints per second; more would only cost every reader more requests
CHECKPOINT_PARTITION = 0
"""The only partition of the checkpoint topic that is written and read, regardless of the topic's partition count:
records of one key are ordered only within a partition, and a key would move to another partition if the topic grew."""

CHECKPOINTS: Mapping[str, str] = {
    CLEANUP_POLICY: "compact",
    # small, short-lived log segments: only closed ones are compacted, and every new owner reads the whole topic
    "segment.bytes": str(16 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    UNCLEAN: "false",  # whatever the brokers' default: a leader without the last records would take positions back
}

log = logging.getLogger(__name__)


def ensure_internal_topics(
    admin: ClusterAdmin,
    *,
    segment_events_topic: str,
    segment_events_retention: timedelta,
    checkpoint_topic: str,
    offset_map_topic: str,
    ledger_topic: str = "",
    replication_factor: int,
) -> None:
    """Create missing topics and check existing ones; no ledger without a name. All instances may call this at the same
    time. Raises TargetError with every problem found, and BrokerUnavailable."""
    retention_ms = segment_events_retention // timedelta(milliseconds=1)
    events = {CLEANUP_POLICY: "delete", RETENTION: str(retention_ms), RETENTION_BYTES: "-1"}
    problems: list[str] = []
    if not _created(admin, segment_events_topic, replication_factor, events):
        problems += _events_problems(segment_events_topic, admin.configs(segment_events_topic), retention_ms)
    if not _created(admin, checkpoint_topic, replication_factor, CHECKPOINTS):
        problems += checkpoint_problems(admin, checkpoint_topic)
    if not _created(admin, offset_map_topic, replication_factor, CHECKPOINTS):
        problems += offset_map_problems(admin, offset_map_topic)
    if ledger_topic and not _created(admin, ledger_topic, replication_factor, CHECKPOINTS):
        loss = "the replicator would forget which topics and ACLs are its own"
        problems += _table_problems("ledger", ledger_topic, admin.configs(ledger_topic), loss)
    if problems:
        raise TargetError("; ".join(problems))


def checkpoint_problems(admin: ClusterAdmin, topic: str) -> Sequence[str]:
    """Configs of a checkpoint topic that endanger positions. Raises TargetError, also when there is no such topic, and
    BrokerUnavailable."""
    return _table_problems(
        "checkpoint", topic, admin.configs(topic), "positions would be lost and records delivered again or skipped"
    )


def offset_map_problems(admin: ClusterAdmin, topic: str) -> Sequence[str]:
    """The same of an offset map's topic."""
    loss = "consumer groups could not be moved to records that were delivered long ago"
    return _table_problems("offset_map", topic, admin.configs(topic), loss)


def ensure_checkpoint_topic(admin: ClusterAdmin, topic: str, *, replication_factor: int) -> None:
    """Create or check a single checkpoint topic. Raises TargetError and BrokerUnavailable."""
    if not _created(admin, topic, replication_factor, CHECKPOINTS):
        problems = checkpoint_problems(admin, topic)
        if problems:
            raise TargetError("; ".join(problems))


def ensure_offset_map_topic(admin: ClusterAdmin, topic: str, *, replication_factor: int) -> None:
    """The same of an offset map's topic."""
    if not _created(admin, topic, replication_factor, CHECKPOINTS):
        problems = offset_map_problems(admin, topic)
        if problems:
            raise TargetError("; ".join(problems))


def ensure_topic(
    admin: ClusterAdmin, topic: str, *, configs: Mapping[str, str], check: Callable[[str, int, Mapping[str, str]], str]
) -> None:
    """Create a topic with the broker's default of replicas, or check the one that exists. `check`: gets name, partition
    count and configs, and says why the topic is not to be used. Raises TargetError and BrokerUnavailable."""
    if _created(admin, topic, -1, configs):
        return
    found = admin.describe([topic])[topic]
    if problem := check(topic, found.partition_count, admin.configs(topic)):
        raise TargetError(problem)


def _created(admin: ClusterAdmin, topic: str, replication_factor: int, configs: Mapping[str, str]) -> bool:
    """False when it exists: then no CREATE is needed, which Kafka requires before it searches for the topic."""
    if topic in admin.describe([topic]):
        return False
    with durable(Step.CREATE_INTERNAL_TOPIC):
        made = admin.create_topic(topic, partitions=PARTITIONS, replication_factor=replication_factor, configs=configs)
    if made:
        log.info("topic_created", extra={TOPIC: topic})
    return made


def _events_problems(topic: str, found: Mapping[str, str], retention_ms: int) -> list[str]:
    problems = []
    policies = TopicConfigs(found).cleanup_policies
    if policies != {"delete"}:
        problems.append(
            f"segment events topic {topic}: {CLEANUP_POLICY} is {found.get(CLEANUP_POLICY)!r}, so events that readers "
            f"need would be dropped; set it to 'delete', or name another topic in ingress.segment_events_topic"
        )
    retention = int(found.get(RETENTION, "-1"))
    if 0 <= retention < retention_ms:
        problems.append(
            f"segment events topic {topic}: {RETENTION} is {retention}, shorter than ingress.segment_events_retention "
            f"({retention_ms}); raise the former or lower the latter"
        )
    elif retention != retention_ms:
        log.warning(
            "segment_events_kept_longer",
            extra={
                TOPIC: topic,
                REASON: f"{RETENTION} is {retention}, ingress.segment_events_retention is {retention_ms}",
                NEXT: f"nothing, or set {RETENTION} to save disk",
            },
        )
    return problems


def _table_problems(kind: str, topic: str, found: Mapping[str, str], loss: str) -> list[str]:
    """Of a topic that is a table. `loss`: what happens when it is not compacted."""
    if found.get(UNCLEAN) == "true":  # managed clusters may fix it, so it is no reason to refuse
        log.warning(
            "unclean_leader_election",
            extra={
                TOPIC: topic,
                REASON: f"{UNCLEAN} is true: a leader that lacks the last records may be elected, and they are gone",
                NEXT: f"set {UNCLEAN} of the topic to false",
            },
        )
    if TopicConfigs(found).cleanup_policies == {"compact"}:
        return []
    return [
        f"{kind} topic {topic}: {CLEANUP_POLICY} is {found.get(CLEANUP_POLICY)!r}, so {loss}; set it to 'compact' "
        f"alone, or name another topic in ingress.{kind}_topic"
    ]
