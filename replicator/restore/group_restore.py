"""Sets the positions of consumer groups after a restore to a moment: each on the exact record, by the restore's map."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.ledger import LedgerEntry, Ownership
from formats.policies.acls import AclBinding
from infra.contracts.catalog import LogEndReader
from infra.contracts.cluster import ClusterAdmin, ConsumerGroups, LogEnds, TopicPartition
from infra.contracts.groups import GroupWriter
from infra.contracts.internal_topics import CheckpointStore, Ledger, OffsetMapLog
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.kafka.internal_topics.offset_map_log import KafkaOffsetMapLog
from ingress.groups.lookup import MapReader, log_ends_of
from ingress.groups.positions import GroupPosition, Translate, group_positions
from ingress.groups.sync_plan import SyncDecision, SyncOutcome
from ingress.groups.target_groups import TargetGroups
from ingress.groups.translation import Exactness, Translation
from replicator.config import Config
from replicator.restore.group_plan import GroupPlan, RestoredTopics

GroupOutcomes = Mapping[str, Sequence[SyncDecision]]
"""What was decided of each position, by group."""
SET = (SyncOutcome.WRITE, SyncOutcome.SAME)  # what of it is as it was at the source


class NoLedger:
    """A `Ledger` of nothing: what an operator restores is the operator's, and is never moved by the replicator."""

    def read(self) -> Ownership:
        return Ownership()

    def write(self, entries: Sequence[LedgerEntry]) -> None:
        pass

    def remove_acls(self, bindings: Sequence[AclBinding]) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRestore:
    """Commits for groups that are inactive here, and moves none back: a group that is further in what was restored has
    been there since, so given again it changes nothing."""

    groups: ConsumerGroups
    writer: GroupWriter
    pool: Executor

    def set(self, plan: GroupPlan, restored: RestoredTopics, translate: Translate, now: datetime) -> GroupOutcomes:
        """Raises BrokerUnavailable, TargetError."""
        by_group: dict[str, list[GroupPosition]] = {}
        for position in group_positions(plan.snapshot, restored, translate):
            by_group.setdefault(position.group, []).append(position)
        ledger: Ledger = NoLedger()
        target = TargetGroups(groups=self.groups, writer=self.writer, ledger=ledger, pool=self.pool, allow_rewind=False)
        return target.sync(by_group, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredMap:
    """The offset map of one restore, as of now."""

    checkpoints: CheckpointStore
    offset_map: OffsetMapLog
    ends: LogEndReader
    admin: ClusterAdmin
    preserves_offsets: bool = False  # then each offset is its own translation

    def translate(self, restored: RestoredTopics, destinations: Collection[str]) -> Translate:
        """Raises BrokerUnavailable, TargetError."""
        reader = MapReader(offset_map=self.offset_map, ends=self.ends, admin=self.admin)
        positions = self.checkpoints.read()
        lookup = reader.open(destinations, positions, preserved=destinations if self.preserves_offsets else ())
        ends = log_ends_of(self.ends, restored.empty)

        def targets_of(key: CheckpointKey, sources: Sequence[int]) -> Sequence[Translation] | str:
            if key not in restored.empty or (self.preserves_offsets and key in positions):  # or it was filled
                return lookup.targets_of(key, sources)
            target = TopicPartition(key.destination_topic, key.source.partition)
            end = ends.get(target)
            if not isinstance(end, LogEnds):
                return f"{target}: its end is not known" + ("" if end is None else f" ({end})")
            return [Translation(end.high, Exactness.EXACT)] * len(sources)

        return targets_of


def set_groups(
    config: Config,
    admin: KafkaAdmin,
    plan: GroupPlan,
    restored: RestoredTopics,
    *,
    checkpoints: CheckpointStore,
    offset_map_topic: str,
    destinations: Collection[str],
    preserves_offsets: bool,
    pool: Executor,
    now: datetime,
) -> GroupOutcomes:
    """On the cluster of `config`. Raises BrokerUnavailable, TargetError."""
    consumer = config.cluster.properties("consumer")
    restore = GroupRestore(
        groups=KafkaGroups(config.cluster.properties("admin"), consumer, connection=admin.connection),
        writer=KafkaGroupCommits(consumer),
        pool=pool,
    )
    with closing(KafkaOffsetMapLog(for_bounded_reads(consumer), offset_map_topic)) as offset_map:
        found = RestoredMap(
            checkpoints=checkpoints,
            offset_map=offset_map,
            ends=KafkaLogEnds(admin.connection),
            admin=admin,
            preserves_offsets=preserves_offsets,
        )
        return restore.set(plan, restored, found.translate(restored, destinations), now)
