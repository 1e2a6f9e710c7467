"""The pages about flows, topics and partitions as JSON values. Pure.

    /                                       overview
    /topics?q=&sort=&page=                  topics
    /topics/REGION/TOPIC?page=              one topic with its partitions
    /topics/REGION/TOPIC/PARTITION          one partition: lag, segment map, problems
    /problems?page=                         all problems

Lists have pages, so that no answer grows with the number of partitions. HTML is made of these values and of nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from infra.archive.proofs import Proof
from replicator.console.history import LagHistory, LagKey, whole
from replicator.console.segment_map import IncarnationMap, PartitionSegments
from replicator.console.state import Condition, ConsoleState, FlowKind, FlowState, PartitionRow, ReadPart

T = TypeVar("T")
ConsolePage = Mapping[str, Any]

TOPICS, PARTITIONS, PROBLEMS, FIRST = 100, 100, 200, 20
"""Lines of a page."""
_WORST_FIRST = tuple(Condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """What a list is asked for."""

    search: str = ""  # part of a name, in any case
    sort: str = ""  # "" for the worst first, "name"
    number: int = 1  # of the page, from 1


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
    """`where`: region and topic. None when no flow has it."""
    rows = [row for row in state.rows if (row.source.region, row.source.topic) == where]
    if not rows:
        return None
    shown, pages = paged(sorted(rows, key=_by_name_and_number), query.number, PARTITIONS)
    return {
        **frame(state, now, "topic"),
        **pages,
        "region": where[0],
        "topic": where[1],
        "flows": [_topic_summary(some) for some in _topics(rows).values()],
        "lag_over_time": lag_over_time(history, rows),
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
    """`where`: region, topic and partition. `segments`: None while they are being listed."""
    rows = [row for row in state.rows if (row.source.region, row.source.topic, row.source.partition) == where]
    if not rows:
        return None
    return {
        **frame(state, now, "partition"),
        "region": where[0],
        "topic": where[1],
        "partition": where[2],
        "flows": [_partition(row, now) for row in sorted(rows, key=_by_name_and_number)],
        "lag_over_time": lag_over_time(history, rows),
        "segment_map": None if segments is None else map_json(segments, now),
    }


def problems_page(state: ConsoleState, now: datetime, query: PageQuery) -> ConsolePage:
    shown, pages = paged(all_problems(state), query.number, PROBLEMS)
    return {**frame(state, now, "problems"), **pages, "problems": shown}


def all_problems(state: ConsoleState) -> list[str]:
    found = [problem for _, part in state.flows if part.value is not None for problem in part.value.problems]
    if state.compaction.value is not None:
        found += state.compaction.value.problems
    if state.groups.value is not None:
        for one in state.groups.value.regions:
            found += [f"groups of {one.region}: {problem}" for problem in one.problems]
            found += [f"group {name} of {one.region}: {why}" for name, why in one.unreadable.items()]
    return found


def frame(state: ConsoleState, now: datetime, name: str) -> dict[str, Any]:
    """What every page has: whose state it is, and how old each part of it is."""
    parts: Sequence[tuple[str, ReadPart[Any]]] = [
        ("egress", state.egress),
        ("ingress", state.ingress),
        ("groups", state.groups),
        ("compaction", state.compaction),
        ("drills", state.drills),
    ]
    return {
        "page": name,
        "own_region": state.region,
        "at": now.isoformat(),
        "refreshed_at": _time(state.refreshed_at),
        "refresh_seconds": round(state.refresh_seconds, 3),
        "parts": {
            part: {
                "read_at": _time(one.read_at),
                "age_seconds": None if one.read_at is None else round((now - one.read_at).total_seconds(), 1),
                "error": one.error or None,
                "failed_at": _time(one.failed_at),
            }
            for part, one in parts
            if one.is_configured
        },
    }


def paged(found: Sequence[T], number: int, size: int) -> tuple[Sequence[T], Mapping[str, int]]:
    """The lines of a page, and which one it is; a number beyond the last is the last."""
    pages = max(-(-len(found) // size), 1)
    number = min(max(number, 1), pages)
    return found[(number - 1) * size : number * size], {"number": number, "pages": pages, "total": len(found)}


def key_of(row: PartitionRow) -> LagKey:
    return row.flow, row.source, row.destination


def lag_over_time(history: LagHistory, rows: Iterable[PartitionRow]) -> Sequence[tuple[str, int | None]]:
    return _series(history, [key_of(row) for row in rows])


def _series(history: LagHistory, keys: Sequence[LagKey]) -> Sequence[tuple[str, int | None]]:
    return [(at.isoformat(timespec="seconds"), lag) for at, lag in history.read(keys)]


def map_json(found: PartitionSegments, now: datetime) -> Mapping[str, Any]:
    return {
        "read_at": found.read_at.isoformat(),
        "age_seconds": round((now - found.read_at).total_seconds(), 1),
        "error": found.error or None,
        "incarnations": [_incarnation_json(one) for one in found.incarnations],
    }


def proof_json(proof: Proof | None, now: datetime) -> Mapping[str, Any] | None:
    if proof is None:
        return None
    age = round((now - proof.at).total_seconds(), 1)
    return {"at": proof.at.isoformat(), "age_seconds": age, "next_offset": proof.next_offset, "whole": proof.is_whole}


def _incarnation_json(one: IncarnationMap) -> Mapping[str, Any]:
    return {
        "path": one.path,
        "id": one.incarnation_id,
        "start": one.start,
        "next_offset": one.next_offset,
        "begin": None if one.begin is None else one.begin.offset,
        "begun_at": None if one.begin is None else _time(one.begin.recorded_at),
        "forks": list(one.forks),
        "levels": [
            {
                "level": level.level,
                "segments": level.segments,
                "bytes": level.size_bytes,
                "blocks": [
                    {
                        "start": block.offsets.start,
                        "end": block.offsets.end,
                        "segments": block.segments,
                        "bytes": block.size_bytes,
                        "newest_at": block.newest_at.isoformat(timespec="seconds"),
                    }
                    for block in level.blocks
                ],
            }
            for level in one.levels
        ],
        "holes": [
            {"start": hole.offsets.start, "end": hole.offsets.end, "kind": hole.kind, "reason": hole.reason}
            for hole in one.holes
        ],
        "more_holes": one.more_holes,
        "damaged": dict(one.damaged),
        "is_cut": one.is_cut,
    }


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
        "oldest_proof_at": _time(min((proof.at for proof in proofs), default=None)),
        "not_whole": sum(not proof.is_whole for proof in proofs),
    }


def _lag(rows: Sequence[PartitionRow]) -> Mapping[str, Any]:
    """`lag_known`: of how many partitions the lag is known, and part of the sum."""
    counted = [row for row in rows if row.condition is not Condition.OVER]
    seconds = [row.seconds for row in counted if row.seconds is not None]
    return {
        "lag": _known_sum(row.lag for row in counted),
        "lag_known": sum(row.lag is not None for row in counted),
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
                "heartbeat_at": _time(one.heartbeat_at),
                "heartbeat_age_seconds": None
                if one.heartbeat_at is None
                else round((now - one.heartbeat_at).total_seconds(), 1),
                "records_behind": one.records_behind,
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


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
