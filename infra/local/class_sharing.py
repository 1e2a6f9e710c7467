"""A class archive (Java's AppCDS) that halves the start time of a broker. It affects only speed.

<cache>/kafka-4.3.1.java-17.0.15-1a2b3c4d.jsa      written once per Java by a broker that starts and ends;
                                                   empty: it could not be written, do not try again
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from infra.local.broker import Broker
from infra.local.cache import cache_dir, locked
from infra.local.errors import LocalStackError
from infra.local.kafka_process import KafkaRuntime
from infra.local.process import Supervisor

if TYPE_CHECKING:
    from infra.runtime.java import Java


def class_archive(java: Java, jars: tuple[Path, ...], *, version: str, cache: Path | None = None) -> Path | None:
    """The archive of this Java for these jars; None if it cannot be written. The first call takes some seconds."""
    cache = cache or cache_dir()
    installation = hashlib.sha256(str(java.home).encode()).hexdigest()[:8]
    archive = cache / f"kafka-{version}.java-{java.version}-{installation}.jsa"
    if not archive.exists():
        with locked(cache / f"kafka-{version}.lock"):
            if not archive.exists():  # else another process has just made it
                _make(java, jars, archive)
    return archive if archive.stat().st_size else None


def _make(java: Java, jars: tuple[Path, ...], archive: Path) -> None:
    prefix = f"{archive.name}.partial-"
    for leftover in archive.parent.glob(f"{prefix}*"):  # of a killed process; we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=archive.parent))
    made = work / "classes.jsa"
    owner = Supervisor(log=work / "supervisor.log", remove=[work])
    try:
        broker = Broker(
            region="archive",
            folder=work / "broker",
            log=work / "broker.log",
            runtime=KafkaRuntime(java=java, jars=jars),
            owner=owner,
            config={},
            abort=threading.Event(),
            java_options=(f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable", "-Xlog:all=error:stderr"),
        )
        broker.start()
        broker.stop()  # Java writes the archive while it ends
    except LocalStackError:
        made.unlink(missing_ok=True)  # if a broker cannot start, its next regular start reports it
    finally:
        if not made.exists():
            made.touch()
        made.rename(archive)
        owner.close()
