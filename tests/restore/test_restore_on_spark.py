"""A restore on a real Spark cluster, one worker of which is killed in the middle: every record is there once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.stack import LocalStack
from infra.spark import SparkSettings
from ingress.selection import Renaming, Selection
from replicator.restore import Options, Restore
from replicator.topics import TopicPattern
from tests.fakes.kafka_target import target_records
from tests.integration.on_spark import QUICK, assert_only_plans_cross, killing_one
from tests.restore.history import REGION
from tests.restore.large import fill, rows
from tests.restore.place import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS, SEGMENTS = 8, 2
A_SECOND = 1 << 20  # of each partition: a task takes some seconds


def test_a_cluster_that_loses_a_worker(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> None:
    with (
        closing(Place(stack, unique, tmp_path)) as place,
        spark_cluster(tmp_path / "spark", workers=2) as cluster,
    ):
        fill(place.objects, "orders", PARTITIONS, SEGMENTS)
        name = unique("restored")
        selection = Selection(region=REGION, topics=[TopicPattern("orders")], renaming=Renaming({"orders": name}))
        properties = {**DRIVER_PROPERTIES, **QUICK, "spark.ui.enabled": "true"}
        settings = SparkSettings(master=cluster.master, properties=properties, ship_packages=True)
        with Restore(place.config, selection, options=Options(spark=settings, max_rate=A_SECOND)) as restore:

            def run() -> None:
                assert all(outcome.is_done and outcome.is_whole for outcome in restore.run(restore.plan()))

            seen = killing_one(run, lambda: restore.spark, cluster)
        wanted = target_records(rows(0, SEGMENTS))
        for partition in range(PARTITIONS):
            found = place.restored(name, partition)
            assert (len(found), found == wanted) == (len(wanted), True), partition
    assert_only_plans_cross(seen)
