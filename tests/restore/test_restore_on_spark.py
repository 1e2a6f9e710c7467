"""Restoring, verifying and drilling on a real Spark cluster, one worker of which is killed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from infra.local.ports import HOST, free_ports
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.stack import LocalStack
from infra.spark import SparkSettings
from ingress.selection import Renaming, Selection
from replicator.drill import Drill
from replicator.lifecycle import Stop
from replicator.restore import Options, Restore
from replicator.topics import TopicPattern
from replicator.verify_on_spark import ARCHIVE, Look, Work, on_spark
from tests.fakes.kafka_target import target_records
from tests.integration.on_spark import QUICK, assert_only_plans_cross, killing_one, pages_of
from tests.restore.history import REGION
from tests.restore.large import ROWS, fill, rows
from tests.restore.place import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS, SEGMENTS = 8, 2
MANY = 64  # each is proven in a moment
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

            seen = killing_one(run, lambda: pages_of(restore.spark), cluster)
        wanted = target_records(rows(0, SEGMENTS))
        for partition in range(PARTITIONS):
            found = place.restored(name, partition)
            assert (len(found), found == wanted) == (len(wanted), True), partition
    assert_only_plans_cross(seen)


def test_verified_by_a_cluster_that_loses_a_worker(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """And a drill by what is left of it."""
    (port,) = free_ports(1)
    with (
        closing(Place(stack, unique, tmp_path)) as place,
        spark_cluster(tmp_path / "spark", workers=2) as cluster,
    ):
        topic = unique("orders")
        fill(place.objects, topic, MANY, 1)
        pages = {"spark.ui.enabled": "true", "spark.ui.port": str(port)}
        settings = SparkSettings(
            master=cluster.master, properties={**DRIVER_PROPERTIES, **QUICK, **pages}, ship_packages=True
        )
        selection = Selection(region=REGION, topics=[TopicPattern(topic)])
        work, found = Work(place.config, selection, Look(kind=ARCHIVE)), []

        def run() -> None:
            found.extend(on_spark(settings, work, {}, lambda _done, _total: None))

        seen = killing_one(run, lambda: f"http://{HOST}:{port}", cluster)
        assert [entry["equal"] for entry, _ in found] == [True] * MANY
        assert sum(len(proven) for _, proven in found) == MANY

        few = replace(selection, partitions=frozenset(range(4)))
        drill = Drill(config=place.config, scratch=place.config, selection=few, spark=settings)
        drilled = drill.run(Stop())
        assert (drilled.differences, drilled.partitions, drilled.records) == ([], 4, 4 * ROWS)
    assert_only_plans_cross(seen)
