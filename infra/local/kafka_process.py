"""The files and programs of one Kafka server: its properties, its data folder, and Java.

<folder>/{server.properties,log4j2.properties,data,tmp}
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from infra.local.data_folder import META, copy_formatted, keep_formatted
from infra.local.errors import LocalStackError, with_log

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from infra.local.process import Process, Supervisor
    from infra.runtime.java import Java

FORMAT_TIMEOUT = timedelta(seconds=90)
_JVM = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",  # else a killed process leaves a file in the temporary folder
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
    """The programs that run a broker. What only makes the start faster: `shared_classes`, a class archive, and
    `formatted`, where to find or to leave a data folder as StorageTool formats it."""

    java: Java
    jars: tuple[Path, ...]
    shared_classes: Path | None = None
    formatted: Path | None = None

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line of a Kafka program. `options`: those of Java."""
        shared = [f"-XX:SharedArchiveFile={self.shared_classes}", "-Xshare:auto"] if self.shared_classes else []
        class_path = ":".join(str(jar) for jar in self.jars)
        return [str(self.java.executable), *_JVM, *shared, *options, "-cp", class_path, main_class, *arguments]


class KafkaProcess:
    """Formats the data folder at the first start, and starts the server."""

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        log: Path,
        runtime: KafkaRuntime,
        owner: Supervisor,
        abort: threading.Event,
        java_options: tuple[str, ...] = (),
    ) -> None:
        """`java_options` (heap) override ours. `abort`: set it to end every wait."""
        self.name = name
        self._folder = folder
        self._log = log
        self._runtime = runtime
        self._owner = owner
        self._abort = abort
        self._java_options = java_options

    @property
    def data_dir(self) -> Path:
        return self._folder / "data"

    def launch(self, settings: Mapping[str, str], cluster_id: str) -> Process:
        """Start the server. `settings`: those in server.properties. `cluster_id`: used when the data folder is new.
        Raises LocalStackError."""
        properties = self._write_files({**settings, "log.dirs": str(self.data_dir)})
        if not self._meta.exists():
            self._format(properties, settings["node.id"], cluster_id)
        return self._run("kafka.Kafka", str(properties), options=self._java_options)

    def is_of_cluster(self, cluster_id: str) -> bool:
        return f"cluster.id={cluster_id}\n" in self._meta.read_text(encoding="utf-8")

    def erase_data(self) -> None:
        """Call only while the server does not run."""
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def _run(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> Process:
        options = (
            *options,
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
        )
        command = self._runtime.command(main_class, *arguments, options=options)
        return self._owner.start(self.name, command, log=self._log, cwd=self._folder, env=os.environ)

    def _write_files(self, settings: Mapping[str, str]) -> Path:
        (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(_LOG4J, encoding="ascii")
        properties = self._folder / "server.properties"
        lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in settings.items()]
        properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return properties

    def _format(self, properties: Path, node_id: str, cluster_id: str) -> None:
        template = self._runtime.formatted
        if template is not None and template.exists():
            copy_formatted(template, self.data_dir, cluster_id=cluster_id, node_id=node_id)
            return
        process = self._run(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties)
        )
        code = process.wait(FORMAT_TIMEOUT, stop=self._abort)
        if code is None:
            process.kill()
        if code != 0:
            how = "did not end in time" if code is None else f"ended with {code}"
            raise LocalStackError(with_log(f"{self.name} cannot format its data folder: StorageTool {how}", self._log))
        if template is not None:
            keep_formatted(self.data_dir, template)

    @property
    def _meta(self) -> Path:
        """Written when the data folder is formatted."""
        return self.data_dir / META
