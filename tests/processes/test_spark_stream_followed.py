"""A streaming query follows a topic through egress, compaction, gc, kills of its own, and the topic's re-creation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.processes.flow import Flow
from tests.processes.harness import A, to_toml
from tests.processes.traffic import create_topic, last_words, produce_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(seconds=300)
PARTITIONS = 2
ROOT = Path(__file__).resolve().parents[2]
CALL_SECONDS = 20

PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from replicator.spark_source import register

config, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", java)
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
register(spark)

def keep(frame, batch):
    rows = frame.selectExpr("incarnation", "partition", "offset", "hex(value) value").collect()
    new = folder / f"{batch}.new"
    new.write_text(json.dumps([list(row) for row in rows]))
    new.rename(folder / f"{batch}.json")  # a batch that comes again takes the place of the one before

stream = spark.readStream.format("segments").option("config", config).option("topic", topic)
query = stream.option("maxBytesPerTrigger", "1MB").load().writeStream.foreachBatch(keep)
query = query.option("checkpointLocation", str(folder / "checkpoint"))
query.trigger(processingTime="500 milliseconds").start().awaitTermination()
"""

Record = tuple[int, int, str | None]
"""Partition, offset and value of a record."""


class Query:
    """Of a process of its own. Its sink keeps the rows of each batch in a file."""

    def __init__(self, site: Site, topic: str) -> None:
        self.log = site.stack.log_dir / f"{site.name}.query.log"
        self.folder = site.folder / "query"
        self.folder.mkdir()
        file = site.folder / "spark.toml"
        s3 = {**site.s3(), "access_key_id": "test", "secret_access_key": "${SECRET}"}
        file.write_text(to_toml({"region": A, "s3": s3}), encoding="utf-8")
        self._command = [sys.executable, "-c", PROGRAM, str(file), topic, str(self.folder)]
        self._environment = {**site.environment, "SECRET": "test", "PYSPARK_PYTHON": sys.executable}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # of this process
        self._read: dict[tuple[str, int], list[list[Any]]] = {}  # rows by file and when it was written

    def start(self) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stderr=log, stdout=log, start_new_session=True
            )

    def kill(self) -> None:
        """With its Java and its workers, in the middle of whatever it does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def batches(self) -> int:
        return len(list(self.folder.glob("*.json")))

    def rows(self, incarnation: str | None = None) -> list[Record]:
        """Of all batches, in order; of the first incarnation, or of all later ones ("*")."""
        found = [row for file in self.folder.glob("*.json") for row in self._rows_of(file)]
        return sorted((p, offset, value) for name, p, offset, value in found if bool(name) == bool(incarnation))

    def _rows_of(self, file: Path) -> list[list[Any]]:
        key = (file.name, file.stat().st_mtime_ns)
        if key not in self._read:
            self._read[key] = json.loads(file.read_text())
        return self._read[key]

    def has(self, count: int, incarnation: str | None = None) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:  # as its supervisor does: Spark gives a slow machine 10 s for a process
            log = self.log.read_bytes()[self._log_start :].decode(errors="replace")
            assert "failed to connect back" in log, log[-3000:]
            self.start()
        return len(self.rows(incarnation)) >= count


def records(flow: Flow) -> list[Record]:
    """Of the source now."""
    return sorted(
        (p, offset, None if record.value is None else record.value.hex().upper())
        for p, log in flow.source().items()
        for offset, record in zip(log.offsets, log.records, strict=True)
    )


@pytest.fixture
def flow(site: Site) -> Iterator[Flow]:
    with Flow(site, partitions=PARTITIONS) as made:
        yield made


def test_each_record_once(site: Site, flow: Flow) -> None:
    egress = site.egress("egress", {flow.topic: {"max_segment_messages": 50}}).start()
    compaction = site.compaction("compaction").start()
    query = Query(site, flow.topic)
    query.start()
    try:
        fill(site, flow, 1_000)
        site.wait("some batches", lambda: query.has(200), PATIENCE)
        for _ in range(2):
            query.kill()
            before = query.batches()
            fill(site, flow, 500)
            query.start()
            site.wait("it goes on", lambda before=before: query.has(0) and query.batches() > before, PATIENCE)  # type: ignore[misc]
        flow.wait_for_archive(PATIENCE)
        wanted = records(flow)
        site.wait("all records in the query", lambda: query.has(len(wanted)), PATIENCE)
        site.wait("merged segments that are deleted", lambda: bool(compaction.logged("segments_deleted")), PATIENCE)
        assert query.rows() == wanted

        compaction.stop()
        gc = site.gc("gc")
        keeps = {"max_bytes": 1, "keep_segments": 1}
        retention = {"delete_grace": "0s", "max_delete_percent": 100, "topics": {flow.topic: keeps}}
        # what is left are the segments that the query has read last; they lie behind what is deleted
        produce_all(site.bootstrap(A), flow.topic, last_words(PARTITIONS))
        flow.wait_for_archive()
        gc.write({**gc.tables, "retention": retention})
        code, text = gc.run("gc")
        assert code == 0, text
        assert "removed" in text, text
        wanted = records(flow)
        site.wait("what came beside gc", lambda: query.has(len(wanted)), PATIENCE)
        assert query.rows() == wanted
        left = sum(end - start + 1 for ranges in site.ranges(flow.topic).values() for start, end in ranges)
        assert left < len(wanted), "gc has deleted what the query had read"

        recreate(site, flow)
        words = last_words(PARTITIONS)
        produce_all(site.bootstrap(A), flow.topic, [*last_words(PARTITIONS), *words])
        later = records(flow)
        query.kill()
        query.start()
        site.wait("the new incarnation", lambda: query.has(len(later), "*"), PATIENCE)
        assert query.rows("*") == later
        assert query.rows() == wanted, "nothing of the earlier one came again"
        site.stop(egress)
    finally:
        query.kill()


def fill(site: Site, flow: Flow, count: int) -> None:
    """Transactions and all, until each partition has about so many offsets more."""
    before = flow.ends()
    with flow.traffic(seed=before[0], most=20) as traffic:
        site.wait("traffic", lambda: all(end >= before[p] + count for p, end in flow.ends().items()), PATIENCE)
        traffic.finish()


def recreate(site: Site, flow: Flow) -> None:
    admin = AdminClient({"bootstrap.servers": site.bootstrap(A), "log_level": 0})
    admin.delete_topics([flow.topic])[flow.topic].result(CALL_SECONDS)
    site.wait("it is gone", lambda: flow.topic not in admin.list_topics(timeout=CALL_SECONDS).topics)
    create_topic(site.bootstrap(A), flow.topic, PARTITIONS)
