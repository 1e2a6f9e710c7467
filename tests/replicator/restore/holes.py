"""An archive of a source with holes of each kind, and the groups that stood in it: for restores that keep offsets.

partition 0   begins at 100: a deleted prefix, single holes, longer ones, and markers behind the last record
partition 1   all of its records were deleted, and it ended at 7
partition 2   as many records as offsets
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from formats.control.archive_begin import ArchiveBegin
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.contracts.storage import ObjectStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.groups import KafkaGroups
from tests.formats.sample_records import ORIGIN
from tests.infra.cluster import Cluster
from tests.ingress.world import records
from tests.replicator.restore.history import REGION
from tests.replicator.restore.published import publish_groups, publish_watermarks, snapshot, watermarks

AT = datetime(2026, 3, 4, 12, tzinfo=UTC)
SEGMENTS: Mapping[int, Mapping[tuple[int, int], Collection[int]]] = {
    0: {(100, 111): [100, 101, 103, 110], (112, 125): [*range(112, 118), 124]},
    2: {(0, 5): range(6)},
}
BEGINS = (100, 7, 0)  # of the archive
ENDS = (120, 7, 6)  # at the moment, by partition: 118 and 119 are markers
RECORDS: Sequence[Sequence[int]] = ([100, 101, 103, 110, *range(112, 118)], [], list(range(6)))
LOGS = ((100, 120), (7, 7), (0, 6))  # where they begin and end
COMMITTED: Mapping[str, Mapping[int, int]] = {
    "begin": {0: 100, 1: 7, 2: 0},
    "hole": {0: 105, 2: 3},
    "marker": {0: 102},
    "end": {0: 120, 1: 7, 2: 6},
}


def fill_with_holes(objects: ObjectStore, names: Mapping[str, str]) -> None:
    """The topic orders. `names`: of the groups."""
    store, control = SegmentStore(objects, "data"), ControlStore(objects, "data")
    for partition, begin in enumerate(BEGINS):
        found = ArchiveBegin(offset=begin, reason="start policy", recorded_at=AT)
        control.begins.record(SourcePartition(REGION, "orders", partition), found)
    for partition, segments in SEGMENTS.items():
        for (start, end), offsets in segments.items():
            name = Segment(SourcePartition(REGION, "orders", partition), 0, OffsetRange(start, end))
            body = io.BytesIO()
            writer = ParquetFormat().create(body)
            writer.write([records(offsets)])
            writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC), source_partition_count=len(ENDS)))
            store.store(name, body, body.tell())
    publish_watermarks(objects, 1, watermarks(AT, {"orders": ENDS}, settled=True))
    groups = {names[group]: {"orders": offsets} for group, offsets in COMMITTED.items()}
    publish_groups(objects, 1, snapshot(AT, **groups))


def judge(cluster: Cluster, topic: str, names: Mapping[str, str]) -> None:
    """The same records at the same offsets, the same begin and end of each log, and each group where it stood."""
    targets = [TopicPartition(topic, number) for number in range(len(ENDS))]
    found = [[(m.offset(), m.key()) for m in cluster.messages(target)] for target in targets]
    assert found == [[(offset, b"%d" % offset) for offset in offsets] for offsets in RECORDS]
    marks = KafkaAdmin(cluster.properties).watermarks(targets)
    assert tuple((marks[target].low, marks[target].high) for target in targets) == LOGS
    groups = KafkaGroups(cluster.properties, cluster.properties)
    for group, offsets in COMMITTED.items():
        committed = groups.committed(names[group], targets)
        assert {one.partition: found.next_offset for one, found in committed.items()} == offsets, group
