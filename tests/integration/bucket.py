"""A bucket with an archive of its own, and commands of the product that work on it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from formats.coverage import SegmentSlice, steps
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.local.aws import create_bucket_with_queue, s3_client
from infra.local.stack import LocalStack
from infra.storage.s3 import S3ObjectStore
from tests.formats.sample_records import ORIGIN, Row, batch_of, rows_of, sample_rows
from tests.integration.on_spark import QUICK
from tests.processes.harness import to_toml

ROOT = Path(__file__).parents[2]
NOT_IGNORED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""A test that is run in the background of a script inherits SIGINT ignored."""
RUN = f"{NOT_IGNORED}; from replicator.__main__ import run; run()"
EAGER = {"min_segment_age": "0s", "min_segment_count": 2, "min_segment_size": 0, "delete_grace": "0s"}


class Bucket:
    """An archive of region a in a bucket of its own, and the configuration that names it."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path) -> None:
        self.name, self.folder = unique("bucket"), folder
        self.endpoint_url = stack.moto.endpoint_url
        create_bucket_with_queue(self.endpoint_url, self.name, unique("queue"))
        self.client = s3_client(self.endpoint_url)
        self.objects = S3ObjectStore(self.client, self.name)
        self.store = SegmentStore(self.objects, "data")
        self.format = ParquetFormat()

    def fill(self, topic: str, partitions: int, segments: int, rows: int, *, noise_bytes: int = 0) -> list[int]:
        """Sizes of what was stored. `noise_bytes`: of each value, which nothing compresses."""
        sizes = []
        for partition in range(partitions):
            for n in range(segments):
                name = Segment(SourcePartition("a", topic, partition), 0, OffsetRange(n * rows, n * rows + rows - 1))
                body = io.BytesIO()
                writer = self.format.create(body)
                given = self.rows(name)
                if noise_bytes:
                    given = [row | {"value": os.urandom(noise_bytes)} for row in given]
                writer.write([batch_of(given)])
                writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC)))
                self.store.store(name, body, body.tell())
                sizes.append(body.tell())
        return sizes

    def rows(self, name: Segment) -> list[Row]:
        count = name.offsets.next_offset - name.offsets.start
        return sample_rows(count, first_offset=name.offsets.start, seed=name.source.partition)

    def tables(self, *jobs: Mapping[str, Any], **compaction: Any) -> dict[str, Any]:
        s3 = {
            "bucket": self.name,
            "endpoint_url": self.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }
        given = [{"name": "all", **EAGER}] if not jobs else [{**EAGER, **one} for one in jobs]
        return {
            "region": "a",
            "s3": s3,
            "compaction": {"master": "local[2,4]", "spark": QUICK} | compaction | {"jobs": given},
        }

    @property
    def scratch(self) -> Path:
        """Where its commands have their temporary files: a mark of their processes, too."""
        folder = self.folder / "scratch"
        folder.mkdir(exist_ok=True)
        return folder

    def command(
        self, *arguments: str, tables: dict[str, Any] | None = None, own_group: bool = False, command: str = "compact"
    ) -> subprocess.Popen[str]:
        """Started, with SIGINT as a terminal has it."""
        tables = tables or self.tables()
        tables["s3"]["secret_access_key"] = "${SECRET}"
        file = self.folder / "replicator.toml"
        file.write_text(to_toml(tables), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-c", RUN, command, "--config", str(file), *arguments],
            cwd=ROOT,
            env={**os.environ, "SECRET": "test", "TMPDIR": str(self.scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=own_group,
        )

    def segments(self, source: SourcePartition) -> list[Segment]:
        return [info.segment for info in self.store.list(source)]

    def read(self, source: SourcePartition) -> list[Row]:
        rows: list[Row] = []
        for step in steps(self.segments(source), 0):
            assert isinstance(step, SegmentSlice)
            with closing(self.format.open(self.store.open(step.segment), step.segment)) as reader:
                rows += rows_of(list(reader.batches(step.offsets.start)))
        return rows
