"""Reads the state that the console shows: each part by itself, with clients of its own for each refresh.

New clients at each refresh find a cluster that moved, a topic that was created, and credentials that were renewed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from formats.control.gap import RecordedGap
from formats.control.keys import watermarks_prefix
from formats.control.watermarks import SourceWatermarks, decode_watermarks
from formats.errors import MalformedEvent, ReplicatorError, SegmentNotFound
from formats.incarnation import Incarnation
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.archive.segments import SegmentStore
from infra.runtime.lifecycle import Clock
from replicator.config import Config
from replicator.console.history import LagHistory, LagKey, key_of
from replicator.console.rows import drill_history, egress_flow, ingress_flow
from replicator.console.segment_map import IncarnationMap, PartitionSegments, incarnation_map
from replicator.console.site import PartitionKey
from replicator.console.state import (
    ConsoleState,
    DrillHistory,
    FlowKind,
    FlowState,
    GroupsState,
    PartitionRow,
    ReadPart,
    RegionGroups,
)
from replicator.console.synced_offsets import SyncedOffsets, in_another_process
from replicator.services.archive_status import compaction_status, egress_sources, groups_status
from replicator.services.clients import Clients
from replicator.services.ingress_status import ingress_sources, lags_of
from replicator.services.routing import routed
from replicator.status.compaction import CompactionStatus
from replicator.status.groups import GroupsStatus

log = logging.getLogger(__name__)

T = TypeVar("T")
ReadsOffsets = Callable[[Config, datetime], SyncedOffsets]
MOST_SEGMENTS = 100_000  # of a partition in its map
MOST_REASONS = 50  # gaps of a partition whose reasons are read; of more, the ranges are shown
MOST_DRILLS = 200
DRILL_BYTES = 4 << 20  # read from the end of the file of drills
SAMPLES, REACH = 40, 2000  # stored watermarks from which the lag before the start is known, and generations back


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReader:
    """For one thread."""

    config: Config
    clock: Clock
    drills: Path | None = None
    open_clients: Callable[[Config], Clients] = field(default=lambda config: Clients(config, with_logs=False))
    read_offsets: ReadsOffsets = in_another_process

    def first(self) -> ConsoleState:
        """Before anything was read."""
        config = self.config
        return ConsoleState(
            region=config.region,
            started_at=self.clock.now(),
            egress=ReadPart(is_configured=config.egress is not None),
            ingress=ReadPart(is_configured=config.ingress is not None),
            groups=ReadPart(is_configured=config.egress is not None or config.ingress is not None),
            compaction=ReadPart(is_configured=config.compaction is not None),
            drills=ReadPart(is_configured=self.drills is not None),
        )

    def refresh(self, before: ConsoleState) -> ConsoleState:
        """A part that cannot be read keeps what it was, with the error."""
        began = self.clock.now()
        with self.open_clients(self.config) as reach:
            egress = self._read(before.egress, lambda now: _egress(reach, now))
            ingress = self._read(before.ingress, lambda now: _ingress(reach, now))
            groups = self._read(before.groups, lambda now: _groups(reach, now, self.read_offsets))
            compaction = self._read(before.compaction, lambda now: _compaction(reach, now))
        drills = self._read(before.drills, lambda _: _drills(self.drills))
        now = self.clock.now()
        return replace(
            before,
            refreshed_at=now,
            refresh_seconds=(now - began).total_seconds(),
            egress=egress,
            ingress=ingress,
            groups=groups,
            compaction=compaction,
            drills=drills,
        )

    def _read(self, before: ReadPart[T], read: Callable[[datetime], T]) -> ReadPart[T]:
        if not before.is_configured:
            return before
        now = self.clock.now()
        try:
            return before.succeeded(read(now), now)
        except Exception as error:  # one that is not ours, too: else the console ends, at every start
            return before.failed(_why(error), now)

    def earlier_lags(self, rows: Sequence[PartitionRow]) -> Sequence[tuple[datetime, Mapping[LagKey, int | None]]]:
        """Of egress, before this process was started: from the watermarks that egress stored, in order of time. Empty
        when they cannot be read: the lag is then known from now on."""
        of_egress = [row for row in rows if row.flow is FlowKind.EGRESS]
        if not of_egress:
            return []
        try:
            with self.open_clients(self.config) as reach:
                generations = Generations(reach.objects, watermarks_prefix(self.config.s3.prefix, self.config.region))
                return [(one.observed_at, lags_in(one, of_egress)) for one in stored_watermarks(generations)]
        except Exception as error:  # likewise
            _why(error)
            return []

    def segment_map(self, where: PartitionKey, settled: Mapping[str, int]) -> PartitionSegments:
        try:
            with self.open_clients(self.config) as reach:
                return read_map(reach.store, reach.control, where, settled, self.clock.now())
        except Exception as error:  # likewise
            return PartitionSegments(read_at=self.clock.now(), error=_why(error))


def _why(error: Exception) -> str:
    """For a page. An error that is not ours is a defect: its traceback goes to the log."""
    if not isinstance(error, ReplicatorError | OSError):
        log.error("console_not_read", exc_info=error)
    return str(error) or type(error).__name__


def _egress(reach: Clients, now: datetime) -> FlowState:
    return egress_flow(egress_sources(reach).read(now, reach.pool))


def _ingress(reach: Clients, now: datetime) -> FlowState:
    found = routed(reach)
    status = ingress_sources(reach, found).read(now, reach.pool)
    return ingress_flow(status, lags_of(reach, found, status, now))


def _groups(reach: Clients, now: datetime, read: ReadsOffsets) -> GroupsState:
    regions = tuple(_region_groups(one) for one in groups_status(reach))
    if reach.config.ingress is None or not reach.config.groups.sync or not regions:
        return GroupsState(regions=regions, is_synced=False)
    found = read(reach.config, now)
    return GroupsState(
        regions=tuple(
            replace(one, problems=(*one.problems, found.problems[one.region])) if one.region in found.problems else one
            for one in regions
        ),
        is_synced=True,
        offsets=found.offsets,
        left_out=found.left_out,
    )


def _region_groups(one: GroupsStatus) -> RegionGroups:
    return RegionGroups(
        region=one.region,
        as_of=None if one.report is None else one.report.as_of,
        groups=0 if one.report is None else len(one.report.snapshot.groups),
        unreadable={group: why for group, (why, _) in one.unreadable.items()},
        problems=tuple(one.problems),
    )


def _compaction(reach: Clients, now: datetime) -> CompactionStatus:
    found = compaction_status(reach, now)
    assert found is not None  # a part that is not configured is not read
    return found


def _drills(file: Path | None) -> DrillHistory:
    """Raises OSError."""
    assert file is not None  # likewise
    with file.open("rb") as lines:
        lines.seek(0, 2)
        if (begin := lines.tell() - DRILL_BYTES) > 0:
            lines.seek(begin)
            lines.readline()  # the rest of a line
        else:
            lines.seek(0)
        text = lines.read().decode("utf-8", "replace")
    return drill_history(text, MOST_DRILLS)


def stored_watermarks(generations: Generations) -> Sequence[SourceWatermarks]:
    """At most SAMPLES of the last REACH generations, in order: two requests each. Those that cannot be read are left
    out. Raises StoreUnavailable."""
    newest = generations.newest()
    wanted = range(max(newest - REACH, 1), newest + 1)
    numbers: dict[int, None] = {}
    for start in wanted[:: max(len(wanted) // SAMPLES, 1)]:
        if (number := generations.at_or_after(start)) is not None:
            numbers[number] = None
    found = []
    for number in sorted(numbers):
        with contextlib.suppress(SegmentNotFound, MalformedEvent):
            found.append(decode_watermarks(generations.read(number)))
    return found


def lags_in(found: SourceWatermarks, rows: Sequence[PartitionRow]) -> Mapping[LagKey, int | None]:
    """What was not archived of each partition when the watermarks were observed."""
    lags: dict[LagKey, int | None] = {}
    for row in rows:
        topic, number = found.topics.get(row.source.topic), row.source.partition
        high = position = None
        if topic is not None and number < topic.partitions:
            high, position = topic.high[number], topic.position[number]
        lags[key_of(row)] = None if high is None or position is None else max(high - position, 0)
    return lags


def add_sample(history: LagHistory, state: ConsoleState, now: datetime) -> None:
    """The lag of every partition of the flows that could be read now; of the others it is not known now."""
    lags: dict[LagKey, int | None] = {}
    for _, part in state.flows:
        if part.value is not None:
            lags |= {key_of(row): None if part.error else row.lag for row in part.value.rows}
    if lags:
        history.add(now, lags)


def read_map(
    store: SegmentStore, control: ControlStore, where: PartitionKey, settled: Mapping[str, int], now: datetime
) -> PartitionSegments:
    """Of every incarnation, the oldest first: a listing of its segments, and three small ones. `settled`: as
    `settled_offsets`. Raises StoreUnavailable and MalformedEvent."""
    region, topic, number = where
    damaged = {str(segment): one.reason for segment, one in control.quarantine.all(region).items()}
    ids = ["", *control.claims.later_ids(region, topic)]
    sources = [SourcePartition(region, topic, number, id_) for id_ in ids]
    found = [_incarnation_map(store, control, one, damaged, settled.get(one.incarnation)) for one in sources]
    found.sort(
        key=lambda one: (one.incarnation_id != "", now if one.begin is None else one.begin.recorded_at, one.path)
    )
    return PartitionSegments(read_at=now, incarnations=tuple(one for one in found if one.levels or one.holes))


def _incarnation_map(
    store: SegmentStore,
    control: ControlStore,
    source: SourcePartition,
    damaged: Mapping[str, str],
    settled: int | None,
) -> IncarnationMap:
    infos = list(
        islice(chain.from_iterable(store.level(source, n) for n in store.each_level(source)), MOST_SEGMENTS + 1)
    )
    ranges = control.gaps.ranges(source)
    gaps: Sequence[RecordedGap | OffsetRange] = control.gaps.of(source) if len(ranges) <= MOST_REASONS else ranges
    return incarnation_map(
        Incarnation(source.topic, source.incarnation).path,
        source.incarnation,
        infos[:MOST_SEGMENTS],
        gaps,
        damaged={name: why for name, why in damaged.items() if name.startswith(f"{source}/")},
        begin=control.begins.of(source),
        forks=[fork.next_offset for fork in control.forks.of(source)],
        settled=settled,
        is_cut=len(infos) > MOST_SEGMENTS,
    )
