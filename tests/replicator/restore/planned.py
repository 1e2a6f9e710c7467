"""Plans of a restore, made of an archive and a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.archive import Archive
from infra.archive.generation_history import catalog_history, watermark_generations
from infra.archive.segments import SegmentStore
from replicator.restore.acl_restore import AclRestore
from replicator.restore.conflicts import ConflictKind
from replicator.restore.cut_lookup import ArchivedCut, CutLookup
from replicator.restore.destination import ControlArchive
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.planner import RestorePlanner
from replicator.restore.source_catalog import SourceCatalog, moment_of
from replicator.restore.target_options import TargetOptions
from replicator.selection import Selection
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.ingress.world import REGION, World

OWN = ["User:replicator"]


def select(*topics: str, **changes: Any) -> Selection:
    given: dict[str, Any] = {"region": REGION, "topics": [TopicPattern(topic) for topic in topics or ("t",)]}
    return Selection(**(given | changes))


def planner(
    world: World,
    store: SegmentStore | None = None,
    control: ControlArchive | None = None,
    cut: ArchivedCut | None = None,
) -> RestorePlanner:
    return RestorePlanner(
        control=control,
        cut=cut,
        archive=Archive(store or world.store, world.control, world.format),
        admin=world.admin,
        clock=world.clock,
        pool=HandExecutor(),
    )


def plan(
    world: World,
    selection: Selection | None = None,
    *,
    restore_id: str = "",
    acl_admin: FakeCatalogAdmin | None = None,
    **target_options: Any,
) -> RestorePlan:
    """`acl_admin`: of the target, with its ACLs."""
    selection, options = selection or select(), TargetOptions(**target_options)
    watermarks = watermark_generations(world.objects.memory, "data", selection.region)
    cut = None if selection.at is None else CutLookup(watermarks, selection, selection.at).find()
    history = catalog_history(world.objects.memory, "data", selection.region)
    control = ControlArchive(
        catalog=SourceCatalog(history, selection.region, moment_of(selection)),
        acls=AclRestore(lambda: acl_admin or FakeCatalogAdmin(world.admin), OWN),
    )
    return planner(world, control=control if options.needs_catalog else None, cut=cut).plan(
        selection,
        restore_id or selection.digest,
        options,
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
