"""Egress, ingress and a compaction that `spark-submit` hands over to YARN in cluster mode: nothing is lost, nothing
comes twice.

spark-submit ──> ResourceManager ──> NodeManager ──> container: Java (ApplicationMaster) ──> Python (the driver)
                                                     container: Java (executor)          ──> Python (a task)

The containers' Python has our dependencies, and no installation of our own packages: these are in the wheel.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.find_spark_home import _find_spark_home

from infra.local.yarn import YarnCluster, yarn_cluster
from tests.infra.deploy.wheels import build
from tests.processes.flow import Flow
from tests.processes.harness import ROOT, OnSpark, Site, Worker, log_lines

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(minutes=5)  # an application begins within half a minute on a machine that does nothing else
MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
EXECUTOR = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
SMALL: Mapping[str, str] = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "1",
    "spark.executor.maxNumFailures": "1000000",
    "spark.yarn.am.waitTime": "10m",  # for Python's part of the start: 100 s are too few on a machine with other work
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
ON_SPARK = OnSpark(tasks=1, master="local[2]")  # a master that the submitted one replaces


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as running:
        yield running
    assert not running.processes(), "containers were left behind"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@dataclass(frozen=True, slots=True)
class Application:
    """One that was submitted."""

    cluster: YarnCluster
    name: str  # YARN's

    @property
    def final_status(self) -> str:
        """YARN's: UNDEFINED until it has ended."""
        return str(self.cluster.applications()[self.name]["finalStatus"])

    def logged(self, event: str) -> list[Mapping[str, Any]]:
        """Lines of one event in the logs of its containers."""
        return [line for file in self.cluster.logs(self.name) for line in log_lines(file.read_bytes(), event)]

    def driver(self) -> int:
        """The process id of its Python driver, which has a command's words in its command line."""
        (found,) = [pid for pid, words in self._processes() if "--config" in words and "java" not in words[0]]
        return found

    def master(self) -> int:
        """The process id of the Java above its driver."""
        (found,) = [pid for pid, words in self._processes() if words[0].endswith("/java") and MASTER in words]
        return found

    def executors(self) -> list[int]:
        """The process ids of the Java of its executors."""
        return [pid for pid, words in self._processes() if words[0].endswith("/java") and EXECUTOR in words]

    def _processes(self) -> list[tuple[int, Sequence[str]]]:
        return list(self.cluster.processes(self.name).items())


@dataclass(frozen=True, slots=True)
class Submitter:
    """Hands commands over to YARN, and waits for what becomes of them."""

    site: Site
    cluster: YarnCluster
    wheel: Path

    def submit(self, worker: Worker, *command: str) -> Application:
        """A command with the configuration of `worker`. It may not yet run when this returns."""
        worker.write(worker.tables)
        properties = {**SMALL, **self.cluster.properties}
        properties |= {f"spark.yarn.appMasterEnv.{name}": self.site.environment[name] for name in CREDENTIALS}
        properties |= {f"spark.executorEnv.{name}": self.site.environment[name] for name in CREDENTIALS}
        submitted = subprocess.run(
            [
                *(str(Path(_find_spark_home()) / "bin" / "spark-submit"), "--master", "yarn"),
                *("--deploy-mode", "cluster", "--py-files", str(self.wheel)),
                *("--files", str(self.site.folder / f"{worker.name}.toml")),
                *(word for name, value in properties.items() for word in ("--conf", f"{name}={value}")),
                *(str(ROOT / "replicator" / "__main__.py"), *command, "--config", f"{worker.name}.toml"),
            ],
            env={**self.site.environment, **self.cluster.environment, **self.python()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert submitted.returncode == 0, submitted.stderr
        (name,) = set(re.findall(r"\bapplication_\d+_\d+\b", submitted.stderr))
        return Application(self.cluster, name)

    def egress(self, worker: Worker) -> Application:
        return self.submit(worker, "egress", *ON_SPARK.options)

    def ingress(self, worker: Worker) -> Application:
        return self.submit(worker, "ingress", *ON_SPARK.options)

    @staticmethod
    def python() -> Mapping[str, str]:
        """Variables that spark-submit hands over to every container: an interpreter without our packages, and our
        dependencies. An editable installation works by a file that is not read there."""
        return {
            "PYSPARK_PYTHON": f"{sys.base_prefix}/bin/python{sysconfig.get_python_version()}",
            "PYTHONPATH": sysconfig.get_path("purelib"),
        }

    def runs(self, application: Application, *, attempts: int = 1) -> None:
        """Its task works, of the last of so many drivers."""

        def works() -> bool:
            assert application.final_status == "UNDEFINED", explained(application)
            return len(application.logged("task_runs")) >= attempts

        self.wait(application, "a task", works)
        assert len(application.logged("spark_job_begins")) == attempts, explained(application)

    def ended(self, application: Application, wanted: str) -> None:
        """With this final status, and without a process."""
        self.wait(application, "its end", lambda: application.final_status != "UNDEFINED")
        assert application.final_status == wanted, explained(application)
        self.wait(application, "no process of it", lambda: not self.cluster.processes(application.name))

    def wait(self, application: Application, what: str, check: Callable[[], bool]) -> None:
        try:
            self.site.wait(what, check, PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{explained(application)}") from None


CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def at_once(*calls: Callable[[], Application]) -> list[Application]:
    """spark-submit takes a while, mostly to start."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result() for one in [threads.submit(call) for call in calls]]


def explained(application: Application) -> str:
    """What YARN shows of it, and the ends of its logs."""
    shown = application.cluster.applications()[application.name]
    logs = application.cluster.logs(application.name)
    return "\n".join([str(shown), *(f"--- {log}\n{log.read_text(errors='replace')[-4000:]}" for log in logs)])


def test_in_cluster_mode(site: Site, cluster: YarnCluster, wheel: Path) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    yarn = Submitter(site, cluster, wheel)
    with Flow(site, partitions=2) as flow:
        of_egress = site.egress("egress", {flow.topic: {}}, spark=ON_SPARK)
        of_ingress = site.ingress("ingress", {"topic": flow.topic}, spark=ON_SPARK)
        egress, ingress = at_once(lambda: yarn.egress(of_egress), lambda: yarn.ingress(of_ingress))
        with flow.traffic(seed=seed, most=90) as traffic:
            yarn.runs(egress)
            flow.wait_for_more(100, PATIENCE)

            cluster.kill(ingress.name)
            yarn.ended(ingress, "KILLED")
            ingress = yarn.ingress(of_ingress)
            os.kill(egress.master(), signal.SIGKILL)  # YARN begins another attempt of the application
            yarn.runs(ingress)
            yarn.runs(egress, attempts=2)
            flow.wait_for_more(50, PATIENCE)

            for executor in ingress.executors():
                os.kill(executor, signal.SIGKILL)
            yarn.wait(ingress, "the task on another executor", lambda: len(ingress.logged("task_runs")) >= 2)
            flow.wait_for_more(50, PATIENCE)
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        flow.wait_for_archive(PATIENCE)
        for application in (egress, ingress):
            os.kill(application.driver(), signal.SIGTERM)
            yarn.ended(application, "SUCCEEDED")
            assert application.logged("task_drained")
        print(flow.judge_target(rewinds=0))
        flow.judge_archive()

        before = len(site.keys())
        yarn.ended(yarn.submit(site.compaction("compact"), "compact", "--once"), "SUCCEEDED")
        assert len(site.keys()) < before
        flow.judge_archive()
        yarn.ended(yarn.submit(site.compaction("compact"), "compact", "--once"), "SUCCEEDED")  # nothing is left to do
