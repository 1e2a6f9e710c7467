"""What an operator reads when a task cannot begin. The lines are of Spark 4.3's log."""

from __future__ import annotations

import pytest

from infra.spark.task_failures import explain, has_lost_its_executor

LOST = (
    "WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.7 executor 1): "
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\\n"
    '  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main\\n    func()\\n'
)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            LOST + "ModuleNotFoundError: No module named 'replicator'\\n\\n",
            ["our packages", "--py-files", "ship_packages"],
        ),
        (
            LOST + "ModuleNotFoundError: No module named 'confluent_kafka'\\n",
            ["the package confluent_kafka", "spark.archives"],
        ),
        (
            LOST + "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.\\n",
            ["Python is 3.12, the driver's 3.11", "spark.pyspark.python"],
        ),
        (
            "WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0) (h executor 1): java.io.IOException: "
            'Cannot run program "/opt/python": error=2, No such file or directory\\n\\tat java.base/java.lang',
            ["cannot run the Python '/opt/python'", "spark.pyspark.python"],
        ),
        (
            LOST + "infra.runtime.workers.attempt.DriverUnreachable: a task on w cannot reach the driver at d:1: timed "
            "out; set spark.driver.host to an address\\n",
            ["cannot reach the driver at d:1", "spark.driver.host"],
        ),
    ],
    ids=["package", "dependency", "version", "python", "driver"],
)
def test_reason_and_remedy(line: str, parts: list[str]) -> None:
    found = explain(line)
    assert "\n" not in found
    for part in parts:
        assert part in found


def test_anything_else_is_its_own_explanation() -> None:
    assert explain("Lost task 1.0: ExecutorLostFailure") == "Lost task 1.0: ExecutorLostFailure"
    assert explain("") == ""


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        ("ExecutorLostFailure (executor 0 exited unrelated to the running tasks) Reason: worker lost", True),
        ("ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: code 137", False),
        ("java.io.IOException: Cannot run program: unrelated to the running tasks", False),
    ],
)
def test_an_attempt_whose_worker_ended_did_not_fail_by_itself(error: str, lost: bool) -> None:
    assert has_lost_its_executor(error) == lost
