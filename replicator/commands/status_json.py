"""Egress, ingress and destinations in `replicator status --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from infra.archive.proofs import Proof
from replicator.commands.client_lag import lag_json
from replicator.commands.status_remedies import release_command, seed_command, skip_command
from replicator.status.egress import EgressStatus
from replicator.status.ingress import IngressStatus
from replicator.status.lag import PartitionLag

if TYPE_CHECKING:
    from infra.contracts.cluster import GroupFacts
    from replicator.status.destinations import DestinationsStatus


def _proof_json(proof: Proof | None, now: datetime) -> Mapping[str, object] | None:
    if proof is None:
        return None
    age = (now - proof.at).total_seconds()
    return {"at": proof.at.isoformat(), "age_seconds": age, "next_offset": proof.next_offset, "whole": proof.is_whole}


def egress_json(status: EgressStatus, now: datetime) -> Mapping[str, object]:
    rows = [
        {
            "topic": p.source.topic,
            "partition": p.source.partition,
            "place": p.source.path,
            **asdict(p.ends),
            "committed": p.committed,
            "archive_end": p.archive_end,
            "lag": p.lag,
            "open_transaction": None
            if not p.is_open
            else {
                "since": p.open_since and p.open_since.isoformat(),
                "age_seconds": p.open_since and (now - p.open_since).total_seconds(),
            },
            "recorded_gaps": p.recorded_gaps,
            "proven": _proof_json(p.proof, now),
            "problems": list(p.problems),
        }
        for p in status.partitions
    ]
    return {"group": _group_json(status.group_id, status.group), "partitions": rows, "problems": status.problems}


def ingress_json(
    status: IngressStatus, now: datetime, option: Sequence[str], lags: Sequence[PartitionLag] = ()
) -> Mapping[str, object]:
    rows = [
        {
            "source": str(p.key.source),
            "destination": p.key.destination_topic,
            "configured": p.configured,
            "checkpoint": None
            if p.checkpoint is None
            else {
                "next_offset": p.checkpoint.next_offset,
                "author": str(p.checkpoint.author),
                "at": p.checkpoint.at.isoformat(),
                "age_seconds": (now - p.checkpoint.at).total_seconds(),
                "destination_topic_id": p.checkpoint.destination_topic_id,
            },
            "archive_start": p.archive_start,
            "archive_end": p.archive_end,
            "lag": p.lag,
            "parked": None
            if p.parked is None
            else {
                "next_offset": p.parked.next_offset,
                "since": p.parked.since.isoformat(),
                "reason": p.parked.reason,
                "release": release_command(p, option) or None,
                "seed": seed_command(p, option) or None,
                "skip": skip_command(p, option) or None,
            },
            "waits_since": p.waits_since and p.waits_since.isoformat(),
            "waits_for": p.waits_for or None,
            "skipped_offsets": p.skipped,
            "transform": p.transform or None,
            "dropped_records": p.dropped,
            "proven": _proof_json(p.proof, now),
            "problems": list(p.problems),
        }
        for p in status.partitions
    ]
    return {
        "group": _group_json(status.group_id, status.group),
        "checkpoint_topic": {
            "name": status.checkpoint_topic,
            "exists": status.has_topic,
            "group": status.owner or None,
        },
        "sources": [
            {
                "region": one.region,
                "heartbeat_at": one.heartbeat_at and one.heartbeat_at.isoformat(),
                "as_of": one.as_of and one.as_of.isoformat(),
                "records_behind": one.records_behind,
                "partitions_unknown": one.unknown,
                "heartbeat_topics": dict(one.heartbeat_topics),
            }
            for one in status.sources
        ],
        "partitions": rows,
        "lag": [lag_json(one) for one in lags],
        "problems": status.problems,
    }


def destinations_json(status: DestinationsStatus) -> Mapping[str, object]:
    return {
        "catalogs": {region: at.isoformat() for region, at in status.changed_at.items()},
        "without_catalog": list(status.without_catalog),
        "changes": status.changes,
        "left": list(status.differences),
        "problems": status.problems,
    }


def _group_json(group_id: str, group: GroupFacts) -> Mapping[str, object]:
    return {
        "id": group_id,
        "state": group.state,
        "members": group.members,
        "partitions_held": len(group.partitions),
    }
