"""A real Spark cluster on this machine: a standalone master and its workers, Java processes of PySpark's own.

spark_cluster ──pipe──> supervisor ──> spark-master, spark-worker-1, spark-worker-2 ──> executors
    └ <dir>/logs/{spark-master,spark-worker-1,spark-worker-2,supervisor}.log
      <dir>/spark-worker-1/<application>/<executor>/{stdout,stderr}
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.find_spark_home import _find_spark_home

from infra.local.errors import LocalStackError, with_log
from infra.local.json_page import json_page
from infra.local.ports import HOST
from infra.local.process import Supervisor
from infra.local.server import START_TIMEOUT, Server
from infra.local.waiting import wait_until
from infra.runtime.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from infra.local.process import Process
    from infra.runtime.java import Java

REQUEST_SECONDS = 5.0
NOTICE_TIMEOUT = timedelta(seconds=30)
_CLASSES = "org.apache.spark.deploy"
_DAEMON_OPTIONS = (
    "-XX:-UsePerfData "  # else a killed process leaves a file in the temporary folder
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "  # small and quick to start
    "-Dspark.decommission.enabled=true "
    "-Dspark.port.maxRetries=0 "  # a master whose port is taken has to fail, not to listen on the next port
    "-Dspark.master.rest.enabled=false"  # a fixed port without clients
)

# Properties that an application on this cluster has to set: the driver's address.
DRIVER_PROPERTIES: Mapping[str, str] = MappingProxyType({"spark.driver.host": HOST, "spark.driver.bindAddress": HOST})


@contextmanager
def spark_cluster(
    dir: Path | None = None,  # noqa: A002 - the same name as in LocalStack
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    hosts: Sequence[str] = (HOST,),
) -> Iterator[SparkCluster]:
    """Run a cluster: every worker is registered within the block, and no process remains after it. `dir`: folder for
    data and logs, kept; None: a folder that is removed at the end. `cores` and `memory`: those of each worker. `hosts`:
    loopback addresses that are distributed over the workers; Spark speculates on another host only. Raises
    LocalStackError with the last lines of a log."""
    java = find_java()
    folder = Path(tempfile.mkdtemp(prefix="replicator-spark-")) if dir is None else dir.absolute()
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    owner = Supervisor(log=logs / "supervisor.log", remove=(folder,) if dir is None else ())
    try:
        cluster = SparkCluster(folder=folder, log_dir=logs, java=java, owner=owner)
        cluster.start(workers=workers, cores=cores, memory=memory, hosts=hosts)
        yield cluster
    finally:
        owner.close()


class SparkCluster:
    """A master and its workers; they end with `owner`. Executors share their worker's process group, so they are killed
    with it, and Spark's Python processes end when their executor does."""

    def __init__(self, *, folder: Path, log_dir: Path, java: Java, owner: Supervisor) -> None:
        self.log_dir = log_dir
        self._folder = folder
        self._java = java
        self._owner = owner
        self._web_port = 0
        self._workers: list[Process] = []
        self._commands: list[tuple[str, Sequence[str]]] = []  # host and arguments of each worker
        self._master = Server(
            name="spark-master",
            log=log_dir / "spark-master.log",
            port_count=2,
            launch=self._launch_master,
            answers=lambda: self._state() is not None,
            abort=threading.Event(),
        )

    @property
    def master(self) -> str:
        """The master URL for an application."""
        return f"spark://{self._master.address}"

    def start(self, *, workers: int, cores: int, memory: str, hosts: Sequence[str]) -> None:
        """Start the processes; all workers are registered with the master when this returns."""
        self._master.start(START_TIMEOUT)
        for number in range(1, workers + 1):
            name = f"spark-worker-{number}"
            given = ("--cores", str(cores), "--memory", memory, "--work-dir", str(self._folder / name))
            # The system chooses the worker's ports, so no other process can take them first. No client needs them.
            ports = ("--port", "0", "--webui-port", "0")
            self._commands.append((hosts[(number - 1) % len(hosts)], (*given, *ports, self.master)))
            self._workers.append(self._launch_worker(number))
        if not wait_until(self._all_registered, START_TIMEOUT):
            raise LocalStackError(
                with_log(f"{workers} workers have not registered with {self.master}", self._master.log)
            )

    def alive_workers(self) -> int:
        """According to the master. Raises LocalStackError if it does not answer."""
        if (state := self._state()) is None:
            raise LocalStackError(with_log(f"no answer from the Spark master at {self.master}", self._master.log))
        return int(state["aliveworkers"])

    def kill_worker(self, number: int) -> None:
        """SIGKILL to worker `number`, counted from 1, and to its executors. The master has noticed when this
        returns."""
        before, worker = self.alive_workers(), self._workers[number - 1]
        worker.kill()
        if not wait_until(lambda: self.alive_workers() < before, NOTICE_TIMEOUT):
            raise LocalStackError(with_log(f"the Spark master did not notice the end of {worker.name}", worker.log))

    def decommission_worker(self, number: int) -> None:
        """Announce the end of worker `number`, as Spark's `decommission-worker.sh` does: its executors begin nothing
        new, and it runs until it is killed. The master knows when this returns."""
        before, worker = self.alive_workers(), self._workers[number - 1]
        os.kill(worker.pid, signal.SIGPWR)  # its executors are of the same group, and learn of it from the master
        if not wait_until(lambda: self.alive_workers() < before, NOTICE_TIMEOUT):
            raise LocalStackError(with_log(f"the Spark master was not informed that {worker.name} ends", worker.log))

    def end_worker(self, number: int) -> None:
        """SIGKILL to a worker that was decommissioned, and to its executors."""
        self._workers[number - 1].kill()

    def pids(self) -> Sequence[int]:
        """Of the master and the workers; all else descends from them."""
        return [one.pid for name, one in self._owner.identities().items() if name.startswith("spark-")]

    def worker_pid(self, number: int) -> int:
        """Of its Java process; executors and their Python processes descend from it."""
        return self._workers[number - 1].pid

    def start_worker(self, number: int) -> None:
        """Start worker `number` again, after `kill_worker` or `end_worker`. It is registered when this returns."""
        before = self.alive_workers()
        self._workers[number - 1] = self._launch_worker(number)
        if not wait_until(lambda: self.alive_workers() > before, START_TIMEOUT):
            raise LocalStackError(
                with_log(f"worker {number} has not registered with {self.master}", self._workers[number - 1].log)
            )

    def _launch_worker(self, number: int) -> Process:
        host, arguments = self._commands[number - 1]
        return self._launch(f"spark-worker-{number}", "worker.Worker", *arguments, host=host)

    def _launch_master(self, ports: tuple[int, ...]) -> Process:
        port, self._web_port = ports
        return self._launch("spark-master", "master.Master", "--port", str(port), "--webui-port", str(self._web_port))

    def _launch(self, name: str, main_class: str, *arguments: str, host: str = HOST) -> Process:
        home = Path(_find_spark_home())
        command = [str(home / "bin" / "spark-class"), f"{_CLASSES}.{main_class}", "--host", host, *arguments]
        return self._owner.start(
            name, command, log=self.log_dir / f"{name}.log", cwd=self._folder, env=self._environment(home, host)
        )

    def _environment(self, home: Path, host: str) -> dict[str, str]:
        """The user's environment without Spark variables; temporary files in the folder, every port on the loopback
        address."""
        temp = self._folder / "tmp"
        temp.mkdir(exist_ok=True)
        return {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))} | {
            "JAVA_HOME": str(self._java.home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(temp),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
            # for executors, too: files unpacked by a killed one are removed with the folder
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={temp}".strip(),
            "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        }

    def _all_registered(self) -> bool:
        for worker in self._workers:
            if (code := worker.poll()) is not None:
                raise LocalStackError(with_log(f"{worker.name} ended with {code}", worker.log))
        return self.alive_workers() == len(self._workers)

    def _state(self) -> dict[str, Any] | None:
        """The master's own state; None if nothing answers, or another process does on its port."""
        state = json_page(self._web_port, "/json/", seconds=REQUEST_SECONDS)
        return state if state is not None and state.get("url") == self.master else None
