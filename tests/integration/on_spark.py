"""What Spark's own pages say of a run on a cluster, one of whose workers is killed in the middle."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from infra.local.spark import SparkCluster
from infra.local.waiting import wait_until
from infra.spark import SparkRunner

PATIENCE = timedelta(seconds=90)
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {"spark.driver.extraJavaOptions": QUICK_JAVA, "spark.executor.extraJavaOptions": QUICK_JAVA}


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


def killing_one(
    run: Callable[[], object], pages: Callable[[], str | None], cluster: SparkCluster
) -> list[Mapping[str, Any]]:
    """Kill a worker once each of two executors has carried out a plan; what Spark said of its executors."""
    failed: list[BaseException] = []
    seen: dict[str, Mapping[str, Any]] = {}

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)

    running = threading.Thread(target=guarded)
    running.start()

    def both_worked() -> bool:
        seen.update({one["id"]: one for one in executors(pages())})
        done = sum(one["completedTasks"] > 0 for name, one in seen.items() if name != "driver")
        return done >= 2 or not running.is_alive()

    assert wait_until(both_worked, PATIENCE)
    assert running.is_alive(), f"over before a worker could be killed {failed}"
    cluster.kill_worker(1)
    running.join(PATIENCE.total_seconds())
    assert not running.is_alive()
    assert failed == []
    return list(seen.values())


def assert_only_plans_cross(seen: Sequence[Mapping[str, Any]]) -> None:
    """Two executors worked, and nothing but plans and outcomes went between them and the driver."""
    workers = [one for one in seen if one["id"] != "driver"]
    assert sum(one["completedTasks"] > 0 for one in workers) >= 2
    for one in seen:
        assert one["totalInputBytes"] + one["totalShuffleRead"] + one["totalShuffleWrite"] == 0
