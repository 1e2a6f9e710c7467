"""The pages about flows, topics and partitions as JSON values. Pure.

/                                       overview
/topics?q=&sort=&page=                  topics
/topics/REGION/TOPIC?page=              one topic with its partitions
/topics/REGION/TOPIC/PARTITION          one partition: lag, segment map, problems
/problems?page=                         all problems
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from infra.archive.proofs import Proof
from replicator.console.history import LagHistory, LagKey, key_of, whole
from replicator.console.page_frame import ConsolePage, PageQuery, frame, paged, time_text
from replicator.console.segment_map import PartitionSegments
from replicator.console.segment_map_json import map_json
from replicator.console.state import Condition, ConsoleState, FlowKind, FlowState, PartitionRow, ReadPart

TOPICS, PARTITIONS, PROBLEMS, FIRST = 100, 100, 200, 20
"""Lines of a page."""
_WORST_FIRST = tuple(Condition)


def overview(state: ConsoleState, history: LagHistory, now: datetime) -> ConsolePage:
    topics = _topics(state.rows)
    problems = all_problems(state)
    return {
        **frame(state, now, "overview"),
        "flows": [_flow(kind, part, history, now) for kind, part in state.flows if part.is_configured],
        "problems": problems[:FIRST],
        "problem_count": len(problems),
        "topics": [_topic_summary(rows) for rows in sorted(topics.values(), key=_worst_first)[:FIRST]],
        "topic_count": len(topics),
    }


def topics_page(state: ConsoleState, now: datetime, query: PageQuery) -> ConsolePage:
    wanted = query.search.casefold()
    found = [
        rows
        for rows in _topics(state.rows).values()
        if wanted in rows[0].source.topic.casefold() or any(wanted in row.destination.casefold() for row in rows[:1])
    ]
    found.sort(key=_by_name if query.sort == "name" else _worst_first)
    shown, pages = paged(found, query.number, TOPICS)
    return {
        **frame(state, now, "topics"),
        **pages,
        "search": query.search,
        "sort": "name" if query.sort == "name" else "worst",
        "topics": [_topic_summary(rows) for rows in shown],
    }


def topic_page(
    state: ConsoleState, history: LagHistory, now: datetime, where: tuple[str, str], query: PageQuery
) -> ConsolePage | None:
    """`where`: region and topic. None when no flow has it; a page without flows while one was never read."""
    rows = [row for row in state.rows if (row.source.region, row.source.topic) == where]
    if not rows and not state.is_any_flow_unread:
        return None
    shown, pages = paged(sorted(rows, key=_by_name_and_number), query.number, PARTITIONS)
    return {
        **frame(state, now, "topic"),
        **pages,
        "region": where[0],
        "topic": where[1],
        "flows": [_topic_summary(some) for some in _topics(rows).values()],
        "lag_over_time": lag_overtime_text(history, rows) if rows else [],
        "partitions": [
            {**_partition(row, now), "lag_over_time": [lag for _, lag in history.read([key_of(row)])][-40:]}
            for row in shown
        ],
    }


def partition_page(
    state: ConsoleState,
    history: LagHistory,
    now: datetime,
    where: tuple[str, str, int],
    segments: PartitionSegments | None,
) -> ConsolePage | None:
    """`where`: region, topic and partition. `segments`: None while they are being listed. As `topic_page`, None when no
    flow has it, or a page without flows."""
    rows = [row for row in state.rows if (row.source.region, row.source.topic, row.source.partition) == where]
    if not rows and not state.is_any_flow_unread:
        return None
    return {
        **frame(state, now, "partition"),
        "region": where[0],
        "topic": where[1],
        "partition": where[2],
        "flows": [_partition(row, now) for row in sorted(rows, key=_by_name_and_number)],
        "lag_over_time": lag_overtime_text(history, rows) if rows else [],
        "segment_map": None if segments is None else map_json(segments, now),
    }


def problems_page(state: ConsoleState, now: datetime, query: PageQuery) -> ConsolePage:
    shown, pages = paged(all_problems(state), query.number, PROBLEMS)
    return {**frame(state, now, "problems"), **pages, "problems": shown}


def all_problems(state: ConsoleState) -> list[str]:
    """Of what was read last, after the parts that cannot be read now: theirs may be others by now."""
    found = [f"{name} cannot be read: {part.error}" for name, part in state.parts if part.error]
    found += [problem for _, part in state.flows if part.value is not None for problem in part.value.problems]
    if state.compaction.value is not None:
        found += state.compaction.value.problems
    if state.groups.value is not None:
        for one in state.groups.value.regions:
            found += [f"groups of {one.region}: {problem}" for problem in one.problems]
            found += [f"group {name} of {one.region}: {why}" for name, why in one.unreadable.items()]
    return found


def lag_overtime_text(history: LagHistory, rows: Iterable[PartitionRow]) -> Sequence[tuple[str, int | None]]:
    return _series(history, [key_of(row) for row in rows])


def _series(history: LagHistory, keys: Sequence[LagKey]) -> Sequence[tuple[str, int | None]]:
    return [(at.isoformat(timespec="seconds"), lag) for at, lag in history.read(keys)]


def proof_json(proof: Proof | None, now: datetime) -> Mapping[str, Any] | None:
    if proof is None:
        return None
    age = round((now - proof.at).total_seconds(), 1)
    return {"at": proof.at.isoformat(), "age_seconds": age, "next_offset": proof.next_offset, "whole": proof.is_whole}


def _topics(rows: Iterable[PartitionRow]) -> Mapping[tuple[str, ...], list[PartitionRow]]:
    """Of each flow, the partitions of one topic with one destination, in all its incarnations."""
    found: dict[tuple[str, ...], list[PartitionRow]] = {}
    for row in rows:
        found.setdefault((row.flow, row.source.region, row.source.topic, row.destination), []).append(row)
    return found


def _worst_first(rows: Sequence[PartitionRow]) -> tuple[Any, ...]:
    return _WORST_FIRST.index(_worst(rows)), -(_known_sum(row.lag for row in rows) or 0), *_by_name(rows)


def _by_name(rows: Sequence[PartitionRow]) -> tuple[Any, ...]:
    one = rows[0]
    return one.source.topic, one.source.region, one.destination, one.flow


def _by_name_and_number(row: PartitionRow) -> tuple[Any, ...]:
    return row.flow, row.destination, row.source.partition, row.source.incarnation


def _worst(rows: Iterable[PartitionRow]) -> Condition:
    return min((row.condition for row in rows), key=_WORST_FIRST.index)


def _topic_summary(rows: Sequence[PartitionRow]) -> Mapping[str, Any]:
    one = rows[0]
    incarnations = {row.source.incarnation for row in rows}
    proofs = [row.proof for row in rows if row.proof is not None]
    return {
        "flow": one.flow.value,
        "region": one.source.region,
        "topic": one.source.topic,
        "destination": one.destination or None,
        "partitions": len({row.source.partition for row in rows}),
        "incarnations": len(incarnations),
        "condition": _worst(rows).value,
        **_lag(rows),
        "gaps": sum(row.gaps for row in rows),
        "problems": sum(len(row.problems) for row in rows),
        "proven": len(proofs),
        "oldest_proof_at": time_text(min((proof.at for proof in proofs), default=None)),
        "not_whole": sum(not proof.is_whole for proof in proofs),
    }


def _lag(rows: Sequence[PartitionRow]) -> Mapping[str, Any]:
    """`lag_known`: of how many partitions the lag is known, and part of the sum; `lag_unknown`: of how many not."""
    counted = [row for row in rows if row.condition is not Condition.OVER]
    seconds = [row.seconds for row in counted if row.seconds is not None]
    return {
        "lag": _known_sum(row.lag for row in counted),
        "lag_known": sum(row.lag is not None for row in counted),
        "lag_unknown": sum(row.lag is None for row in counted),
        "lag_seconds": round(max(seconds), 1) if seconds else None,
    }


def _partition(row: PartitionRow, now: datetime) -> Mapping[str, Any]:
    return {
        "flow": row.flow.value,
        "partition": row.source.partition,
        "path": row.source.path,
        "destination": row.destination or None,
        "condition": row.condition.value,
        "position": row.position,
        "archive_end": row.archive_end,
        "source_end": row.source_end,
        "lag": row.lag,
        "lag_seconds": None if row.seconds is None else round(row.seconds, 1),
        "stored_bytes": row.stored_bytes,
        "gaps": row.gaps,
        "proven": proof_json(row.proof, now),
        "note": row.note or None,
        "problems": list(row.problems),
    }


def _flow(kind: FlowKind, part: ReadPart[FlowState], history: LagHistory, now: datetime) -> Mapping[str, Any]:
    found = part.value
    if found is None:
        return {"flow": kind.value, "is_read": False}
    return {
        "flow": kind.value,
        "is_read": True,
        "group": {"id": found.group_id, "state": found.group_state, "members": found.members},
        "topics": len(_topics(found.rows)),
        "partitions": len(found.rows),
        "conditions": _counts(found.rows, lambda row: row.condition.value),
        **_lag(found.rows),
        "problems": len(found.problems),
        "lag_over_time": _series(history, [whole(kind)]),
        "sources": [
            {
                "region": one.region,
                "heartbeat_at": time_text(one.heartbeat_at),
                "heartbeat_age_seconds": None
                if one.heartbeat_at is None
                else round((now - one.heartbeat_at).total_seconds(), 1),
                "records_behind": one.records_behind,
                "partitions_unknown": one.unknown,
            }
            for one in found.sources
        ],
    }


def _counts(rows: Iterable[PartitionRow], name: Callable[[PartitionRow], str]) -> Mapping[str, int]:
    found = {condition.value: 0 for condition in Condition}
    for row in rows:
        found[name(row)] += 1
    return found


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
