"""Measured programs of `bench.field` that `make bench` has in another form: those of an earlier commit have this form.

fill     stores the segments of a small archive in a folder
merge    merges them with all proofs, in one process, without a server between: the codec and what is ours
restore  `replicator.restore.restore` of any archived topic, exactly once
"""

from __future__ import annotations

if __name__ == "__main__":  # before all else imports Arrow, as a command does
    from infra.runtime.tuning import tune

    tune()

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import archive, child
from bench.archive import Spec
from compaction.merge import Merger
from formats.topic_selection import TopicPattern
from infra.archive.archive import Archive
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.storage.memory_and_folder import DirectoryObjectStore
from replicator.config import from_mapping
from replicator.restore.restore import Options
from replicator.selection import Renaming, Selection
from replicator.services.compaction import merged_format


def fill(spec: Spec) -> dict[str, Any]:
    """`spec`: root, partitions, segments, records (of each segment)."""
    store = SegmentStore(DirectoryObjectStore(Path(spec["root"])), "")
    raw = archive.fill(store, partitions=spec["partitions"], segments=spec["segments"], count=spec["records"])
    return {"raw_bytes": raw}


def merge(spec: Spec) -> dict[str, Any]:
    """`spec`: root."""
    config = from_mapping({"region": archive.REGION, "kafka": {"bootstrap.servers": "-"}, "s3": {"bucket": "-"}})
    merged = Archive.of(DirectoryObjectStore(Path(spec["root"])), "", merged_format(config, archive.JOB))
    merger = Merger(
        archive=merged,
        uploader=Uploader(merged, source_compacted=lambda _: True),
        row_group_bytes=archive.JOB.row_group_size,
        writer="bench",
    )
    outcomes = [merger.merge(plan) for plan in archive.plans(merged.segments)]
    return {"records": sum(one.footer.count for one in outcomes)}


def restore(spec: Spec) -> dict[str, Any]:
    """`spec`: config, region and topic in the archive, name of the target topic."""
    wanted = Selection(
        region=spec["region"], topics=[TopicPattern(spec["topic"])], renaming=Renaming({spec["topic"]: spec["name"]})
    )
    return archive.restored(from_mapping(spec["config"]), wanted, Options())


PROGRAMS: Mapping[str, Callable[[Spec], dict[str, Any]]] = {"fill": fill, "merge": merge, "restore": restore}

if __name__ == "__main__":
    child.measured(PROGRAMS[sys.argv[1]])
