"""Plans of a restore, made of an archive and a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.archive import Archive
from infra.archive.segments import SegmentStore
from replicator.restore.conflicts import ConflictKind
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.planner import RestorePlanner
from replicator.restore.target_options import TargetOptions
from replicator.selection import Selection
from tests.fakes.executors import HandExecutor
from tests.ingress.world import REGION, World


def select(*topics: str, **changes: Any) -> Selection:
    given: dict[str, Any] = {"region": REGION, "topics": [TopicPattern(topic) for topic in topics or ("t",)]}
    return Selection(**(given | changes))


def planner(world: World, store: SegmentStore | None = None) -> RestorePlanner:
    return RestorePlanner(
        archive=Archive(store or world.store, world.control, world.format),
        admin=world.admin,
        clock=world.clock,
        pool=HandExecutor(),
    )


def plan(
    world: World, selection: Selection | None = None, *, restore_id: str = "", **target_options: Any
) -> RestorePlan:
    selection = selection or select()
    return planner(world).plan(
        selection,
        restore_id or selection.digest,
        TargetOptions(**target_options),
        world.target.checkpoint_store(),
    )


def only(found: RestorePlan) -> TopicPlan:
    [topic] = found.topics
    return topic


def reasons(topic: TopicPlan) -> Mapping[ConflictKind, str]:
    assert all(not c.accepted for c in topic.conflicts)
    found = {c.kind: c.reason for c in topic.conflicts}
    assert len(found) == len(topic.conflicts), "each once"
    return found


def begin(world: World, next_offset: int = 5, *, topic_id: str = "id-t", partition: int = 0) -> None:
    key = CheckpointKey(SourcePartition(REGION, "t", partition), "t")
    world.target.checkpoints[key] = Checkpoint(next_offset, topic_id, world.clock.at)


def existing(*, partitions: int = 2, settings: Mapping[str, str] | None = None, stamp: int | None = None) -> World:
    """An archive of partitions 0 and 1, and the empty topic."""
    world = World()
    for p in (0, 1):
        world.put(0, 9, partition=p, stamp=stamp, value=bytes(1000))
    world.broker.create("t", partitions=partitions)
    world.admin.settings["t"] = dict(settings or {})
    return world
