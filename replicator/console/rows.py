"""What `status` computes, as the rows of the console. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from replicator.console.state import (
    Condition,
    DrillHistory,
    DrillRecord,
    FlowKind,
    FlowState,
    PartitionRow,
    SourceRegion,
)
from replicator.status.egress import EgressStatus
from replicator.status.egress_partition import EgressPartitionStatus
from replicator.status.ingress import IngressStatus
from replicator.status.ingress_partition import IngressPartition
from replicator.status.lag import PartitionLag
from replicator.status.not_arrived import NotArrived


def egress_flow(status: EgressStatus) -> FlowState:
    return FlowState(
        kind=FlowKind.EGRESS,
        group_id=status.group_id,
        group_state=status.group.state,
        members=status.group.members,
        rows=tuple(_egress_row(one) for one in status.partitions),
        problems=tuple(status.problems),
    )


def ingress_flow(status: IngressStatus, lags: Iterable[PartitionLag]) -> FlowState:
    lag_of = {(one.source, one.destination): one for one in lags}
    return FlowState(
        kind=FlowKind.INGRESS,
        group_id=status.group_id,
        group_state=status.group.state,
        members=status.group.members,
        rows=(
            *(_ingress_row(one, lag_of.get((one.key.source, one.key.destination_topic))) for one in status.partitions),
            *(_not_arrived_row(one, lag_of.get((one.source, one.destination))) for one in status.not_arrived),
        ),
        problems=tuple(status.problems),
        sources=tuple(
            SourceRegion(
                region=one.region,
                heartbeat_at=one.heartbeat_at,
                records_behind=one.records_behind,
                unknown=one.unknown,
            )
            for one in status.sources
        ),
    )


def _egress_row(one: EgressPartitionStatus) -> PartitionRow:
    note = ""
    if one.is_open:
        since = "" if one.open_since is None else f" since {one.open_since.isoformat(timespec='seconds')}"
        note = f"a transaction is open{since}"
    return PartitionRow(
        flow=FlowKind.EGRESS,
        source=one.source,
        destination="",
        position=one.committed,
        archive_end=one.archive_end,
        source_end=one.ends.high,
        lag=one.lag,
        seconds=None,
        gaps=one.recorded_gaps,
        proof=one.proof,
        condition=Condition.PROBLEM if one.problems else Condition.RUNNING,
        problems=one.problems,
        note=note,
    )


def _ingress_row(one: IngressPartition, lag: PartitionLag | None) -> PartitionRow:
    return PartitionRow(
        flow=FlowKind.INGRESS,
        source=one.key.source,
        destination=one.key.destination_topic,
        position=one.next_offset,
        archive_end=one.archive_end,
        source_end=None if lag is None else lag.source_end,
        lag=_records_behind(one, lag),
        seconds=None if lag is None else lag.seconds,
        stored_bytes=0 if lag is None else lag.stored_bytes,
        proof=one.proof,
        condition=_condition(one),
        problems=one.problems,
        note=_note(one),
    )


def _records_behind(one: IngressPartition, lag: PartitionLag | None) -> int | None:
    """Where the end of the source's log is not known, what is stored here waits at least; with nothing of it, None."""
    if lag is None:
        return one.lag
    return (one.lag or None) if lag.records is None else lag.records


def _not_arrived_row(one: NotArrived, lag: PartitionLag | None) -> PartitionRow:
    return PartitionRow(
        flow=FlowKind.INGRESS,
        source=one.source,
        destination=one.destination,
        position=None,
        archive_end=None,
        source_end=None if lag is None else lag.source_end,
        lag=one.records,
        seconds=None,
        condition=Condition.PROBLEM if one.is_late else Condition.WAITING,
        problems=(one.problem,) if one.is_late else (),
        note="nothing of it has arrived",
    )


def _condition(one: IngressPartition) -> Condition:
    if one.problems:
        return Condition.PROBLEM
    if one.is_over or not one.configured:
        return Condition.OVER
    return Condition.WAITING if one.waits_for else Condition.RUNNING


def _note(one: IngressPartition) -> str:
    if one.is_over:
        return "delivery went on to the next incarnation"
    if not one.configured:
        return "the configuration does not deliver it any more"
    notes = [f"waits for {one.waits_for}"] if one.waits_for else []
    notes += [f"{one.skipped} offsets skipped"] if one.skipped else []
    notes += [f"goes through {one.transform}, which left out {one.dropped} records"] if one.transform else []
    return "; ".join(notes)


def drill_history(text: str, most: int) -> DrillHistory:
    """The newest `most` lines of `drill --history`."""
    lines = [line for line in text.splitlines() if line.strip()][-most:]
    found = tuple(_drills(reversed(lines)))
    return DrillHistory(drills=found, unreadable=len(lines) - len(found))


def _drills(lines: Iterable[str]) -> Iterator[DrillRecord]:
    for line in lines:
        try:
            one = json.loads(line)
            behind = one["behind_seconds"]
            yield DrillRecord(
                at=datetime.fromisoformat(one["at"]),
                region=str(one["region"]),
                is_good=bool(one["good"]),
                partitions=int(one["partitions"]),
                records=int(one["records"]),
                restore_seconds=_seconds(one["restore_seconds"]),
                verify_seconds=_seconds(one["verify_seconds"]),
                behind_seconds=None if behind is None else _seconds(behind),
                differences=tuple(map(str, one["differences"])),
            )
        except (ValueError, KeyError, TypeError, OverflowError):
            continue


def _seconds(value: object) -> float:
    """Raises ValueError, TypeError or OverflowError for what is no duration: JSON has NaN and Infinity here."""
    return timedelta(seconds=float(value)).total_seconds()  # type: ignore[arg-type]
