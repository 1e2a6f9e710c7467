"""Egress on Spark where something is missing: each says what, and what to do. Nothing listens where Kafka should be."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from formats.errors import ConfigError, TasksNotStarted
from infra.local.identity import identify
from infra.local.ports import free_ports
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.waiting import wait_until
from infra.runtime.java import JavaMissing
from infra.runtime.service import Service
from infra.spark.long_job import TRIES
from replicator.config import parse
from replicator.services.compaction import Compaction
from replicator.services.flow_task import INSTANCE, FlowTask, instance_base
from replicator.services.on_spark import build_on_spark

PATIENCE = timedelta(seconds=180)  # of waits: Spark starts within 20 s, on a busy machine within minutes
ROOT = Path(__file__).resolve().parents[3]
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

FILE = """
region = "a"
[kafka]
"bootstrap.servers" = "127.0.0.1:{kafka}"
{consumer}
[s3]
bucket = "bucket"
[egress]
group_id = "replicator.egress"
shutdown_timeout = "1s"
[egress.topics."a"]
[metrics]
listen = "127.0.0.1:{metrics}"
[compaction]
master = "{master}"
[compaction.spark]
"spark.driver.extraJavaOptions" = "{java}"
{spark}
"""


def service(*, spark: str = "", metrics: int = 0, tasks: int = 1, master: str = "local[1]") -> Service:
    (kafka,) = free_ports(1)
    text = FILE.format(kafka=kafka, metrics=metrics, consumer="", master=master, java=QUICK_JAVA, spark=spark)
    return build_on_spark(parse(text), "egress", tasks=tasks)


def failure(of: Service) -> BaseException:
    of.start()
    with pytest.raises(Exception) as raised:  # noqa: PT011 -- the caller asserts its type and text
        of.join(PATIENCE)
    return raised.value


# ---------- the configuration of a task


def config_of(consumer: str = "", task: int = 1) -> Mapping[str, str]:
    text = FILE.format(kafka=1, metrics=1, consumer=consumer, master="local[1]", java=QUICK_JAVA, spark="")
    config = parse(text)
    built = FlowTask(flow="egress", config=config, instance_base=instance_base(config, "egress")).config_of(task)
    assert built.metrics.listen is None, "the driver serves for all"
    assert built.compaction is None
    return built.cluster.properties("consumer")


def test_each_task_is_a_member_of_its_own() -> None:
    assert config_of()[INSTANCE] == "replicator.egress-1"
    assert config_of(task=2)[INSTANCE] == "replicator.egress-2"


def test_a_configured_instance_is_the_beginning_of_each() -> None:
    assert config_of(f'[kafka.consumer]\n"{INSTANCE}" = "site-7"')[INSTANCE] == "site-7-1"


def test_without_the_section_nothing_starts() -> None:
    text = FILE.format(kafka=1, metrics=1, consumer="", master="local[1]", java=QUICK_JAVA, spark="")
    with pytest.raises(ConfigError, match=r"ingress: missing; add \[ingress\]"):
        build_on_spark(parse(text), "ingress")


def test_where_spark_works_is_no_job_to_run() -> None:
    text = FILE.format(kafka=1, metrics=1, consumer="", master="local[1]", java=QUICK_JAVA, spark="")
    with pytest.raises(ConfigError, match=r"compaction\.jobs: missing"):
        Compaction(parse(text))


def test_no_pyspark() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from replicator.main import main; main()"
    file = ROOT / "infra" / "deploy" / "us-east-1.toml"
    done = subprocess.run(
        [sys.executable, "-c", program, "egress", "--spark", "--config", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KAFKA_PASSWORD": "x"},
        check=False,
    )
    assert "pip install" in done.stderr, done.stderr
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


# ---------- Spark


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert isinstance(failure(service()), JavaMissing)


def interpreter(folder: Path, body: str) -> str:
    """A property that makes the workers run a shell script as their Python."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return f'"spark.pyspark.python" = "{script}"'


def without_packages(python: str) -> str:
    """A script: `python` without what is installed beside it, and without this repository."""
    return (
        f'unset PYTHONHOME; PYTHONPATH=$(echo "$PYTHONPATH" | tr : "\\n" | grep spark | paste -sd :) exec {python} "$@"'
    )


@pytest.mark.parametrize(
    ("script", "part"),
    [
        (lambda folder: f'"spark.pyspark.python" = "{folder}/none"', "cannot run the Python"),
        (
            lambda folder: interpreter(folder, without_packages(f"{sys.base_prefix}/bin/python3 -S")),
            "does not have our packages",
        ),
    ],
    ids=["no such python", "no packages"],
)
def test_a_task_that_cannot_begin_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[Path], str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)  # Python imports from there, too
    error = failure(service(spark=script(tmp_path)))
    assert isinstance(error, TasksNotStarted), error
    assert part in str(error)
    assert "spark" in str(error)


def readiness(port: int) -> Mapping[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))
    except OSError:
        return {}


@pytest.mark.long
def test_a_cluster_too_small_and_a_broker_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (port,) = free_ports(1)
    running = service(metrics=port, tasks=2)
    running.start()

    def problems() -> Mapping[str, str]:
        return dict(readiness(port).get("problems", {}))

    try:
        assert wait_until(lambda: "1 of 2 tasks run" in problems().get("tasks", ""), PATIENCE)
        assert wait_until(lambda: "127.0.0.1" in problems().get("task 0", ""), PATIENCE), problems()
    finally:
        running.stop()
        running.join(PATIENCE)
    assert "threads_left_behind" not in caplog.messages, "a task that never began is not waited for"


@pytest.mark.long
def test_a_service_that_is_stopped_while_spark_starts_begins_no_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stopped = service()
    stopped.start()
    assert wait_until(lambda: SparkContext._gateway is not None, PATIENCE)
    stopped.stop()
    stopped.join(PATIENCE)
    assert "spark_job_begins" not in caplog.messages


HELD = """\
touch {begun}/$$
while [ ! -e {go} ]; do sleep 0.1; done
exec {python} "$@"
"""


@pytest.mark.long
def test_workers_that_are_lost_while_tasks_begin_do_not_end_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However often: the tasks begin on the next one."""
    caplog.set_level(logging.INFO)
    go, begun = tmp_path / "go", tmp_path / "begun"
    begun.mkdir()
    script = interpreter(tmp_path, HELD.format(begun=begun, go=go, python=sys.executable))
    with spark_cluster(tmp_path / "spark", workers=1, cores=TRIES) as cluster:
        address = "\n".join(f'"{name}" = "{value}"' for name, value in DRIVER_PROPERTIES.items())
        running = service(spark=f"{script}\n{address}", tasks=TRIES, master=cluster.master)
        running.start()
        try:
            for workers in (1, 2):
                assert wait_until(lambda workers=workers: len(list(begun.iterdir())) == workers, PATIENCE)  # type: ignore[misc]
                cluster.kill_worker(1)
                cluster.start_worker(1)
            go.touch()
            assert wait_until(lambda: "task_runs" in caplog.messages, PATIENCE), caplog.messages
        finally:
            running.stop()
            running.join(PATIENCE)


@contextmanager
def submitted(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The Java of an egress that spark-submit runs in client mode, and the process id of its Python driver, once both
    tasks have worked. Their log is the file `log` of the folder."""
    kafka, port = free_ports(2)
    file = folder / "submitted.toml"
    file.write_text(
        FILE.format(kafka=kafka, metrics=port, consumer="", master="local[1]", java=QUICK_JAVA, spark=""),
        encoding="ascii",
    )
    command = [
        *(str(Path(_find_spark_home()) / "bin" / "spark-submit"), "--master", "local[2]"),
        *(str(ROOT / "replicator" / "__main__.py"), "egress", "--spark", "--config", str(file)),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}

    def both_have_worked() -> bool:
        """On the two cores of the command, not on the one of the file. One of them says what it misses: Spark kills the
        other one when the first fails, and which one that is, is not known."""
        problems = readiness(port).get("problems", {})
        says_why = any("127.0.0.1" in problems.get(f"task {number}", "") for number in range(2))
        return says_why and "Running task 1.0 in stage" in (folder / "log").read_text()

    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log, env=environment) as java:
        try:
            assert wait_until(both_have_worked, PATIENCE), (folder / "log").read_text()
            yield java, _python_of(str(file))
        finally:
            java.kill()


@pytest.mark.long
def test_by_spark_submit(tmp_path: Path) -> None:
    with submitted(tmp_path) as (java, driver):
        os.kill(driver, signal.SIGTERM)
        assert java.wait(PATIENCE.total_seconds()) == 0, (tmp_path / "log").read_text()


@pytest.mark.long
def test_the_driver_ends_with_the_java_of_spark_submit(tmp_path: Path) -> None:
    """There is no other Java that it could go on with: on YARN, the next attempt of the application is one. Its last
    words are lost, since its output goes through that Java."""
    with submitted(tmp_path) as (java, driver):
        running = identify(driver)
        assert running is not None
        java.kill()
        assert wait_until(lambda: not running.alive(), PATIENCE), (tmp_path / "log").read_text()


@pytest.mark.long
def test_a_standalone_cluster_refuses_to_run_the_driver() -> None:
    """Whatever the command, and before it asks for the master: docs/spark.md says what to do instead."""
    command = [
        *(str(Path(_find_spark_home()) / "bin" / "spark-submit"), "--master", "spark://127.0.0.1:1"),
        *("--deploy-mode", "cluster", str(ROOT / "replicator" / "__main__.py"), "compact", "--once"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "not supported for python applications on standalone clusters" in done.stderr, done.stderr
    assert done.returncode != 0


def _python_of(file: str) -> int:
    """The process that runs with a configuration file, and is no Java."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                words = (process / "cmdline").read_text().split("\0")
                if file in words and "java" not in words[0]:
                    found.append(int(process.name))
    return max(found)
