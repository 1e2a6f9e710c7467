"""Settings of Spark for tasks that do not end."""

from __future__ import annotations

import pytest

from infra.spark.driver import SparkSettings
from infra.spark.long_job import NEVER, long_settings


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
