"""A range of a backfill as a Spark task."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

import pytest

from formats.errors import BrokerUnavailable, ReplicatorError, SegmentsDiffer, StoreUnavailable, TargetError
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.kafka.cluster.admin import KafkaAdmin
from infra.runtime.lifecycle import Stop
from replicator.backfill.request import RangeOutcome, RangeTask
from replicator.backfill.spark_task import BackfillTask
from replicator.backfill.worker import BackfillWorker
from replicator.config import Config
from replicator.config.load import from_mapping

TABLES = {
    "region": "a",
    "kafka": {"bootstrap.servers": "b:9092"},
    "s3": {"bucket": "archive"},
    "egress": {"topics": {"t": {}}},
}
CONFIG = from_mapping(TABLES)
TASK = BackfillTask(CONFIG)


class FailsAtPartition1(BackfillWorker):
    error: ReplicatorError

    @classmethod
    def open(cls, config: Config, stop: Stop, _opened: ExitStack, *, share: int = 1) -> BackfillWorker:
        assert config.egress is not None
        archive, admin = cast("Archive", None), cast("KafkaAdmin", None)  # no range is read
        return cls(config=config, settings=config.egress, archive=archive, admin=admin, stop=stop, share=share)

    def write(self, task: RangeTask) -> RangeOutcome:
        if task.source.partition == 1:
            raise self.error
        return RangeOutcome(source=str(task.source), start=task.offsets.start, end=task.offsets.end, segments=7)


def task_of(partition: int) -> RangeTask:
    return RangeTask(
        source=SourcePartition("a", "t", partition),
        offsets=OffsetRange(10, 19),
        topic_id="id",
        cluster_id="cluster",
        partition_count=3,
        max_messages=5,
        max_bytes=1 << 20,
    )


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnavailable("no broker"),
        StoreUnavailable("no bucket"),
        TargetError("created again"),
        SegmentsDiffer("a", "b", offset=12, detail="another value"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_range_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch, error: ReplicatorError) -> None:
    """An exception would end the job of Spark, and with it the outcomes of all other ranges."""
    monkeypatch.setattr(FailsAtPartition1, "error", error, raising=False)
    monkeypatch.setattr("replicator.backfill.spark_task.BackfillWorker", FailsAtPartition1)
    outcomes = [TASK.outcome(TASK(TASK.row(task_of(partition)))) for partition in range(3)]
    assert [(one.segments, one.failed) for one in outcomes] == [(7, ""), (0, str(error)), (7, "")]
