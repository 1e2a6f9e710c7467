"""The segment map of a partition as a JSON value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from replicator.console.page_frame import time_text
from replicator.console.segment_map import IncarnationMap, PartitionSegments


def map_json(found: PartitionSegments, now: datetime) -> Mapping[str, Any]:
    return {
        "read_at": found.read_at.isoformat(),
        "age_seconds": round((now - found.read_at).total_seconds(), 1),
        "error": found.error or None,
        "incarnations": [_incarnation_json(one) for one in found.incarnations],
    }


def _incarnation_json(one: IncarnationMap) -> Mapping[str, Any]:
    return {
        "path": one.path,
        "id": one.incarnation_id,
        "start": one.start,
        "next_offset": one.next_offset,
        "begin": None if one.begin is None else one.begin.offset,
        "begun_at": None if one.begin is None else time_text(one.begin.recorded_at),
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
