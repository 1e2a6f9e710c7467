"""What `replicator failback` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from replicator.commands.failover_output import failover_json, groups_json, groups_text, partitions_table
from replicator.terminal.output import table

if TYPE_CHECKING:
    from replicator.failover.failback import HandoverPlan
    from replicator.failover.takeback import TakeBackPlan


def handover_text(plan: HandoverPlan) -> Iterator[str]:
    if plan.is_done:
        yield f"the groups were handed over to {plan.to}"
        return
    yield f"groups that continue in {plan.to}: {len(plan.groups)}"
    rows = [
        (name, str(one.target), one.target_offset, one.source, one.source_offset, one.exactness.value)
        for name, some in plan.groups.items()
        for one in some
    ]
    yield table(("group", "here", "offset", "there", "offset", ""), rows)
    for problem in plan.problems:
        yield f"! {problem}"


def handover_json(plan: HandoverPlan) -> Mapping[str, object]:
    return {
        "to": plan.to,
        "at": plan.now.isoformat(),
        "done": plan.is_done,
        "groups": {
            name: [
                {
                    "topic": one.target.topic,
                    "partition": one.target.partition,
                    "offset": one.target_offset,
                    "source": one.source or None,
                    "source_offset": one.source_offset,
                    "exactness": one.exactness.value,
                    "reason": one.reason or None,
                }
                for one in some
            ]
            for name, some in plan.groups.items()
        },
        "active": dict(plan.active),
        "problems": list(plan.problems),
    }


def take_back_text(plan: TakeBackPlan) -> Iterator[str]:
    if plan.handed_over_at is not None:
        at = plan.handed_over_at.isoformat(timespec="seconds")
        yield f"handover {plan.handover} of {plan.region}, of {at}{': taken back' if plan.is_done else ''}"
    if plan.arriving is not None:
        yield f"what was produced in {plan.region}:"
        yield partitions_table(plan.arriving.partitions)
    yield from groups_text(plan.groups)
    if plan.state is not None and plan.state.left:
        yield f"left for the next run, since they are in use here: {', '.join(plan.state.left)}"
    for problem in plan.problems:
        yield f"! {problem}"


def take_back_json(plan: TakeBackPlan) -> Mapping[str, object]:
    return {
        "from": plan.region,
        "at": plan.now.isoformat(),
        "handover": plan.handover or None,
        "handed_over_at": None if plan.handed_over_at is None else plan.handed_over_at.isoformat(),
        "done": plan.is_done,
        "left": [] if plan.state is None else list(plan.state.left),
        "groups": groups_json(plan.groups),
        "arriving": None if plan.arriving is None else failover_json(plan.arriving),
        "problems": list(plan.problems),
    }
