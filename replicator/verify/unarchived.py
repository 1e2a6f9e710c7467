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
    for one, name in names.items():
        found = facts[name].partitions if name in facts else ()
        partitions = {at: replace(one, partition=at.partition) for at in found if wants(one.topic, at.partition)}
        absent = {at: source for at, source in partitions.items() if source not in seen}
        with suppress(TargetError):
            for at, marks in sorted(admin.watermarks([*absent]).items()) if absent else ():
                if marks.high > marks.low:
                    yield absent[at]


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
