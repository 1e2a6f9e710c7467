"""Fetches Kafka's jars once into the user's cache folder.

    <cache>/kafka-4.3.1/*.jar        complete or absent: the folder is renamed into place
    <cache>/kafka-4.3.1.lock         one fetcher at a time, across all processes
    <cache>/kafka-4.3.1.fetch.log    output of the resolver when it failed

PySpark's own resolver fetches them, so neither Maven nor a Kafka download is needed. Jars that Kafka and PySpark share
(the Scala library, logging) are copied from PySpark: later runs need only the folder.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from infra.local.cache import cache_dir, locked
from infra.local.errors import LocalStackError, with_log
from infra.local.process import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infra.runtime.java import Java

KAFKA_VERSION = "4.3.1"
SCALA = "2.13"
FETCH_TIMEOUT = timedelta(minutes=10)
FROM_PYSPARK = (
    "scala-library-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-1.2-api-*.jar",  # for versions of Kafka that call log4j 1
)
_LOGGING = re.compile(r"slf4j|log4j")  # only one version of each: PySpark's, which are compatible with each other
RESOLVER = """
import sys
from pyspark.sql import SparkSession
package, folder = sys.argv[1:]
(
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", package)
    .config("spark.jars.ivy", folder)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
    .stop()
)
"""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars of Maven packages, and of all that they need."""

    name: str  # for messages
    packages: str  # comma-separated
    folder: Path  # in the cache: complete or absent
    choose: Callable[[Path], Sequence[Path]]  # of a folder of jars those that are kept


def kafka_jars(
    java: Java, *, version: str = KAFKA_VERSION, cache: Path | None = None, resolver: str = RESOLVER
) -> tuple[Path, ...]:
    """The class path of Kafka `version`, in order. Fetches at the first call on a machine (half a minute).

    Safe to call in several processes at once: one fetches, the others wait for it. `resolver`: a Python program that
    fetches a package (its first argument) into the subfolder `jars` of a folder (its second). Raises LocalStackError.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z]+)?", version):
        raise ValueError(f"not a Kafka version: {version!r}")
    package = f"org.apache.kafka:kafka_{SCALA}:{version}"
    folder = _folder(version, cache or cache_dir())
    return fetched(java, JarSet(f"Kafka {version}", package, folder, _of_kafka), resolver)


def fetched(java: Java, wanted: JarSet, resolver: str = RESOLVER) -> tuple[Path, ...]:
    """The jars of `wanted`, in order. As safe as `kafka_jars`."""
    if not wanted.folder.is_dir():
        with locked(wanted.folder.with_name(f"{wanted.folder.name}.lock")):
            if not wanted.folder.is_dir():  # else another process has just fetched it
                _fetch(java, wanted, resolver)
    return tuple(sorted(wanted.folder.glob("*.jar")))


def without_logging(fetched: Path) -> list[Path]:
    return [jar for jar in fetched.glob("*.jar") if not _LOGGING.search(jar.name)]


def is_fetched(version: str = KAFKA_VERSION, *, cache: Path | None = None) -> bool:
    """Whether the jars are in the cache folder: if not, the next start needs half a minute and the network."""
    return _folder(version, cache or cache_dir()).is_dir()


def _folder(version: str, cache: Path) -> Path:
    return cache / f"kafka-{version}"


def _fetch(java: Java, wanted: JarSet, resolver: str) -> None:
    folder = wanted.folder
    log = folder.with_name(f"{folder.name}.fetch.log")
    log.unlink(missing_ok=True)
    for leftover in folder.parent.glob(f"{folder.name}.partial-*"):  # of a killed process; we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    owner = Supervisor(log=log, remove=[work])
    try:
        fetcher = owner.start(
            "fetch",
            [sys.executable, "-P", "-c", resolver, wanted.packages, str(work / "ivy")],
            log=log,
            cwd=work,
            env=_environment(java, work),
        )
        started = time.monotonic()
        code = fetcher.wait(FETCH_TIMEOUT)
        if code != 0:
            seconds = round(time.monotonic() - started)
            how = "did not end" if code is None else f"ended with {code}"
            message = (
                f"cannot fetch {wanted.name} ({wanted.packages}): the resolver {how} after {seconds} s.\n"
                "This needs the network once. Behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... "
                f"-Dhttps.proxyPort=...; without a network copy {folder} from a machine that has it."
            )
            raise LocalStackError(with_log(message, log))
        done = work / "done"
        done.mkdir()
        for jar in wanted.choose(work / "ivy" / "jars"):
            shutil.copyfile(jar, done / jar.name)
        done.rename(folder)  # atomic: a reader never sees an incomplete folder
        log.unlink(missing_ok=True)
    finally:
        owner.close()


def _environment(java: Java, work: Path) -> dict[str, str]:
    """The user's environment with this Java, without variables that would start another Spark, and with temporary files
    in `work`."""
    kept = {k: v for k, v in os.environ.items() if k == "SPARK_CONF_DIR" or not k.startswith(("SPARK_", "PYSPARK_"))}
    temp = work / "tmp"
    temp.mkdir()
    java_options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={temp} -XX:-UsePerfData".strip()
    return kept | {
        "JAVA_HOME": str(java.home),
        "TMPDIR": str(temp),
        "SPARK_LOCAL_DIRS": str(temp),
        "JAVA_TOOL_OPTIONS": java_options,
    }


def _of_kafka(fetched: Path) -> Sequence[Path]:
    found = without_logging(fetched)
    if not any(jar.name.startswith(f"org.apache.kafka_kafka_{SCALA}-") for jar in found):
        raise LocalStackError(
            f"the resolver left no kafka_{SCALA} jar in {fetched}: a newer PySpark may name it differently"
        )
    return found + _from_pyspark()


def _from_pyspark() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LocalStackError("PySpark, which fetches Kafka, is not installed: pip install pyspark")
    folder = Path(spec.origin).parent / "jars"
    return [jar for pattern in FROM_PYSPARK for jar in sorted(folder.glob(pattern))]
