"""Makes the destinations of a restore ready for its first record: created, emptied, with their ACLs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from formats.errors import TargetError
from infra.contracts.cluster import ClusterAdmin
from infra.runtime.crash_points import Step, durable
from replicator.restore.acl_restore import AclRestore
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.purge import carry_out


@dataclass(slots=True, kw_only=True)
class TopicSetup:
    """Use from one thread at a time. Raises BrokerUnavailable, and TargetError when a destination is not as planned, or
    the cluster refuses a change."""

    admin: ClusterAdmin
    acls: AclRestore
    replication_factor: int
    is_whole: bool  # every partition of the topics is restored
    _created: set[str] = field(default_factory=set)  # names

    def create(self, plan: RestorePlan) -> Mapping[str, str]:
        """Create every missing destination. Returns the topic ids by name."""
        for topic in plan.topics:
            if topic.facts is None and topic.destination not in self._created:
                with durable(Step.CREATE_TOPIC):
                    is_new = self.admin.create_topic(
                        topic.destination,
                        partitions=topic.partition_count,
                        replication_factor=self.replication_factor,
                        configs=topic.configs,
                    )
                if not is_new and (self.is_whole or self._holds_records(topic)):
                    raise TargetError(f"{topic.destination} was created by another client in the meantime: plan again")
                self._created.add(topic.destination)
        names = [topic.destination for topic in plan.topics]
        found = {name: facts.topic_id for name, facts in self.admin.describe(names).items()}
        for topic in plan.topics:
            planned = topic.facts.topic_id if topic.facts is not None else found.get(topic.destination)
            if found.get(topic.destination) != planned or planned is None:
                raise TargetError(f"{topic.destination} was deleted or created again since it was planned: plan again")
        return found

    def prepare(self, plan: RestorePlan, begun: Collection[str]) -> None:
        """Create ACLs, and empty the destinations that the plan empties: an ACL that is refused has lost nothing.
        `begun`: those that this restore has written to, read after every earlier process of it was fenced; they are not
        emptied."""
        for topic in plan.topics:
            if topic.acls is not None:
                self.acls.create(topic.acls)
        for topic in plan.topics:
            if topic.purge is not None and topic.destination not in begun:
                carry_out(self.admin, topic.purge)

    def _holds_records(self, topic: TopicPlan) -> bool:
        """Whether a partition that this restore writes holds records. Other restores may write other partitions."""
        marks = self.admin.watermarks([p.target for p in topic.partitions])
        return any(mark.high > mark.low for mark in marks.values())
