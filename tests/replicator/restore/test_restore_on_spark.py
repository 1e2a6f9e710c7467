"""Restoring, verifying and drilling on a real Spark cluster, one worker of which is killed in the middle."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.topic_selection import TopicPattern
from infra.local.ports import HOST, free_ports
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop
from infra.spark.driver import SparkSettings
from replicator.config import KafkaSettings
from replicator.drill import Drill
from replicator.restore.restore import Options, Restore
from replicator.selection import Renaming, Selection
from replicator.verify.scope import ARCHIVE, Found, VerifyScope
from replicator.verify.spark_task import VerifyTask, on_spark
from tests.fakes.kafka_target import target_records
from tests.integration.crossing import Crossing
from tests.integration.on_spark import PATIENCE, QUICK, killing_one, pages_of
from tests.replicator.restore.history import REGION
from tests.replicator.restore.large import ROWS, fill, rows
from tests.replicator.restore.place import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS, SEGMENTS = 8, 2
MANY = 64  # each is proven in a moment
A_SECOND = 4 << 20  # of each partition: a task takes some seconds
NOISE_BYTES, LITTLE_NOISE_BYTES = 350, 88  # of each record: both archives hold 70 MB, many times what a driver needs


def test_a_cluster_that_loses_a_worker(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> None:
    with (
        closing(Place(stack, unique, tmp_path)) as place,
        spark_cluster(tmp_path / "spark", workers=2) as cluster,
    ):
        sizes = fill(place.objects, "orders", PARTITIONS, SEGMENTS, noise_bytes=NOISE_BYTES)
        crossing = Crossing(tmp_path / "events")
        name = unique("restored")
        selection = Selection(region=REGION, topics=[TopicPattern("orders")], renaming=Renaming({"orders": name}))
        properties = {**DRIVER_PROPERTIES, **QUICK, **crossing.properties, "spark.ui.enabled": "true"}
        settings = SparkSettings(master=cluster.master, properties=properties, ship_packages=True)
        options = Options(spark=settings, max_rate=A_SECOND)
        with Restore(place.config, selection, options=options) as restore:
            plan = restore.plan()

            def run() -> None:
                assert all(outcome.is_done and outcome.is_whole for outcome in restore.run(plan))

            with crossing.watched():
                killing_one(run, lambda: pages_of(restore.spark.runner), cluster)
        wanted = target_records(rows(0, SEGMENTS, noise_bytes=NOISE_BYTES))
        for partition in range(PARTITIONS):
            found = place.restored(name, partition)
            assert (len(found), found == wanted) == (len(wanted), True), partition
    crossing.assert_only_plans(sizes, executors=2)


COPIED = """\
from datetime import timedelta
from os import getpid
from pathlib import Path

import pyarrow as pa

from infra.local.waiting import wait_until

FOLDER = Path({folder!r})


def keep(batch, source):
    if source.partition == 0:
        (FOLDER / str(getpid())).touch()
        assert wait_until(lambda: len(list(FOLDER.iterdir())) > 1, timedelta(minutes=5)), "Spark did not speculate"
    return pa.array([True] * batch.num_rows)
"""


def test_a_superseded_attempt_is_no_failure(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark treats the large partition as a straggler and starts it once more on the other host. Its records are held
    until the copy reads them, too, and so has taken the partition over: however slow the machine is, the first attempt
    is not through before."""
    (port,) = free_ports(1)
    modules, attempts = tmp_path / "modules", tmp_path / "attempts"
    for folder in (modules, attempts):
        folder.mkdir()
    (modules / "copied.py").write_text(COPIED.format(folder=str(attempts)), encoding="utf-8")
    monkeypatch.syspath_prepend(modules)
    speculating = {
        "spark.executorEnv.PYTHONPATH": str(modules),
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.task.maxFailures": "2",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
    }
    with (
        closing(Place(stack, unique, tmp_path)) as place,
        spark_cluster(tmp_path / "spark", workers=2, hosts=(HOST, "127.0.0.2")) as cluster,
    ):
        fill(place.objects, "orders", 2, 6)
        place.objects.delete_many([k for k in keys(place) if "/orders/1/" in k and int(k[-41:-21]) >= ROWS])
        name = unique("restored")
        selection = Selection(region=REGION, topics=[TopicPattern("orders")], renaming=Renaming({"orders": name}))
        settings = SparkSettings(
            master=cluster.master, properties={**DRIVER_PROPERTIES, **QUICK, **speculating}, ship_packages=True
        )
        stages: list[Mapping[str, Any]] = []
        with Restore(place.config, selection, options=Options(spark=settings, keep=["copied:keep"])) as restore:
            outcomes = restore.run(restore.plan())

            def seen() -> bool:
                stages.extend(stages_at(port))
                return bool(stages)

            assert wait_until(seen, PATIENCE)
        assert [outcome.failed for outcome in outcomes] == ["", ""]
        assert all(outcome.is_whole and outcome.is_done for outcome in outcomes)
        for partition, segments in enumerate((6, 1)):
            assert place.restored(name, partition) == target_records(rows(0, segments)), partition
    assert sum(stage["numFailedTasks"] for stage in stages) == 0
    logs = "".join(log.read_text(errors="replace") for log in (tmp_path / "spark").rglob("stderr"))
    assert "attempt_superseded" in logs, "the first attempt was not superseded"


def keys(place: Place) -> list[str]:
    return [info.key for info in place.objects.list("")]


def stages_at(port: int) -> list[Mapping[str, Any]]:
    """The stages, from Spark's REST API; empty if it does not answer."""
    pages = f"http://{HOST}:{port}/api/v1/applications"
    try:
        with urllib.request.urlopen(pages, timeout=10) as answer:
            [application] = json.load(answer)
        with urllib.request.urlopen(f"{pages}/{application['id']}/stages", timeout=10) as answer:
            return list(json.load(answer))
    except (OSError, ValueError):
        return []


def test_verified_by_a_cluster_that_loses_a_worker(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path
) -> None:
    crossing = Crossing(tmp_path / "events")
    (port,) = free_ports(1)
    with (
        closing(Place(stack, unique, tmp_path)) as place,
        spark_cluster(tmp_path / "spark", workers=2) as cluster,
    ):
        topic = unique("orders")
        sizes = fill(place.objects, topic, MANY, 1, noise_bytes=LITTLE_NOISE_BYTES)
        pages = {"spark.ui.enabled": "true", "spark.ui.port": str(port)}
        properties = {**DRIVER_PROPERTIES, **QUICK, **crossing.properties, **pages}
        settings = SparkSettings(master=cluster.master, properties=properties, ship_packages=True)
        selection = Selection(region=REGION, topics=[TopicPattern(topic)])
        work = VerifyTask(place.config, selection, VerifyScope(kind=ARCHIVE))
        found: list[Found] = []

        def run() -> None:
            found.extend(on_spark(settings, work, {}, lambda _done, _total: None))

        with crossing.watched():
            killing_one(run, lambda: f"http://{HOST}:{port}", cluster)
        assert [entry["equal"] for entry, _ in found] == [True] * MANY
        assert sum(len(proven) for _, proven in found) == MANY
    crossing.assert_only_plans(sizes, executors=2)


def test_drilled_by_a_cluster(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> None:
    """Restored records are compared on Spark, too, not in the process of the drill."""
    crossing = Crossing(tmp_path / "events")
    with (
        closing(Place(stack, unique, tmp_path)) as place,
        spark_cluster(tmp_path / "spark", workers=2) as cluster,
    ):
        topic = unique("orders")
        sizes = fill(place.objects, topic, PARTITIONS, SEGMENTS, noise_bytes=NOISE_BYTES)
        properties = {**DRIVER_PROPERTIES, **QUICK, **crossing.properties}
        settings = SparkSettings(master=cluster.master, properties=properties, ship_packages=True)
        selection = Selection(region=REGION, topics=[TopicPattern(topic)])
        planning = Crossing(tmp_path / "planning")
        with Restore(place.config, selection, options=Options(spark=settings)) as restore, planning.watched():
            restore.plan()
        scratch = replace(
            place.config,
            kafka=KafkaSettings(base={"bootstrap.servers": stack.brokers["a"].bootstrap}),
            source="scratch",
        )
        drill = Drill(config=place.config, scratch=scratch, selection=selection, spark=settings)
        with crossing.watched():
            drilled = drill.run(Stop())
        records = PARTITIONS * SEGMENTS * ROWS
        assert (drilled.differences, drilled.partitions, drilled.records) == ([], PARTITIONS, records)
    crossing.assert_only_plans(sizes, executors=2, planning=planning)
