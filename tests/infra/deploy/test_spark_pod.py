"""The entry point of the image `spark`: the program, and an executor of a driver elsewhere, as Kubernetes starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.ports import HOST, free_ports
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.waiting import wait_until
from infra.runtime.java import find_java
from infra.spark.driver import SparkSettings
from infra.spark.runner import SparkRunner
from tests.infra.deploy.images import DOCKERFILE
from tests.integration.answers import all_answered

SCRIPT = DOCKERFILE.with_name("spark-pod.sh")
BIN = Path(sys.executable).parent
PATIENCE = timedelta(minutes=2)


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """The script beside the programs of a virtual environment, as in the image."""
    for name in ("python", "replicator", "spark-submit", "find_spark_home.py"):
        program = tmp_path / name
        if name.endswith(".py"):
            program.symlink_to(BIN / name)
        else:  # a link would not find the environment's packages
            program.write_text(f'#!/bin/sh\nexec "{BIN / name}" "$@"\n')
            program.chmod(0o755)
    return Path(shutil.copy(SCRIPT, tmp_path / "spark-pod"))


@pytest.mark.parametrize("arguments", [["--help"], ["compact", "--help"], ["egress", "a word"]])
def test_other_arguments_are_those_of_the_program(pod: Path, arguments: list[str]) -> None:
    ran = [
        subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        for program in (pod, BIN / "replicator")
    ]
    by_pod, alone = [(one.returncode, one.stdout, one.stderr) for one in ran]
    assert by_pod == alone


def words_of(pod: Path, *arguments: str, instead_of: str, **environment: str) -> list[str]:
    """The arguments with which the script starts `instead_of`, which is a program beside it or on the path."""
    program = pod.with_name(instead_of)
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "HADOOP_"))}
    path = f"{pod.parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        [pod, *arguments], capture_output=True, text=True, check=True, env={**inherited, "PATH": path, **environment}
    )
    return ran.stdout.split("\0")[:-1]


def test_a_driver_is_submitted_in_the_mode_client_with_its_arguments_as_they_are(pod: Path) -> None:
    arguments = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/submit.py", "egress", "a word"]
    words = words_of(pod, "driver", *arguments, instead_of="spark-submit", SPARK_DRIVER_BIND_ADDRESS="10.0.0.7")
    assert words == ["--conf", "spark.driver.bindAddress=10.0.0.7", "--deploy-mode", "client", *arguments]


@pytest.mark.parametrize(
    ("environment", "class_path"),
    [
        ({}, "HOME/conf:HOME/jars/*"),
        ({"SPARK_CLASSPATH": "/extra/*:/a b.jar"}, "HOME/conf:/extra/*:/a b.jar:HOME/jars/*"),
        ({"SPARK_CONF_DIR": "/spark/conf"}, "/spark/conf:HOME/jars/*"),
        ({"HADOOP_CONF_DIR": "/hadoop/conf"}, "HOME/conf:/hadoop/conf:HOME/jars/*"),
        (
            {"SPARK_CLASSPATH": "/extra.jar", "SPARK_CONF_DIR": "/spark/conf", "HADOOP_CONF_DIR": "/hadoop/conf"},
            "/spark/conf:/hadoop/conf:/extra.jar:HOME/jars/*",
        ),
    ],
)
def test_an_executor_has_the_class_path_that_it_has_in_the_images_of_spark(
    pod: Path, environment: dict[str, str], class_path: str
) -> None:
    """`SPARK_CLASSPATH` is `spark.executor.extraClassPath`, which comes before Spark's own jars."""
    home = str(pod.parent / "home")
    of_executor = {**executor_variables("app", 7077), "SPARK_HOME": home, **environment}
    words = words_of(pod, "executor", instead_of="java", **of_executor)
    assert words[words.index("-cp") + 1] == class_path.replace("HOME", home)
    assert words[words.index("-cp") + 2] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


@pytest.mark.long
@pytest.mark.integration
def test_an_executor_works_for_a_driver_elsewhere(pod: Path, tmp_path: Path) -> None:
    """A standalone master without workers stands for Kubernetes: the driver waits for an executor to register."""
    (port,) = free_ports(1)
    properties = {**DRIVER_PROPERTIES, "spark.driver.port": str(port)}
    with spark_cluster(tmp_path / "spark", workers=0) as cluster:
        runner = SparkRunner(SparkSettings(master=cluster.master, properties=properties))
        answers: list[str] = []
        working = threading.Thread(
            target=lambda: answers.extend(all_answered(runner.run(["a", "b"], str.upper))), daemon=True
        )
        working.start()
        try:
            assert wait_until(lambda: runner.application_id is not None, PATIENCE)
            with (tmp_path / "executor.log").open("wb") as log:
                executor = subprocess.Popen([pod, "executor"], stderr=log, env=of_pod(str(runner.application_id), port))
            try:
                assert wait_until(lambda: not working.is_alive(), PATIENCE), (tmp_path / "executor.log").read_text()
                words = Path(f"/proc/{executor.pid}/cmdline").read_text().split("\0")
            finally:
                executor.kill()
                executor.wait()
        finally:
            runner.close()
    assert answers == ["A", "B"]
    assert words[1:4] == ["-XX:TieredStopAtLevel=1", "-Dreplicator.spaced=two words", "-Dreplicator.last=10"]


def of_pod(application: str, port: int) -> dict[str, str]:
    """What a driver sets in an executor's pod, and what the image has."""
    path = f"{find_java().home}/bin:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **executor_variables(application, port)}


def executor_variables(application: str, port: int) -> dict[str, str]:
    """What a driver sets in an executor's pod. `port`: of the driver."""
    return {
        "SPARK_JAVA_OPT_0": "-XX:TieredStopAtLevel=1",
        "SPARK_JAVA_OPT_10": "-Dreplicator.last=10",
        "SPARK_JAVA_OPT_2": "-Dreplicator.spaced=two words",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{HOST}:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": application,
        "SPARK_EXECUTOR_POD_IP": HOST,
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_LOCAL_IP": HOST,
    }
