"""What a plan of `replicator restore --at` says about its moment, and what became of groups: as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from replicator.terminal.output import table

if TYPE_CHECKING:
    from datetime import timedelta

    from formats.control.restore_cut import Cut
    from replicator.restore.group_plan import GroupPlan
    from replicator.restore.group_restore import GroupOutcomes
    from replicator.restore.plan import RestorePlan

NAMED = 3  # partitions in one line


def moment_lines(plan: RestorePlan) -> Iterator[str]:
    cut = plan.cut
    if cut is None:
        return
    yield f"as {cut.region} was at {cut.moment.isoformat()}" + (
        f", {_distance(cut.wanted_at - cut.moment)} before {cut.wanted_at.isoformat()}" if cut.is_transactional else ""
    )
    since = cut.wanted_at - cut.observed_at
    following = (
        "none is newer"
        if cut.next_observed_at is None
        else f"the next ones {_after(cut.next_observed_at - cut.wanted_at)} it"
    )
    yield f"  watermarks {cut.generation}, observed {_distance(since)} before {cut.wanted_at.isoformat()}; {following}"
    yield f"  {_transactions(plan, cut)}"
    if plan.groups is not None:
        yield f"  {_groups(plan.groups, cut)}"


def _transactions(plan: RestorePlan, cut: Cut) -> str:
    open_ones = _unsettled(plan, cut)
    if not open_ones and cut.settled_at is not None:
        return f"no transaction is split: every partition was settled at {cut.settled_at.isoformat()}"
    named = ", ".join(open_ones[:NAMED]) + (f" and {len(open_ones) - NAMED} more" if len(open_ones) > NAMED else "")
    return (
        f"transactions over several partitions may be split that wrote to {named}; --transactional takes an earlier "
        "moment that splits none"
    )


def _groups(groups: GroupPlan, cut: Cut) -> str:
    observed = f"snapshot {groups.number}, observed {_distance(cut.moment - groups.observed_at)} before the moment"
    positions = sum(groups.partitions.values())
    return f"groups: {len(groups.partitions):,} with {positions:,} positions here, by {observed}"


def moment_json(plan: RestorePlan) -> Mapping[str, object] | None:
    cut, groups = plan.cut, plan.groups
    if cut is None:
        return None
    return {
        "wanted_at": cut.wanted_at.isoformat(),
        "moment": cut.moment.isoformat(),
        "watermarks": {
            "generation": cut.generation,
            "observed_at": cut.observed_at.isoformat(),
            "settled_at": None if cut.settled_at is None else cut.settled_at.isoformat(),
            "next_observed_at": None if cut.next_observed_at is None else cut.next_observed_at.isoformat(),
        },
        "transactional": cut.is_transactional,
        "unsettled": _unsettled(plan, cut),
        "groups": None
        if groups is None
        else {
            "generation": groups.number,
            "observed_at": groups.observed_at.isoformat(),
            "positions": dict(groups.partitions),
        },
    }


def group_table(outcomes: GroupOutcomes) -> str:
    rows = [
        [
            group,
            str(one.position.source),
            str(one.position.upstream),
            str(one.position.target),
            one.position.downstream,
            one.position.exactness.value,
            one.outcome.value,
        ]
        for group, some in outcomes.items()
        for one in some
    ]
    return table(["group", "source", "offset", "here", "offset", "", "outcome"], rows)


def groups_json(outcomes: GroupOutcomes) -> list[Mapping[str, object]]:
    return [
        {
            "group": group,
            "source": str(one.position.source),
            "source_offset": one.position.upstream,
            "topic": one.position.target.topic,
            "partition": one.position.target.partition,
            "offset": one.position.downstream,
            "exactness": one.position.exactness.value,
            "outcome": one.outcome.value,
            "reason": one.reason,
        }
        for group, some in outcomes.items()
        for one in some
    ]


def _unsettled(plan: RestorePlan, cut: Cut) -> list[str]:
    ours = {(p.source.topic, p.source.partition) for p in plan.partitions}
    return [f"{topic}/{partition}" for topic, partition in cut.unsettled(lambda *one: one in ours)]


def _after(time: timedelta) -> str:
    return f"{_distance(-time)} before" if time.total_seconds() < 0 else f"{_distance(time)} after"


def _distance(time: timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds:,.1f} s" if abs(seconds) < 600 else str(time).partition(".")[0]
