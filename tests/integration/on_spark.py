"""What Spark's own pages say of a run on a cluster, one of whose workers is killed in the middle."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from infra.local.spark import SparkCluster
from infra.local.waiting import wait_until
from infra.spark.driver import SparkDriver, SparkSettings
from infra.spark.runner import SparkRunner
from replicator.spark_source.source import register

PATIENCE = timedelta(seconds=180)
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {"spark.driver.extraJavaOptions": QUICK_JAVA, "spark.executor.extraJavaOptions": QUICK_JAVA}


@contextmanager
def source_session(properties: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in which the format "segments" is registered; `properties` are added to QUICK."""
    settings = SparkSettings(master="local[2]", properties={**QUICK, **properties})
    with closing(SparkDriver(settings)) as driver:
        session = SparkSession(driver.context)
        register(session)
        try:
            yield session
        finally:
            session.stop()


def pages_of(spark: SparkRunner | None) -> str | None:
    """Where Spark's own pages are, once it runs."""
    return None if spark is None else spark.ui_url


def executors(pages: str | None) -> list[Mapping[str, Any]]:
    """None while Spark begins, is too busy to tell, or is not there."""
    if pages is None:
        return []
    try:
        with urllib.request.urlopen(f"{pages}/api/v1/applications", timeout=10) as answer:
            [application] = json.load(answer)
        with urllib.request.urlopen(f"{pages}/api/v1/applications/{application['id']}/executors", timeout=10) as answer:
            return list(json.load(answer))
    except (OSError, ValueError):  # "Please wait a while", as text
        return []


def killing_one(run: Callable[[], object], pages: Callable[[], str | None], cluster: SparkCluster) -> None:
    """Kill a worker once each of two executors has carried out a plan."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)

    running = threading.Thread(target=guarded)
    running.start()

    def both_worked() -> bool:
        done = sum(one["completedTasks"] > 0 for one in executors(pages()) if one["id"] != "driver")
        return done >= 2 or not running.is_alive()

    assert wait_until(both_worked, PATIENCE)
    assert running.is_alive(), f"over before a worker could be killed {failed}"
    cluster.kill_worker(1)
    running.join(PATIENCE.total_seconds())
    assert not running.is_alive()
    assert failed == []
