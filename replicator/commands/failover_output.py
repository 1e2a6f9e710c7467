"""What `replicator failover` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from formats.messages.ledger import FailoverPhase
from infra.settings.units import format_age
from replicator.terminal.output import count_text, table

if TYPE_CHECKING:
    from replicator.failover.execute import Executed
    from replicator.failover.plan import ArrivingPartition, FailoverPlan, PlannedPosition
    from replicator.failover.rehearse import Rehearsed

MOST = 20  # lines of one kind in the text; JSON has all


def failover_text(plan: FailoverPlan) -> Iterator[str]:
    yield from _state(plan)
    yield f"the last sign of life of {plan.region} is {_ago(plan.heartbeat_at, plan.now)}"
    yield f"how far it was is known as of {_ago(plan.watermarks_at, plan.now)}"
    yield f"where its groups stood is known as of {_ago(plan.snapshot_at, plan.now)}"
    complete = "not known" if plan.complete_as_of is None else _ago(plan.complete_as_of, plan.now)
    yield f"RPO: {_missing(plan)}; once delivered, complete as of: {complete}"
    yield f"RTO: {count_text(plan.to_deliver)} offsets are still to be delivered, by {plan.members} ingress processes"
    yield ""
    yield partitions_table(plan.partitions)
    yield ""
    yield from groups_text(plan.groups)
    yield ""
    yield f"stop first, where it still runs in {plan.region}: producers and consumers of these topics, then egress"
    yield "then change of the clients:"
    yield f"  bootstrap.servers = {plan.servers}"
    for name, destinations in plan.topics.items():
        same = destinations == [name]
        yield f"  topic {name}: {'the same name' if same else 'read ' + ', '.join(destinations)}"
    yield "  group ids: the same"
    if plan.released:
        yield f"released for writing: {', '.join(plan.released)}"
    if plan.problems:
        yield ""
    yield from _first([f"! {one}" for one in plan.problems])


def partitions_table(partitions: Iterable[ArrivingPartition]) -> str:
    rows = [
        (str(one.source), str(one.target), one.delivered, one.to_deliver, one.source_end, one.missing)
        for one in partitions
    ]
    return table(("source", "here", "delivered", "to deliver", "source's end", "missing"), rows)


def groups_text(groups: Mapping[str, Sequence[PlannedPosition]]) -> Iterator[str]:
    exact = [name for name, some in groups.items() if all(one.verdict.is_exact for one in some)]
    yield f"groups: {len(groups)}, of which {len(exact)} continue exactly"
    lines = []
    for name, some in groups.items():
        found = Counter(one.verdict.value for one in some)
        what = ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items()))
        lines.append(f"  {name}: {len(some)} partitions: {what}")
    yield from _first(lines)


def executed_text(done: Executed) -> Iterator[str]:
    state = done.state
    if not done.committed and state.phase is FailoverPhase.ACTIVE:
        yield f"failover {state.epoch} from {state.region} is done since {state.at.isoformat(timespec='seconds')}"
    else:
        yield from groups_text(done.committed)
        written = sum(
            one.decision.outcome.value in ("write", "same") for some in done.committed.values() for one in some
        )
        yield f"failover {state.epoch} from {state.region}: {count_text(written)} offsets are committed here"
    if state.left:
        yield f"left for the next run, since they are in use here or not delivered: {', '.join(state.left)}"
    yield from _first([f"! {one}" for one in done.plan.problems])


def failover_json(plan: FailoverPlan) -> Mapping[str, object]:
    return {
        "region": plan.region,
        "at": plan.now.isoformat(),
        "state": None
        if plan.state is None
        else {
            "epoch": plan.state.epoch,
            "phase": plan.state.phase.value,
            "at": plan.state.at.isoformat(),
            "snapshot": plan.state.snapshot or None,
            "left": list(plan.state.left),
        },
        "heartbeat_at": _time(plan.heartbeat_at),
        "watermarks_at": _time(plan.watermarks_at),
        "snapshot_at": _time(plan.snapshot_at),
        "snapshot": plan.snapshot or None,
        "complete_as_of": _time(plan.complete_as_of),
        "to_deliver": plan.to_deliver,
        "missing": plan.missing,
        "ingress_processes": plan.members,
        "partitions": [partition_json(one) for one in plan.partitions],
        "groups": groups_json(plan.groups),
        "streams": [
            {"group": one.group, "topics": list(one.inner), "missing": list(one.missing)} for one in plan.streams
        ],
        "clients": {"bootstrap_servers": plan.servers, "topics": {k: list(v) for k, v in plan.topics.items()}},
        "released": list(plan.released),
        "problems": list(plan.problems),
    }


def executed_json(done: Executed) -> Mapping[str, object]:
    return {**failover_json(done.plan), "committed": groups_json(done.committed)}


def rehearsed_text(done: Rehearsed) -> Iterator[str]:
    good = sum(one.is_good for one in done.positions)
    compared = done.compared
    yield f"{count_text(done.records)} records copied, {done.seconds:.1f} s"
    yield f"{good} of {len(done.positions)} positions are right; of {compared} the next record is the source's own"
    yield from _first([f"! group {one.group} in {one.target}: {one.reason}" for one in done.positions if one.reason])
    if done.problem:
        yield f"! {done.problem}"
    kept = {one.group for one in done.positions} if done.kept else set()
    yield f"kept: {len(kept)} groups and their topics" if done.kept else "removed: topics and groups of the rehearsal"


def rehearsed_json(done: Rehearsed) -> Mapping[str, object]:
    return {
        "region": done.plan.region,
        "records": done.records,
        "seconds": round(done.seconds, 3),
        "kept": done.kept,
        "good": done.is_good,
        "problem": done.problem or None,
        "positions": [
            {
                "group": one.group,
                "topic": one.target.topic,
                "partition": one.target.partition,
                "offset": one.offset,
                "source_offset": one.source_offset,
                "is_next": one.is_next,
                "reason": one.reason or None,
            }
            for one in done.positions
        ],
    }


def partition_json(one: ArrivingPartition) -> Mapping[str, object]:
    return {
        "source": str(one.source),
        "topic": one.target.topic,
        "partition": one.target.partition,
        "delivered": one.delivered,
        "arrived": one.arrived,
        "source_end": one.source_end,
        "to_deliver": one.to_deliver,
        "missing": one.missing,
        "complete_as_of": _time(one.complete_as_of),
        "problem": one.problem or None,
    }


def groups_json(groups: Mapping[str, Sequence[PlannedPosition]]) -> Mapping[str, object]:
    return {
        name: [
            {
                "source": one.decision.position.source,
                "source_offset": one.decision.position.upstream,
                "topic": one.decision.position.target.topic,
                "partition": one.decision.position.target.partition,
                "offset": one.decision.position.downstream,
                "here": one.decision.here,
                "verdict": one.verdict.value,
                "beyond": one.beyond,
                "unread": one.unread,
                "outcome": one.decision.outcome.value,
                "reason": one.reason or None,
            }
            for one in some
        ]
        for name, some in groups.items()
    }


def _state(plan: FailoverPlan) -> Iterator[str]:
    if (state := plan.state) is None:
        yield f"failover from {plan.region}: not begun"
        return
    since = state.at.isoformat(timespec="seconds")
    yield f"failover {state.epoch} from {plan.region}, begun at {since}: {state.phase.value}"
    if state.left:
        yield f"left: {', '.join(state.left)}"


def _missing(plan: FailoverPlan) -> str:
    if plan.watermarks_at is None:
        return f"not known: no watermarks of {plan.region} have arrived"
    if plan.missing is None:
        return "not known: the watermarks that have arrived have none of these partitions"
    of_others = f", not known of {count_text(plan.unknown_ends)} partitions" if plan.unknown_ends else ""
    return f"{count_text(plan.missing)} offsets did not arrive{of_others}"


def _ago(at: datetime | None, now: datetime) -> str:
    return "not known" if at is None else f"{at.isoformat(timespec='seconds')}, {format_age(now - at)} ago"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _first(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:MOST]
    if len(lines) > MOST:
        yield f"  and {len(lines) - MOST} more: --json has all"
