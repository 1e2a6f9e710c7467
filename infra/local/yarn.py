"""A real YARN cluster on this machine: Hadoop's ResourceManager and one NodeManager, of the Hadoop that PySpark has.

yarn_cluster ──pipe──> supervisor ──> resource-manager, node-manager ──> containers (each in a session of its own)
    ├ <cache>/yarn-3.5.0/*.jar                       fetched once, as Kafka's are
    ├ <dir>/logs/{resource-manager,node-manager}.log
    ├ <dir>/conf/{core-site,yarn-site}.xml           HADOOP_CONF_DIR of an application
    └ <dir>/node/logs/<application>/<container>/{stdout,stderr}

Rules:
1. A container is no member of its NodeManager's process group. The NodeManager ends its containers when it gets
   SIGTERM; what then still works in a container's folder is killed.
2. Everything listens on the loopback address, and YARN believes the name of the user who asks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from pyspark.find_spark_home import _find_spark_home

from infra.local.cache import cache_dir
from infra.local.errors import LocalStackError, with_log
from infra.local.jars import JarSet, fetched
from infra.local.json_page import json_page
from infra.local.ports import HOST, free_ports
from infra.local.process import Supervisor
from infra.local.waiting import wait_until
from infra.runtime.java import find_java
from infra.runtime.log4j import console_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from infra.local.process import Process
    from infra.runtime.java import Java

START_TIMEOUT = timedelta(minutes=5)  # web pages included; 20 s on a machine that does nothing else
GRACE = timedelta(seconds=30)  # a NodeManager waits for the end of its containers
REQUEST_SECONDS = 10.0
ASK_AGAIN = timedelta(milliseconds=200)
BOUNCY_CASTLE = "1.80"  # which the ResourceManager needs, and hadoop-client-minicluster has not
FROM_PYSPARK = (
    *("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "slf4j-api-*.jar", "jcl-over-slf4j-*.jar"),
    *("log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-1.2-api-*.jar"),
)
_SERVER = "org.apache.hadoop.yarn.server"
_CLIENT = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_JAVA_OPTIONS = ("-Xmx256m", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG4J = console_log("%d{ISO8601} %p %c{1}: %m%n", "info")


@contextmanager
def yarn_cluster(
    dir: Path | None = None,  # noqa: A002 - the same name as in LocalStack
    *,
    cores: int = 8,
    memory_mb: int = 8192,
) -> Iterator[YarnCluster]:
    """Run a cluster of one node: it is registered within the block, and neither its processes nor a container remain
    after it. `dir`: folder for data and logs, kept; None: a folder that is removed at the end. `cores` and `memory_mb`
    (MiB): what all containers together may take. Fetches the jars at the first call on a machine. Raises
    LocalStackError with the last lines of a log."""
    java = find_java()
    jars = yarn_jars(java)
    folder = Path(tempfile.mkdtemp(prefix="replicator-yarn-")) if dir is None else dir.absolute()
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        owner = Supervisor(log=logs / "supervisor.log", remove=(folder,) if dir is None else (), grace=GRACE)
        stack.callback(owner.close)
        cluster = YarnCluster(folder=folder, jars=jars, java=java, owner=owner)
        stack.callback(cluster.end_containers)  # while YARN can do it
        cluster.start(cores=cores, memory_mb=memory_mb)
        yield cluster


def yarn_jars(java: Java, cache: Path | None = None) -> tuple[Path, ...]:
    """The class path of YARN in the version of PySpark's Hadoop, in order. As safe as `kafka_jars`, and it raises the
    same."""
    pyspark = Path(_find_spark_home()) / "jars"
    shared = [jar for pattern in FROM_PYSPARK for jar in sorted(pyspark.glob(pattern))]
    version = hadoop_version(shared)
    packages = f"org.apache.hadoop:hadoop-client-minicluster:{version},org.bouncycastle:bcpkix-jdk18on:{BOUNCY_CASTLE}"
    folder = (cache or cache_dir()) / f"yarn-{version}"
    return (*fetched(java, JarSet(f"YARN {version}", packages, folder, _beside_pysparks)), *shared)


def hadoop_version(jars: Sequence[Path]) -> str:
    """Raises LocalStackError if PySpark has no Hadoop, or two."""
    prefix = "hadoop-client-api-"
    found = [jar.stem.removeprefix(prefix) for jar in jars if jar.name.startswith(prefix)]
    if len(found) != 1:
        raise LocalStackError(f"PySpark's jars name {len(found)} versions of Hadoop, not one: {found}")
    return found[0]


def _beside_pysparks(fetched: Path) -> list[Path]:
    return [jar for jar in fetched.glob("*.jar") if "minicluster" in jar.name or "bouncycastle" in jar.name]


class YarnCluster:
    """A ResourceManager and a NodeManager; they end with `owner`."""

    def __init__(self, *, folder: Path, jars: Sequence[Path], java: Java, owner: Supervisor) -> None:
        self.log_dir = folder / "logs"
        self.conf_dir = folder / "conf"
        self.conf_dir.mkdir()
        self.temp_dir = folder / "tmp"  # of the containers, too
        self.temp_dir.mkdir()
        self._node_dir = folder / "node"
        self._jars, self._java, self._owner = jars, java, owner
        self._web_port = 0

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a process that submits an application."""
        return {"HADOOP_CONF_DIR": str(self.conf_dir), "JAVA_HOME": str(self._java.home)}

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties that an application has to set on this machine: Spark's jars are not copied to each container, and
        what is sent to them lies in the cluster's folder first. Spark hands its variables over from the driver to the
        executors; set for the node, each would get this one twice, joined by a colon."""
        return {
            "spark.yarn.jars": f"local:{_find_spark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file:{self.temp_dir}/staging",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": HOST,
        }

    def start(self, *, cores: int, memory_mb: int) -> None:
        """Start the processes, both at once; the node is registered when this returns."""
        self._configure(cores=cores, memory_mb=memory_mb)
        servers = [
            self._launch("resource-manager", "resourcemanager.ResourceManager"),
            self._launch("node-manager", "nodemanager.NodeManager"),
        ]
        if not wait_until(lambda: self._has_node(servers), START_TIMEOUT, interval=ASK_AGAIN):
            log = servers[-1].log
            raise LocalStackError(with_log("the node has not registered with its ResourceManager", log))

    def applications(self) -> Mapping[str, Mapping[str, Any]]:
        """What the ResourceManager shows of each application, by its id, in order of their start. Raises
        LocalStackError if it does not answer."""
        if (found := self._ask("apps")) is None:
            raise LocalStackError(with_log("no answer from the ResourceManager", self.log_dir / "resource-manager.log"))
        listed = (found["apps"] or {}).get("app", [])
        return {one["id"]: one for one in sorted(listed, key=lambda one: str(one["id"]))}

    def kill(self, application: str) -> None:
        """As `yarn application -kill` does, with the same class. Its containers may still be ending when this
        returns."""
        done = subprocess.run(
            [*self._command(_CLIENT), "application", "-kill", application],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LocalStackError(f"cannot kill {application}: {done.stderr}")

    def logs(self, application: str) -> Sequence[Path]:
        """What its containers have written, on standard output and error."""
        return sorted((self._node_dir / "logs" / application).glob("*/std*"))

    def processes(self, application: str = "") -> Mapping[int, Sequence[str]]:
        """The command line of each process in a container, by its process id: of one application, or of all."""
        found: dict[int, Sequence[str]] = {}
        for process in Path("/proc").iterdir():
            with suppress(OSError):  # it has ended, or belongs to another user
                if process.name.isdigit():
                    folder = (process / "cwd").readlink()
                    if folder.is_relative_to(self._node_dir) and (not application or application in folder.parts):
                        found[int(process.name)] = (process / "cmdline").read_text().split("\0")
        return found

    def end_containers(self) -> None:
        """End every application and every process of a container."""
        with suppress(LocalStackError):
            for name, one in self.applications().items():
                if one["finalStatus"] == "UNDEFINED":
                    self.kill(name)
            wait_until(lambda: not self.processes(), GRACE, interval=ASK_AGAIN)
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _configure(self, *, cores: int, memory_mb: int) -> None:
        client, scheduler, tracker, admin, self._web_port = free_ports(5)
        manager = "yarn.resourcemanager"
        self._write(
            "yarn-site",
            {
                f"{manager}.address": f"{HOST}:{client}",
                f"{manager}.scheduler.address": f"{HOST}:{scheduler}",
                f"{manager}.resource-tracker.address": f"{HOST}:{tracker}",
                f"{manager}.admin.address": f"{HOST}:{admin}",
                f"{manager}.webapp.address": f"{HOST}:{self._web_port}",
                f"{manager}.hostname": HOST,
                "yarn.scheduler.minimum-allocation-mb": "256",
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
                # the system chooses the node's ports, so no other process can take them first
                "yarn.nodemanager.address": f"{HOST}:0",
                "yarn.nodemanager.localizer.address": f"{HOST}:0",
                "yarn.nodemanager.webapp.address": f"{HOST}:0",
                "yarn.nodemanager.hostname": HOST,
                "yarn.nodemanager.local-dirs": str(self._node_dir / "local"),
                "yarn.nodemanager.log-dirs": str(self._node_dir / "logs"),
                "yarn.nodemanager.disk-health-checker.enable": "false",  # refuses a disk that is nine tenths full
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.pmem-check-enabled": "false",
                "yarn.nodemanager.admin-env": f"TMPDIR={self.temp_dir}",
                "yarn.nodemanager.resource.cpu-vcores": str(cores),
                "yarn.nodemanager.resource.memory-mb": str(memory_mb),
                "yarn.scheduler.maximum-allocation-mb": str(memory_mb),
            },
        )
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.temp_dir)})
        (self.conf_dir / "log4j2.properties").write_text(_LOG4J, encoding="ascii")

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        rows = "\n".join(
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
            for key, value in settings.items()
        )
        (self.conf_dir / f"{name}.xml").write_text(f"<configuration>\n{rows}\n</configuration>\n", encoding="utf-8")

    def _launch(self, name: str, main_class: str) -> Process:
        return self._owner.start(
            name,
            self._command(f"{_SERVER}.{main_class}"),
            log=self.log_dir / f"{name}.log",
            cwd=self.log_dir,
            env=self._environment(),
        )

    def _command(self, main_class: str) -> list[str]:
        path = ":".join(map(str, (self.conf_dir, *self._jars)))
        options = (*_JAVA_OPTIONS, f"-Djava.io.tmpdir={self.temp_dir}")
        return [str(self._java.home / "bin" / "java"), *options, "-cp", path, main_class]

    def _environment(self) -> dict[str, str]:
        """The user's without variables of Spark and Hadoop."""
        foreign = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")
        return {k: v for k, v in os.environ.items() if not k.startswith(foreign)} | {
            **self.environment,
            "HADOOP_LOG_DIR": str(self.log_dir),
        }

    def _has_node(self, servers: Sequence[Process]) -> bool:
        for server in servers:
            if (code := server.poll()) is not None:
                raise LocalStackError(with_log(f"{server.name} ended with {code}", server.log))
        found = self._ask("metrics")
        return found is not None and found["clusterMetrics"]["activeNodes"] == 1

    def _ask(self, page: str) -> dict[str, Any] | None:
        return json_page(self._web_port, f"/ws/v1/cluster/{page}", seconds=REQUEST_SECONDS)
