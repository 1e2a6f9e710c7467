"""Spark's driver: a SparkContext in this process, and its Java process.

    this process ──pipe──> Java (driver) ──> workers: child processes if the master is local, else the cluster's
                 <─pipe──  its output, line by line to our log

Java ends when its input is closed, so it never outlives this process, however that ends.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from formats.errors import SparkEnded, SparkUnavailable
from infra.runtime.java import find_java
from infra.runtime.log4j import console_log
from infra.runtime.process_exit import on_exit
from infra.runtime.spark_submit import is_submitted
from infra.spark.driver_folder import driver_folder, temporary_files_in
from infra.spark.java_output import JavaOutput
from infra.spark.packages import pack


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`properties`: Spark properties; they override ours. They are visible in the process list: no secrets.

    `ship_packages`: send our own packages to the workers, where their dependencies must be installed.
    """

    master: str = "local[*,4]"  # every core of this machine; up to four attempts per plan
    application: str = "kafka-segment-replicator"
    properties: Mapping[str, str] = field(default_factory=dict)
    ship_packages: bool = False

    def __post_init__(self) -> None:
        if not self.master or not self.application:
            raise ValueError("master and application must not be empty")

    @property
    def is_local(self) -> bool:
        """Whether the workers run on this machine and end with the driver."""
        return re.match(r"local(\[|$)", self.master) is not None


END_SECONDS = 20.0
_DEPLOY_MODE = "spark.submit.deployMode"
LOOPBACK = "127.0.0.1"
INTERPRETER = "spark.pyspark.python"
_LOG4J = (
    console_log("%p %c{1}: %enc{%m}{CRLF}%ex{none}%n", "warn")
    + """\
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""
)

log = logging.getLogger(__name__)


class SparkDriver:
    """Runs from its construction to `close`."""

    def __init__(
        self,
        settings: SparkSettings,
        *,
        own_session: bool = False,
        prepared: Callable[[SparkSettings], SparkSettings] = lambda settings: settings,
    ) -> None:
        """`prepared` adds defaults to the settings in force, which under spark-submit include what was submitted.
        `own_session`: Java is not in this process's group, so that a signal to the group, such as SIGTERM, leaves it
        to this process when Java ends. Raises SparkUnavailable, SparkEnded when the Java of spark-submit has ended, and
        JavaMissing if there is no suitable Java."""
        self._settings, self._own_session, self._prepared = settings, own_session, prepared
        self._output = JavaOutput()
        self._java: subprocess.Popen[bytes] | None = None  # that this process has started
        self._in_cluster = False  # cluster mode: the cluster has started Java, which has one context in its life
        with ExitStack() as stack:
            self.context = self._start(stack)
            self._ending = stack.pop_all()

    def close(self) -> None:
        """End the application and Java, and remove their files. May be called again."""
        self._ending.close()

    def lost(self, error: Exception) -> SparkUnavailable:
        """The exception for an `error` of the connection to Java."""
        if self._java is None:
            return self.unavailable(repr(error))
        try:
            return self.unavailable(f"its Java ended with {self._java.wait(END_SECONDS)}")
        except subprocess.TimeoutExpired:
            return self.unavailable(repr(error))

    @property
    def settings(self) -> SparkSettings:
        """Those in force: under spark-submit, the master is the submitted one."""
        return self._settings

    @property
    def last_lost_task(self) -> str:
        """Spark's last log line about a failed attempt of a task; empty when there was none."""
        return self._output.lost_task

    def unavailable(self, what: str) -> SparkUnavailable:
        if self._in_cluster:
            return SparkEnded(self._settings.master, what.partition("\n")[0])
        return SparkUnavailable(self._settings.master, what.partition("\n")[0], wrote=self._output.last())

    def _start(self, stack: ExitStack) -> SparkContext:
        if is_submitted():
            return self._join_submitted(stack)
        self._settings = self._prepared(self._settings)
        java = find_java()
        if SparkContext._gateway is not None:
            raise SparkUnavailable(self._settings.master, "this process already runs a Spark driver: close it first")
        folder = stack.enter_context(driver_folder())
        stack.enter_context(on_exit(lambda: shutil.rmtree(folder, ignore_errors=True)))  # after Java was killed
        (folder / "log4j2.properties").write_text(_LOG4J, encoding="ascii")
        properties = _properties(self._settings, folder)
        conf = SparkConf(loadDefaults=False).setAll(list(properties.items()))
        try:
            gateway = self._launch(conf, str(java.home), folder)
            self._java = java_process = gateway.proc
            stack.callback(self._end_java, gateway, java_process)
            stack.enter_context(on_exit(java_process.kill))  # its workers end with it
            with _restored_interrupt():
                context = SparkContext(conf=conf, gateway=gateway)
        except Py4JJavaError as error:
            raise self.unavailable(str(error.java_exception)) from None  # else two hundred lines of Java's stack trace
        except PySparkException as error:
            self._output.join()  # Java has ended: its output has the reason
            raise self.unavailable(str(error)) from error
        except (Py4JError, OSError) as error:
            raise self.lost(error) from error
        stack.callback(_stop, context, SparkFiles.getRootDirectory())
        # The only setting that works for every master: the property alone reaches only some of them.
        context.pythonExec = properties.get(INTERPRETER) or os.environ.get("PYSPARK_PYTHON") or sys.executable
        if self._settings.ship_packages:
            context.addPyFile(str(pack(folder / "replicator-packages.zip")))
        return context

    def _join_submitted(self, stack: ExitStack) -> SparkContext:
        """Under spark-submit: Java runs already, and has the master and the properties that were submitted. Those of
        the settings stand over them, and they over our defaults."""
        gateway = _submitted_gateway(self._settings.master)
        folder = stack.enter_context(driver_folder())
        conf = SparkConf(loadDefaults=True, _jvm=gateway.jvm)
        interpreter = self._settings.properties.get(INTERPRETER)
        self._settings = in_force(self._settings, dict(conf.getAll()))
        conf.setAll(list(self._prepared(self._settings).properties.items()))
        self._in_cluster = conf.get(_DEPLOY_MODE) == "cluster"
        try:
            with _restored_interrupt():
                context = SparkContext(conf=conf, gateway=gateway)
        except (Py4JError, PySparkException, OSError) as error:
            raise self.unavailable(str(getattr(error, "java_exception", error))) from None
        stack.callback(_stop, context, SparkFiles.getRootDirectory())
        if interpreter is not None:  # a submitted one is in the environment, from which the context took it
            context.pythonExec = interpreter
        if self._settings.ship_packages:
            context.addPyFile(str(pack(folder / "replicator-packages.zip")))
        return context

    def _launch(self, conf: SparkConf, java_home: str, folder: Path) -> Any:
        variables = {"JAVA_HOME": java_home, "SPARK_HOME": _find_spark_home()}
        if bind := conf.get("spark.driver.bindAddress"):
            variables["SPARK_LOCAL_IP"] = bind  # the address of Spark's web UI, for which there is no property
        with self._output.writer() as writer, _environment(variables), temporary_files_in(folder):
            return launch_gateway(conf, {"stdout": writer, "stderr": writer, "start_new_session": self._own_session})  # type: ignore[no-untyped-call]

    def _end_java(self, gateway: Any, java: subprocess.Popen[bytes]) -> None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # the next driver starts its own
        if java.stdin is not None:
            java.stdin.close()
        try:
            java.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
        self._output.join()


def in_force(settings: SparkSettings, submitted: Mapping[str, str]) -> SparkSettings:
    """`settings` over the properties that were submitted; the master is the submitted one."""
    properties = {**submitted, **settings.properties}
    return replace(settings, master=properties.get("spark.master", settings.master), properties=properties)


def _properties(settings: SparkSettings, folder: Path) -> Mapping[str, str]:
    no_perf_data = "-XX:-UsePerfData"  # else a killed process leaves a file in the temporary folder
    java_options = f"{no_perf_data} -Djava.io.tmpdir={folder} -Dlog4j2.configurationFile={folder}/log4j2.properties"
    ours = {
        "spark.master": settings.master,
        "spark.app.name": settings.application,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.defaultJavaOptions": java_options,
        "spark.executor.defaultJavaOptions": no_perf_data,
    }
    if settings.is_local:  # no other machine connects to it, and it starts without a network
        ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return ours | dict(settings.properties)


def end_submitted() -> None:
    """Start Spark and end it, if this process is a driver in cluster mode that has ended its work without Spark: YARN
    takes an application for failed that never had a context, and runs it again. Raises SparkUnavailable."""
    if SparkContext._gateway is not None:
        return  # it has had one
    settings = SparkSettings()
    if _submitted_gateway(settings.master).jvm.java.lang.System.getProperty(_DEPLOY_MODE) == "cluster":
        SparkDriver(settings).close()


def _submitted_gateway(master: str) -> Any:
    """The connection to the Java of spark-submit. Raises SparkEnded."""
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    except (Py4JError, OSError):
        raise SparkEnded(master, "the Java of spark-submit has ended") from None


def _stop(context: SparkContext, files: str) -> None:
    sys.path[:] = [entry for entry in sys.path if not entry.startswith(files)]  # entries added by Spark
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # warns that Java has ended, which is known
        with suppress(OSError):  # for the same reason; the second call then does the rest
            context.stop()
        context.stop()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables: `launch_gateway` always passes on the environment of this process."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _restored_interrupt() -> Iterator[None]:
    """Restore the SIGINT handler, which a new SparkContext replaces: this process keeps its own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
