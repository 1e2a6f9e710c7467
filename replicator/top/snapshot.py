"""One reading of the state, as rows: each partition that is archived or delivered, and what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from infra.settings.units import format_age
from replicator.status.egress import EgressStatus
from replicator.status.ingress import IngressStatus
from replicator.status.ingress_partition import IngressPartition
from replicator.status.lag import PartitionLag


class FlowName(StrEnum):
    ARCHIVE = "archive"  # of this region's topics
    DELIVER = "deliver"  # to this region's topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A partition, or the partitions of a topic. `behind`: records, or offsets, that are not done yet."""

    flow: FlowName
    name: str
    behind: int
    position: int  # next offset to be done; of a topic their sum
    oldest: timedelta | None = None  # age of the oldest record that is not done; None: not known, or nothing waits
    state: str = ""  # what an operator should see: parked, gaps, an open transaction
    rate: float | None = None  # offsets per second since the reading before; None: there is none
    partitions: int = 1
    is_least: bool = False  # more may be behind: the end of the source's log is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The processes of a flow."""

    flow: FlowName
    name: str
    members: int
    parked: int = 0
    gaps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    region: str
    at: datetime
    rows: Sequence[Row] = ()
    groups: Sequence[Group] = ()
    sources: Sequence[str] = ()  # a line for each source region
    problems: Sequence[str] = ()
    complete_as_of: datetime | None = None  # of all deliveries; None: not known


def archive_rows(status: EgressStatus, oldest: Mapping[str, datetime], at: datetime) -> Iterator[Row]:
    """`oldest`: time of the first record that is not archived yet, by partition, where it was read."""
    for p in status.partitions:
        marks = [f"{p.losses} gap{'' if p.losses == 1 else 's'}"] if p.losses else []
        if p.is_open:
            since = "" if p.open_since is None else f" for {format_age(at - p.open_since)}"
            marks.append(f"transaction open{since}")
        if p.problems:
            marks.append("see problems")
        since_ = oldest.get(str(p.source)) if p.lag else None
        yield Row(
            flow=FlowName.ARCHIVE,
            name=str(p.source),
            behind=p.lag,
            position=p.ends.high - p.lag,
            oldest=None if since_ is None else max(at - since_, timedelta()),
            state=", ".join(marks),
        )


def delivery_rows(status: IngressStatus, lags: Iterable[PartitionLag]) -> Iterator[Row]:
    of = {(str(one.source), one.destination): one for one in lags}
    for p in status.partitions:
        if not p.configured or p.is_over:
            continue
        name, destination = str(p.key.source), p.key.destination_topic
        lag = of.get((name, destination))
        behind = p.lag if lag is None or lag.records is None else lag.records
        seconds = None if lag is None else lag.seconds
        yield Row(
            flow=FlowName.DELIVER,
            name=f"{name} -> {destination}",
            behind=behind,
            position=p.next_offset or 0,
            oldest=timedelta(seconds=seconds) if seconds is not None and behind else None,
            state=_state(p),
            is_least=lag is None or lag.records is None,
        )
    for one in status.not_arrived:
        yield Row(
            flow=FlowName.DELIVER,
            name=f"{one.source} -> {one.destination}",
            behind=one.records,
            position=0,
            oldest=None,
            state="nothing has arrived",
        )


def complete_as_of(lags: Sequence[PartitionLag]) -> datetime | None:
    """Of all deliveries; None while it is not known of each."""
    known = [one.complete_as_of for one in lags if one.complete_as_of is not None]
    return min(known) if known and len(known) == len(lags) else None


def _state(p: IngressPartition) -> str:
    marks = []
    if p.parked is not None:
        marks.append("parked" if p.parked.next_offset is None else f"parked at {p.parked.next_offset}")
    if p.skipped:
        marks.append(f"{p.skipped} skipped")
    if p.waits_for:
        marks.append("waits")
    if p.problems and p.parked is None:
        marks.append("see problems")
    return ", ".join(marks)


def with_rates(now: Snapshot, before: Snapshot | None) -> Snapshot:
    """With what each partition did since the reading before."""
    if before is None or (seconds := (now.at - before.at).total_seconds()) <= 0:
        return now
    then = {(row.flow, row.name): row.position for row in before.rows}
    rows = [
        replace(row, rate=max(row.position - then[row.flow, row.name], 0) / seconds)
        if (row.flow, row.name) in then
        else row
        for row in now.rows
    ]
    return replace(now, rows=rows)


def by_topic(rows: Iterable[Row]) -> Sequence[Row]:
    """The partitions of each topic as one row."""
    found: dict[tuple[FlowName, str], list[Row]] = {}
    for row in rows:
        source, arrow, destination = row.name.partition(" -> ")
        name = source.rpartition("/")[0] + arrow + destination
        found.setdefault((row.flow, name), []).append(row)
    return [_joined(flow, name, some) for (flow, name), some in found.items()]


def _joined(flow: FlowName, name: str, rows: Sequence[Row]) -> Row:
    rates = [row.rate for row in rows if row.rate is not None]
    return Row(
        flow=flow,
        name=name,
        behind=sum(row.behind for row in rows),
        position=sum(row.position for row in rows),
        oldest=max((row.oldest for row in rows if row.oldest is not None), default=None),
        rate=sum(rates) if rates else None,
        state="; ".join(dict.fromkeys(row.state for row in rows if row.state)),
        partitions=sum(row.partitions for row in rows),
        is_least=any(row.is_least for row in rows),
    )
