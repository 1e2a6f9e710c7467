"""Measured programs of `bench.field` that `make bench` has in another form: those of an earlier commit have this form.

fill         stores the segments of a small archive in a folder
merge        merges them with all proofs, in one process, without a server between: the codec and what is ours
floor-merge  decodes and encodes them by pyarrow alone
codec        encodes records of one kind in memory, and decodes them, by pyarrow alone, each with a time of its own
restore      `replicator.restore.restore` of any archived topic, exactly once
"""

from __future__ import annotations

if __name__ == "__main__":  # before all else imports Arrow, as a command does
    from infra.runtime.tuning import tune

    tune()

import io
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import archive, child
from bench.archive import Spec
from bench.batches import batch_of
from bench.data import records
from compaction.merge import Merger
from formats.parquet.writer import ParquetFormat
from formats.records.schema import SCHEMA
from formats.topic_selection import TopicPattern
from infra.archive.archive import Archive
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.storage.memory_and_folder import DirectoryObjectStore
from replicator.config import Config, from_mapping
from replicator.restore.restore import Options
from replicator.selection import Renaming, Selection
from replicator.services.compaction import merged_format


def fill(spec: Spec) -> dict[str, Any]:
    """`spec`: root, kind, partitions, segments, records (of each segment)."""
    store = SegmentStore(DirectoryObjectStore(Path(spec["root"])), "")
    names = {"partitions": spec["partitions"], "segments": spec["segments"], "kind": spec["kind"]}
    return {"raw_bytes": archive.fill(store, count=spec["records"], **names)}


def merge(spec: Spec) -> dict[str, Any]:
    """`spec`: root, and perhaps threads."""
    config = _without_servers()
    merged = Archive.of(DirectoryObjectStore(Path(spec["root"])), "", merged_format(config, archive.JOB))
    merger = Merger(
        archive=merged,
        uploader=Uploader(merged, source_compacted=lambda _: True),
        row_group_bytes=archive.JOB.row_group_size,
        writer="bench",
    )
    with ThreadPoolExecutor(spec.get("threads", 1)) as pool:
        outcomes = list(pool.map(merger.merge, archive.plans(merged.segments)))
    return {"records": sum(one.footer.count for one in outcomes)}


def floor_merge(spec: Spec) -> dict[str, Any]:
    """`spec`: root."""
    return archive.floor_merge(_without_servers(), DirectoryObjectStore(Path(spec["root"])), spec)


def codec(spec: Spec) -> dict[str, Any]:
    """`spec`: kind, records, segment_records. CPU-seconds by "encode" and "decode"."""
    made, count = records(spec["kind"], spec["records"], 1), spec["records"]
    rows = max(ParquetFormat().row_group_bytes * count // made.raw_bytes, 1)
    used = {"encode": 0.0, "decode": 0.0}
    for start in range(0, count, spec["segment_records"]):
        batch = batch_of(made, slice(start, min(start + spec["segment_records"], count)))
        sink = io.BytesIO()
        began = time.process_time()
        with pq.ParquetWriter(sink, SCHEMA, **archive.CODEC_OPTIONS) as writer:
            writer.write_table(pa.Table.from_batches([batch]), row_group_size=rows)
        encoded = time.process_time()
        for _ in archive.row_groups(sink):
            pass
        used["encode"] += encoded - began
        used["decode"] += time.process_time() - encoded
    return {**used, "records": count}


def restore(spec: Spec) -> dict[str, Any]:
    """`spec`: config, region and topic in the archive, name of the target topic."""
    wanted = Selection(
        region=spec["region"], topics=[TopicPattern(spec["topic"])], renaming=Renaming({spec["topic"]: spec["name"]})
    )
    return archive.restored(from_mapping(spec["config"]), wanted, Options())


def _without_servers() -> Config:
    found = {"region": archive.REGION, "kafka": {"bootstrap.servers": "-"}, "s3": {"bucket": "-", "prefix": ""}}
    return from_mapping(found)


PROGRAMS: Mapping[str, Callable[[Spec], dict[str, Any]]] = {
    "fill": fill,
    "merge": merge,
    "floor-merge": floor_merge,
    "codec": codec,
    "restore": restore,
}

if __name__ == "__main__":
    child.measured(PROGRAMS[sys.argv[1]])
