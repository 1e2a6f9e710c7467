"""One Kafka broker of the embedded stack: broker and controller in one Java process (KRaft)."""

from __future__ import annotations

import base64
import os
import shutil
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.local.errors import LocalStackError, with_log
from infra.local.ports import HOST
from infra.local.server import START_TIMEOUT, Server

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

    from infra.local.java import Java
    from infra.local.process import Process, Supervisor

ASK_SECONDS = 2.0
FORMAT_TIMEOUT = timedelta(seconds=90)
NODE_ID = 1

DEFAULTS: Mapping[str, str] = {
    # one broker has to be enough
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # groups and transactions that time out within a test
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # a killed broker may come back once its former life's session has ended
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # a topic exists because somebody made it
    "auto.create.topics.enable": "false",
    # small: the default takes 128 MiB of the heap at once
    "log.cleaner.dedupe.buffer.size": "16777216",
}
_JVM = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",  # else a kill leaves a file in the temp folder
    "-Djava.awt.headless=true",
)
_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRuntime:
    """What runs a broker. `shared_classes`: a class archive that only makes the start faster."""

    java: Java
    jars: tuple[Path, ...]
    shared_classes: Path | None = None

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line of a program of Kafka; `options` are for Java."""
        shared = [f"-XX:SharedArchiveFile={self.shared_classes}", "-Xshare:auto"] if self.shared_classes else []
        class_path = ":".join(str(jar) for jar in self.jars)
        return [str(self.java.executable), *_JVM, *shared, *options, "-cp", class_path, main_class, *arguments]


class Broker:
    """A broker with its ports and its data. Not safe to start and stop from two threads at once."""

    def __init__(
        self,
        *,
        region: str,
        folder: Path,
        log: Path,
        runtime: KafkaRuntime,
        owner: Supervisor,
        config: Mapping[str, str],
        abort: threading.Event,
        java_options: tuple[str, ...] = (),
        behind: tuple[int, int] | None = None,
    ) -> None:
        """`config` goes over DEFAULTS, `java_options` (heap) over ours. `abort`: set it to end every wait. `behind`: a
        proxy; the broker listens on the first port too, and tells who comes there to come to the second one."""
        self.region = region
        self.log = log
        self._folder = folder
        self._runtime = runtime
        self._owner = owner
        self._config = dict(config)
        self._abort = abort
        self._java_options = java_options
        self._behind = behind
        self._server = Server(
            name=f"broker-{region}", log=log, port_count=2, launch=self._launch, answers=self._answers, abort=abort
        )

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for a client. Fixed by the first start; raises LocalStackError before it."""
        return self._server.address

    def start(self, timeout: timedelta = START_TIMEOUT) -> None:
        """Answers clients when this returns. The first start finds ports, later ones keep them, and the data.

        No error if it runs. Raises LocalStackError with the log's path and end.
        """
        self._server.start(timeout)

    def stop(self) -> None:
        """SIGTERM: a clean end. The data stays. No error if it does not run."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL: the broker dies without a word. The data stays as it was at that moment."""
        self._server.kill()

    def burn(self) -> None:
        """SIGKILL, and the data is gone. A start that follows is another cluster's, at the same address."""
        self._server.kill()
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, until `thaw`."""
        self._server.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._server.thaw()

    def restore(self) -> None:
        """Thaw or start it, if it was frozen, stopped or killed."""
        self._server.restore()

    def check(self) -> None:
        """Raises LocalStackError if it should run and has died."""
        self._server.check()

    def _launch(self, ports: tuple[int, ...]) -> Process:
        properties = self._write_files(*ports)
        if not self._meta.exists():
            self._format(properties)
        return self._run("kafka.Kafka", str(properties), options=self._java_options)

    def _run(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> Process:
        options = (
            *options,
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
        )
        command = self._runtime.command(main_class, *arguments, options=options)
        return self._owner.start(self.name, command, log=self.log, cwd=self._folder, env=os.environ)

    def _write_files(self, port: int, controller_port: int) -> Path:
        (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(_LOG4J, encoding="ascii")
        theirs, told, protocol = "", "", ""
        if self._behind is not None:
            here, there = self._behind
            theirs, told, protocol = f",PROXIED://{HOST}:{here}", f",PROXIED://{HOST}:{there}", ",PROXIED:PLAINTEXT"
        settings = {
            **DEFAULTS,
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}{theirs}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}{told}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocol}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            **self._config,
        }
        properties = self._folder / "server.properties"
        lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in settings.items()]
        properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return properties

    def _format(self, properties: Path) -> None:
        process = self._run(
            "kafka.tools.StorageTool", "format", f"--cluster-id={_cluster_id()}", "--config", str(properties)
        )
        code = process.wait(FORMAT_TIMEOUT, stop=self._abort)
        if code is None:
            process.kill()
        if code != 0:
            how = "did not end in time" if code is None else f"ended with {code}"
            raise LocalStackError(with_log(f"{self.name} cannot format its data folder: StorageTool {how}", self.log))

    def _answers(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            found = client.list_topics(timeout=ASK_SECONDS)
        except KafkaException:
            return False
        return len(found.brokers) == 1 and f"cluster.id={found.cluster_id}\n" in self._meta.read_text(encoding="utf-8")

    @property
    def _meta(self) -> Path:
        """Written when the data folder is formatted."""
        return self._folder / "data" / "meta.properties"


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
