"""The pages about compaction, consumer groups, proofs and drills as JSON values. Pure.

/compaction          jobs, next runs, and the runs that the console saw
/groups?q=&page=     what is done here with each offset of the groups of the source regions
/proofs?page=        when each topic was verified last, and the drills
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from formats.control.lease import Lease
from replicator.console.page_frame import ConsolePage, PageQuery, frame, paged
from replicator.console.state import ConsoleState, DrillHistory, PartitionRow

MOST_RUNS = 100
OFFSETS, PROOFS = 200, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRun:
    """A time during which a process held the lease of a region, as the refreshes saw it."""

    region: str
    owner: str
    first_seen_at: datetime
    last_seen_at: datetime
    is_running: bool


def observed_runs(
    before: Sequence[CompactionRun], running: Mapping[str, Lease], now: datetime
) -> tuple[CompactionRun, ...]:
    """The newest first, at most MOST_RUNS. A lease is renewed by its owner with other tokens: a run is one owner's."""
    found: list[CompactionRun] = []
    known = set()
    for run in before:
        lease = running.get(run.region) if run.is_running else None
        if lease is not None and lease.owner == run.owner:
            known.add(run.region)
            found.append(replace(run, last_seen_at=now))
        else:
            found.append(replace(run, is_running=False))
    new = [
        CompactionRun(region=region, owner=lease.owner, first_seen_at=now, last_seen_at=now, is_running=True)
        for region, lease in sorted(running.items())
        if region not in known
    ]
    return tuple([*new, *found][:MOST_RUNS])


def compaction_page(state: ConsoleState, now: datetime, runs: Sequence[CompactionRun]) -> ConsolePage:
    found = state.compaction.value
    return {
        **frame(state, now, "compaction"),
        "is_configured": state.compaction.is_configured,
        "jobs": []
        if found is None
        else [
            {
                "name": job.name,
                "region": job.region,
                "cron": job.cron,
                "timezone": job.timezone,
                "next_at": job.next_at and job.next_at.isoformat(timespec="seconds"),
                "last_ended_at": job.last and job.last.ended_at.isoformat(timespec="seconds"),
                "missed_runs": job.missed,
            }
            for job in found.jobs
        ],
        "processes": []
        if found is None
        else [
            {"owner": one.owner, "jobs": list(one.jobs), "until": one.until.isoformat(timespec="seconds")}
            for one in found.processes
        ],
        "runs": [
            {
                "region": run.region,
                "owner": run.owner,
                "first_seen_at": run.first_seen_at.isoformat(timespec="seconds"),
                "last_seen_at": run.last_seen_at.isoformat(timespec="seconds"),
                "running": run.is_running,
            }
            for run in runs
        ],
        "quarantined": []
        if found is None
        else [
            {"segment": str(segment), "reason": one.reason, "found_at": one.found_at.isoformat(timespec="seconds")}
            for segment, one in sorted(found.quarantined.items())
        ],
    }


def groups_page(state: ConsoleState, now: datetime, query: PageQuery) -> ConsolePage:
    found = state.groups.value
    wanted = query.search.casefold()
    offsets = [] if found is None else [one for one in found.offsets if wanted in one.group.casefold()]
    shown, pages = paged(offsets, query.number, OFFSETS)
    return {
        **frame(state, now, "groups"),
        **pages,
        "search": query.search,
        "is_synced": found is not None and found.is_synced,
        "left_out": 0 if found is None else found.left_out,
        "regions": []
        if found is None
        else [
            {
                "region": one.region,
                "as_of": one.as_of and one.as_of.isoformat(timespec="seconds"),
                "age_seconds": None if one.as_of is None else round((now - one.as_of).total_seconds(), 1),
                "groups": one.groups,
                "unreadable": dict(one.unreadable),
                "problems": list(one.problems),
            }
            for one in found.regions
        ],
        "offsets": [
            {
                "region": one.region,
                "group": one.group,
                "source": one.source,
                "source_offset": one.source_offset,
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "here": one.here,
                "outcome": one.outcome,
                "exactness": one.exactness,
                "reason": one.reason or None,
            }
            for one in shown
        ],
    }


def proofs_page(state: ConsoleState, now: datetime, query: PageQuery) -> ConsolePage:
    topics: dict[tuple[str, str], list[PartitionRow]] = {}
    for row in state.rows:
        topics.setdefault((row.source.region, row.source.path), []).append(row)
    proofs = [_proof_summary(region, path, rows, now) for (region, path), rows in topics.items()]
    proofs.sort(key=lambda one: (-one["not_whole"], one["proven"] > 0, one["oldest_at"] or "", one["path"]))
    shown, pages = paged(proofs, query.number, PROOFS)
    drills = state.drills.value or DrillHistory(drills=())
    return {
        **frame(state, now, "proofs"),
        **pages,
        "proofs": shown,
        "has_drills": state.drills.is_configured,
        "unreadable_drills": drills.unreadable,
        "drills": [
            {
                "at": one.at.isoformat(timespec="seconds"),
                "region": one.region,
                "good": one.is_good,
                "partitions": one.partitions,
                "records": one.records,
                "restore_seconds": round(one.restore_seconds, 1),
                "verify_seconds": round(one.verify_seconds, 1),
                "behind_seconds": None if one.behind_seconds is None else round(one.behind_seconds, 1),
                "differences": list(one.differences[:20]),
            }
            for one in drills.drills
        ],
    }


def _proof_summary(region: str, path: str, rows: Sequence[PartitionRow], now: datetime) -> Mapping[str, Any]:
    found = [row.proof for row in rows if row.proof is not None]
    oldest = min((proof.at for proof in found), default=None)
    newest = max((proof.at for proof in found), default=None)
    return {
        "region": region,
        "topic": rows[0].source.topic,
        "path": path,
        "partitions": len(rows),
        "proven": len(found),
        "not_whole": sum(not proof.is_whole for proof in found),
        "oldest_at": oldest and oldest.isoformat(timespec="seconds"),
        "newest_at": newest and newest.isoformat(timespec="seconds"),
        "oldest_age_seconds": None if oldest is None else round((now - oldest).total_seconds(), 1),
    }
