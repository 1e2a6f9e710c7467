"""An item whose Spark task failed in every attempt has an outcome that says so, beside those of the others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from compaction.planner import CleanPlan, MergePlan
from compaction.settings import CompactionJob
from egress.sync_steps import SyncStep
from formats.coverage import SegmentSlice
from formats.messages.delivery_checkpoint import Author, Checkpoint
from formats.segment import OffsetRange, Segment, SourcePartition
from formats.topic_selection import TopicPattern
from infra.contracts.cluster import TopicPartition
from replicator.config import Config, from_mapping
from replicator.restore.partition_plan import plan_partition
from replicator.restore.spark_task import RestoreTask, with_position
from replicator.restore.worker import PartitionTask, RestoreSettings
from replicator.selection import Selection
from replicator.services.compaction import MergeTask
from replicator.services.copy_check_task import CopyCheckTask
from replicator.services.sync_task import CopyTask
from replicator.verify.report import line_of, report
from replicator.verify.scope import ARCHIVE, DIRECT, SOURCE, TARGET, VerifyScope
from replicator.verify.spark_task import PartitionCheck, VerifyTask
from tests.ingress.world import REGION

AT = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = from_mapping({"region": REGION, "kafka": {"bootstrap.servers": "b:9092"}, "s3": {"bucket": "archive"}})
PARTITION = SourcePartition(REGION, "t", 0)
SMALL, LARGE = (Segment(PARTITION, level, OffsetRange(0, 9)) for level in (0, 1))
WHY = "its executor died"


def test_a_merge_and_a_deletion() -> None:
    task = MergeTask(CONFIG, CompactionJob(name="nightly"), "test", "run")
    merge = MergePlan(output=LARGE, inputs=(SegmentSlice.rest(SMALL, 0),), size_bytes=1)
    for plan in (merge, CleanPlan(keeper=LARGE, inside={SMALL: 1})):
        found = task.failed(plan, WHY)
        assert (found.segment, found.error, found.merged, found.deleted) == (str(LARGE), WHY, 0, 0)


def test_copies_are_not_proven() -> None:
    found = CopyCheckTask(CONFIG).failed([SMALL, LARGE], WHY)
    assert found == [f"whether it has its copy is not known: {WHY}"] * 2, "so neither may expire"


def test_objects_are_not_copied() -> None:
    found = CopyTask(CONFIG).failed([SyncStep("a", is_copy=True), SyncStep("b", is_copy=False)], WHY)
    assert (found.done, found.failed, found.failure) == ((), ["a", "b"], WHY)


@pytest.mark.parametrize("kind", [ARCHIVE, SOURCE, TARGET, DIRECT])
def test_a_partition_is_not_verified(kind: str) -> None:
    scope = VerifyScope(
        kind=kind, cluster=None if kind == ARCHIVE else CONFIG, source_cluster=CONFIG if kind == DIRECT else None
    )
    task = VerifyTask(CONFIG, Selection(region=REGION, topics=[TopicPattern("t")]), scope)
    entry, proven = task.failed(PartitionCheck(source=PARTITION, proven={}), WHY)
    assert (entry["kind"], entry["source"], entry["equal"], entry["failed"]) == (kind, str(PARTITION), False, WHY)
    assert WHY in line_of(entry)
    assert proven == {}
    assert report([entry], AT, program="test")["equal"] is False


def restored(next_offset: int | None) -> tuple[int, bool, bool]:
    """Where it stands, whether a part is not counted, and whether it is done, by the checkpoint of an attempt."""
    plan = plan_partition(
        source=PARTITION,
        target=TopicPartition("t", 0),
        infos=(),
        recorded=(),
        wanted=Selection(region=REGION, topics=()).offsets,
        listed_at=AT,
        checkpoint=None,
        planned=OffsetRange(20, 99),
    )
    task = RestoreTask(cast("Config", None), cast("RestoreSettings", None))
    failed = task.failed(PartitionTask(plan=plan, topic_id="id", clamp=False), WHY)
    position = None if next_offset is None else Checkpoint(next_offset, "id", AT, Author.EXACTLY_ONCE)
    found = with_position(failed, position)
    assert (found.failed, found.records) == (WHY, 0)
    return found.next_offset, found.is_partial, found.is_done


def test_a_partition_is_restored_as_far_as_its_attempts_came() -> None:
    assert restored(None) == (20, False, False)
    assert restored(20) == (20, False, False)
    assert restored(60) == (60, True, False)
