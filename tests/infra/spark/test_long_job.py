"""Settings of Spark for tasks that do not end."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from infra.local.ports import HOST, free_ports
from infra.runtime.workers.supervisor_parts import SupervisorParts
from infra.spark.driver import SparkDriver, SparkSettings
from infra.spark.long_job import NEVER, LongJob, long_settings

if TYPE_CHECKING:
    from infra.runtime.workers.attempt import ServiceBuilder


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("local", f"local[1,{NEVER}]"),
        ("local[2]", f"local[2,{NEVER}]"),
        ("local[*,4]", f"local[*,{NEVER}]"),
        ("spark://local:7077", "spark://local:7077"),
        ("yarn", "yarn"),
    ],
)
def test_neither_lost_tasks_nor_lost_executors_end_the_job(master: str, wanted: str) -> None:
    settings = long_settings(SparkSettings(master=master), 2)
    assert settings.master == wanted
    assert settings.properties["spark.task.maxFailures"] == NEVER
    assert settings.properties["spark.executor.maxNumFailures"] == NEVER
    assert settings.properties["spark.python.worker.reuse"] == "false"


def test_so_many_tasks_take_so_many_cores_of_a_cluster() -> None:
    cluster = SparkSettings(master="spark://h:1", properties={"spark.task.cpus": "2"})
    assert long_settings(cluster, 3).properties["spark.cores.max"] == "6"
    assert "spark.cores.max" not in long_settings(cluster, None).properties
    assert "spark.cores.max" not in long_settings(SparkSettings(master="local[4]"), 3).properties


def test_what_the_user_sets_stands() -> None:
    own = SparkSettings(master="spark://h:1", properties={"spark.cores.max": "9", "spark.task.maxFailures": "7"})
    found = long_settings(own, 2).properties
    assert (found["spark.cores.max"], found["spark.task.maxFailures"]) == ("9", "7")


class Conf(dict[str, str]):
    """Spark's configuration, as spark-submit left it."""

    def getAll(self) -> list[tuple[str, str]]:
        return list(self.items())

    def setAll(self, pairs: list[tuple[str, str]]) -> Conf:
        self.update(pairs)
        return self


class Context:
    """A SparkContext without Java."""

    def __init__(self, conf: Conf) -> None:
        self._conf, self.pythonExec = conf, "python-of-environment"

    def getConf(self) -> Conf:
        return self._conf

    def stop(self) -> None:
        pass


def joined(
    monkeypatch: pytest.MonkeyPatch, submitted: dict[str, str], own: dict[str, str], tasks: int | None = 4
) -> SparkDriver:
    """The driver of a job whose command was given to spark-submit."""
    conf = Conf({"spark.master": "spark://h:1"} | submitted)
    monkeypatch.setattr("infra.spark.driver.is_submitted", lambda: True)
    monkeypatch.setattr("infra.spark.driver._submitted_gateway", lambda _: SimpleNamespace(jvm=None))
    monkeypatch.setattr("infra.spark.driver.SparkConf", lambda **_: conf)
    monkeypatch.setattr("infra.spark.driver.SparkContext", lambda conf, gateway: Context(conf))
    monkeypatch.setattr("infra.spark.driver.SparkFiles", SimpleNamespace(getRootDirectory=lambda: "no such folder"))
    return SparkDriver(SparkSettings(properties=own), prepared=partial(long_settings, tasks=tasks))


@pytest.mark.parametrize(
    ("submitted", "own", "name", "wanted"),
    [
        ({}, {}, "spark.cores.max", "4"),
        ({}, {}, "spark.task.maxFailures", NEVER),
        ({"spark.cores.max": "8"}, {}, "spark.cores.max", "8"),
        ({"spark.cores.max": "8"}, {"spark.cores.max": "6"}, "spark.cores.max", "6"),
        ({"spark.task.cpus": "2"}, {}, "spark.cores.max", "8"),
        ({"spark.task.cpus": "2"}, {"spark.task.cpus": "3"}, "spark.cores.max", "12"),
        ({"spark.master": "local[2]"}, {}, "spark.cores.max", None),
        ({"spark.task.maxFailures": "7"}, {}, "spark.task.maxFailures", "7"),
        ({"spark.executor.maxNumFailures": "7"}, {}, "spark.executor.maxNumFailures", "7"),
        ({"spark.python.worker.reuse": "true"}, {}, "spark.python.worker.reuse", "true"),
    ],
)
def test_what_is_submitted_stands_between_our_defaults_and_the_file(
    monkeypatch: pytest.MonkeyPatch, submitted: dict[str, str], own: dict[str, str], name: str, wanted: str | None
) -> None:
    driver = joined(monkeypatch, submitted, own)
    assert driver.context.getConf().get(name) == wanted
    assert driver.settings.master == submitted.get("spark.master", "spark://h:1")


@pytest.mark.parametrize(
    ("own", "wanted"), [({}, "python-of-environment"), ({"spark.pyspark.python": "/opt/python"}, "/opt/python")]
)
def test_the_interpreter_of_the_file_counts_under_spark_submit(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], wanted: str
) -> None:
    assert joined(monkeypatch, {}, own).context.pythonExec == wanted


def test_the_port_of_the_tasks_may_be_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    (free,) = free_ports(1)
    submitted = {"spark.replicator.port": str(free), "spark.driver.bindAddress": HOST, "spark.driver.host": "far.away"}
    driver = joined(monkeypatch, submitted, {})
    with ExitStack() as opened:
        parts = SupervisorParts(resources=opened)
        builder = cast("ServiceBuilder", None)
        job = LongJob(settings=SparkSettings(), tasks=1, builder=builder, drain_within=timedelta(), parts=parts)
        port = job._opened_port(driver, 1)
        assert port.port == free, "and nothing listens at far.away"
