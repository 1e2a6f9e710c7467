"""States for the tests of the console, of any size, with everything that its pages show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RETENTION, RecordedGap
from formats.control.lease import Lease
from formats.control.quarantine import Quarantined
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.compaction_runs import CompletedRun
from infra.archive.job_heartbeats import Heartbeat
from infra.archive.proofs import Proof
from replicator.console.history import LagKey, key_of
from replicator.console.segment_map import PartitionSegments, incarnation_map
from replicator.console.site import PartitionKey
from replicator.console.state import (
    Condition,
    ConsoleState,
    DrillHistory,
    DrillRecord,
    FlowKind,
    FlowState,
    GroupOffset,
    GroupsState,
    PartitionRow,
    ReadPart,
    RegionGroups,
    SourceRegion,
)
from replicator.status.compaction import CompactionStatus, JobStatus

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOSTILE = "\"><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>'&amp;"
LATER_ID = "Zk3pQ0aVQ1uXr7dT2bN4mA"
PARKED = (
    "parked at 48211 since 2026-05-01T10:00:00+00:00: the broker refuses a record of 1,204,331 bytes: raise "
    "max.message.bytes of orders.created, and release the partition"
)


def row(
    topic: str, partition: int, *, lag: int = 0, flow: FlowKind = FlowKind.EGRESS, region: str = "us"
) -> PartitionRow:
    end = 50_000 + 137 * partition
    return PartitionRow(
        flow=flow,
        source=SourcePartition(region, topic, partition),
        destination="" if flow is FlowKind.EGRESS else f"{region}.{topic}",
        position=end - lag,
        archive_end=end - lag // 2,
        source_end=end,
        lag=lag,
        seconds=None if flow is FlowKind.EGRESS else lag / 40,
        stored_bytes=lag * 900,
        proof=Proof(at=NOW - timedelta(hours=5, minutes=partition), next_offset=end - 900, is_whole=True)
        if partition % 3
        else None,
    )


def flow_of(kind: FlowKind, rows: Sequence[PartitionRow]) -> FlowState:
    return FlowState(
        kind=kind,
        group_id=f"replicator.{kind}",
        group_state="stable",
        members=2,
        rows=tuple(rows),
        problems=tuple(f"{row.source}: {problem}" for row in rows for problem in row.problems),
        sources=(SourceRegion(region="eu", heartbeat_at=NOW - timedelta(seconds=12), records_behind=412),)
        if kind is FlowKind.INGRESS
        else (),
    )


def small_state() -> ConsoleState:
    """Two flows of a few topics, with one problem of each kind."""
    names = ("orders.created", "orders.shipped", "payments", "clicks")
    egress = [row(name, n, lag=17 * n * (1 + at)) for at, name in enumerate(names) for n in range(6)]
    ingress = [row(name, n, lag=40 * n, flow=FlowKind.INGRESS, region="eu") for name in names[:3] for n in range(4)]
    ingress[1] = replace(ingress[1], condition=Condition.PROBLEM, problems=(PARKED,))
    ingress[5] = replace(ingress[5], condition=Condition.WAITING, note="waits for the end of orders.shipped")
    later = SourcePartition("us", "orders.created", 0, LATER_ID)
    egress.append(replace(row("orders.created", 0, lag=3), source=later, position=897, archive_end=900, source_end=900))
    return state_of(egress, ingress)


def large_state(partitions: int = 5_000, topics: int = 250) -> ConsoleState:
    each = partitions // topics
    egress = [row(f"topic-{t:04d}", n, lag=(t * n) % 977) for t in range(topics // 2) for n in range(each)]
    ingress = [
        row(f"topic-{t:04d}", n, lag=(t * n) % 977, flow=FlowKind.INGRESS, region="eu")
        for t in range(topics // 2, topics)
        for n in range(each)
    ]
    for n in range(3, len(ingress), each):
        ingress[n] = replace(ingress[n], condition=Condition.PROBLEM, problems=(PARKED,))
    return state_of(egress, ingress)


def state_of(egress: Sequence[PartitionRow], ingress: Sequence[PartitionRow]) -> ConsoleState:
    damaged = Segment(SourcePartition("us", "payments", 2), 0, OffsetRange(100, 199))
    return ConsoleState(
        region="us",
        started_at=NOW - timedelta(hours=2),
        refreshed_at=NOW - timedelta(seconds=8),
        refresh_seconds=1.42,
        egress=ReadPart(read_at=NOW, value=flow_of(FlowKind.EGRESS, egress)),
        ingress=ReadPart(read_at=NOW, value=flow_of(FlowKind.INGRESS, ingress)),
        groups=ReadPart(
            read_at=NOW,
            value=GroupsState(
                regions=(RegionGroups(region="eu", as_of=NOW - timedelta(seconds=40), groups=3),),
                is_synced=True,
                offsets=tuple(_offsets()),
            ),
        ),
        compaction=ReadPart(
            read_at=NOW,
            value=CompactionStatus(
                jobs=[
                    JobStatus(
                        name="nightly",
                        region="us",
                        cron="0 2 * * *",
                        timezone="UTC",
                        next_at=NOW + timedelta(hours=14),
                        last=CompletedRun(
                            began_at=NOW - timedelta(hours=10),
                            ended_at=NOW - timedelta(hours=9),
                            failed_plans=1,
                            quarantined=1,
                        ),
                        missed=0,
                        is_overdue=False,
                    )
                ],
                processes=[Heartbeat(owner="host-7/411/brisk", jobs=("nightly",), until=NOW + timedelta(minutes=2))],
                running={"us": Lease(token=7, owner="host-7/411/brisk", until=NOW + timedelta(minutes=1))},
                quarantined={damaged: Quarantined(stored_at=NOW, reason="its digest of values differs", found_at=NOW)},
            ),
        ),
        drills=ReadPart(read_at=NOW, value=DrillHistory(drills=tuple(_drills()))),
    )


def _offsets() -> Iterator[GroupOffset]:
    for group, outcome, reason in (
        ("billing", "write", ""),
        ("billing", "ahead", "it is further here than at its source"),
        (HOSTILE, "untranslated", f"the offset is below the archive's begin {HOSTILE}"),
    ):
        yield GroupOffset(
            region="eu",
            group=group,
            source="eu/orders.created/0",
            source_offset=1200,
            topic="eu.orders.created",
            partition=0,
            offset=None if reason else 1100,
            here=1090,
            outcome=outcome,
            exactness="exact" if not reason else "unknown",
            reason=reason,
        )


def _drills() -> Iterator[DrillRecord]:
    for days in range(5):
        yield DrillRecord(
            at=NOW - timedelta(days=days, hours=9),
            region="us",
            is_good=days != 3,
            partitions=24,
            records=1_204_331,
            restore_seconds=41.7 + days,
            verify_seconds=12.5,
            behind_seconds=2.4,
            differences=() if days != 3 else ("us/payments/2: missing [100,199]",),
        )


def segments_of(where: PartitionKey) -> PartitionSegments:
    """Two incarnations: the first one with merged segments and every kind of hole."""
    region, topic, number = where
    first, later = SourcePartition(region, topic, number), SourcePartition(region, topic, number, LATER_ID)

    def info(source: SourcePartition, level: int, start: int, end: int) -> SegmentInfo:
        return SegmentInfo(Segment(source, level, OffsetRange(start, end)), (end - start) * 310, NOW)

    def gap(start: int, end: int, reason: str, *, is_accepted: bool = False) -> RecordedGap:
        offsets = OffsetRange(start, end)
        return RecordedGap(
            source=first, offsets=offsets, reason=reason, low=0, high=90, recorded_at=NOW, is_accepted=is_accepted
        )

    levels = [(2, 4000, 23_999)]
    levels += [(1, start, start + 3999) for start in range(24_000, 40_000, 4000)]
    levels += [(0, start, start + 399) for start in range(36_000, 50_000, 400) if start not in (41_200, 44_000, 44_400)]
    gaps = [gap(0, 3999, RETENTION), gap(41_200, 41_599, "retention of the source overtook the egress")]
    gaps.append(gap(44_000, 44_399, "written to test", is_accepted=True))
    found = [
        incarnation_map(
            topic,
            "",
            [info(first, *one) for one in levels],
            gaps,
            damaged={f"{first}/0/{40_000:020d}-{40_399:020d}": "its digest of values differs"},
            begin=ArchiveBegin(offset=0, reason="earliest", recorded_at=NOW - timedelta(days=40)),
            forks=(38_000,),
        ),
        incarnation_map(
            f"{topic}@{LATER_ID}",
            LATER_ID,
            [info(later, 0, start, start + 99) for start in range(0, 900, 100)],
            [],
            damaged={},
            begin=ArchiveBegin(offset=0, reason="earliest", recorded_at=NOW - timedelta(days=1)),
        ),
    ]
    return PartitionSegments(read_at=NOW - timedelta(seconds=3), incarnations=tuple(found))


@dataclass
class GivenStates:
    """A `ReadsState` of states that a test gives: one for each refresh, the last one again and again."""

    states: Sequence[ConsoleState]
    samples: int = 0  # of lag before the first refresh
    read: int = field(default=0, init=False)
    listed: list[PartitionKey] = field(default_factory=list, init=False)

    def first(self) -> ConsoleState:
        return ConsoleState(region="us", started_at=NOW)

    def refresh(self, before: ConsoleState) -> ConsoleState:
        self.read += 1
        return self.states[min(self.read, len(self.states)) - 1]

    def earlier_lags(self, rows: Sequence[PartitionRow]) -> Sequence[tuple[datetime, Mapping[LagKey, int | None]]]:
        return [
            (
                NOW - timedelta(minutes=self.samples - n),
                {key_of(one): int((one.lag or 0) * (1.2 + math.sin(n / 7 + one.source.partition))) for one in rows},
            )
            for n in range(self.samples)
        ]

    def segment_map(self, where: PartitionKey, settled: Mapping[str, int]) -> PartitionSegments:
        self.listed.append(where)
        return segments_of(where)
