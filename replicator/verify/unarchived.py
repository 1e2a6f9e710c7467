"""Partitions of which a cluster has records and the archive nothing: no folder of the archive leads to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from formats.coverage import uncovered
from formats.errors import TargetError
from formats.records.milliseconds import ms_at_or_before
from formats.records.statistics import is_any_before
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import ClusterAdmin, TopicPartition, Watermarks, describe_each
from replicator.restore.reported_ends import COPIED_WITHIN

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def beyond(
    admin: ClusterAdmin,
    names: Mapping[SourcePartition, str],
    stored: Sequence[SourcePartition],
    wants: Callable[[str, int], bool],
) -> Iterator[SourcePartition]:
    """Partitions that have records in the cluster of `admin`, and are not `stored`. `names`: what the topic of a stored
    partition is called there, one for each topic. `wants`: whether a topic's partition is selected. A topic that may
    not be read is left out: the verdict on its stored partitions says so. Raises BrokerUnavailable."""
    facts, _ = describe_each(admin, sorted(set(names.values())))
    seen = set(stored)
    absent = {
        at: source
        for one, name in names.items()
        if name in facts
        for at in facts[name].partitions
        if wants(one.topic, at.partition) and (source := replace(one, partition=at.partition)) not in seen
    }
    for at, marks in sorted(_watermarks(admin, [*absent]).items()):
        if marks.high > marks.low:
            yield absent[at]


def _watermarks(admin: ClusterAdmin, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
    """In one call; where the cluster refuses a topic, by topic, so that the others are known."""
    if not partitions:
        return {}
    try:
        return admin.watermarks(partitions)
    except TargetError:
        found: dict[TopicPartition, Watermarks] = {}
        for topic in sorted({at.topic for at in partitions}):
            with suppress(TargetError):
                found |= admin.watermarks([at for at in partitions if at.topic == topic])
        return found


def unarchived(
    source: SourcePartition,
    marks: Watermarks,
    *,
    control: ControlStore,
    admin: ClusterAdmin,
    read: Callable[[TopicPartition, int, int], Iterator[RecordBatch]],
    now: datetime,
) -> OffsetRange | None:
    """Offsets of `source`, of which nothing is stored, that should be: from where its archive begins, without recorded
    gaps (retention removed those, or they were lost before), up to the first open transaction, if a record among them
    is older than a segment takes to be sealed and copied. Raises BrokerUnavailable, StoreUnavailable, MalformedEvent,
    and TargetError."""
    topic = TopicPartition(source.topic, source.partition)
    begin = control.begins.of(source)
    start = marks.low if begin is None else max(marks.low, begin.offset)
    end = admin.stable_offsets([topic]).get(topic, marks.high) - 1
    if start > end:
        return None
    since = ms_at_or_before(now - COPIED_WITHIN)
    for offsets in uncovered([gap.offsets for gap in control.gaps.of(source)], OffsetRange(start, end)):
        if any(is_any_before(batch, since) for batch in read(topic, offsets.start, offsets.next_offset)):
            return offsets
    return None
