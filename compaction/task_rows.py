"""Plans and outcomes as text, exchanged between the planning process and the workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from compaction.planner import CleanPlan, CompactionPlan, MergePlan
from formats.coverage import SegmentSlice
from formats.segment import Segment, parse_key


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """Outcome of one plan. Sizes are of stored objects, except `raw_bytes`."""

    segment: str  # the merged one, or the keeper
    merged: int = 0  # inputs
    deleted: int = 0
    deleted_records: int = 0  # all of them are in the keeper
    records: int = 0  # of the merged segment
    raw_bytes: int = 0
    read_bytes: int = 0
    stored_bytes: int = 0
    freed_bytes: int = 0
    seconds: float = 0.0
    error: str = ""  # why it was not executed
    kept: Mapping[str, str] = field(default_factory=dict)  # segments that were not deleted, with the reason
    bad: Mapping[str, str] = field(default_factory=dict)  # corrupt segments, with the reason

    @property
    def partition(self) -> str:
        return str(parse_key("", self.segment).source)


def encode_plan(plan: CompactionPlan) -> str:
    match plan:
        case MergePlan():
            inputs = [[str(one.segment), one.offsets.start] for one in plan.inputs]
            return _dump({"merge": str(plan.output), "inputs": inputs, "size_bytes": plan.size_bytes})
        case CleanPlan():
            inside = [[str(segment), size_bytes] for segment, size_bytes in plan.inside.items()]
            return _dump({"clean": str(plan.keeper), "inside": inside})


def decode_plan(text: str) -> CompactionPlan:
    """Inverse of `encode_plan`."""
    d = json.loads(text)
    if "merge" in d:
        inputs = tuple(SegmentSlice.rest(_segment(key), from_offset) for key, from_offset in d["inputs"])
        return MergePlan(output=_segment(d["merge"]), inputs=inputs, size_bytes=d["size_bytes"])
    return CleanPlan(keeper=_segment(d["clean"]), inside={_segment(key): size_bytes for key, size_bytes in d["inside"]})


def encode_outcome(outcome: PlanOutcome) -> str:
    return _dump(asdict(outcome))


def decode_outcome(text: str) -> PlanOutcome:
    return PlanOutcome(**json.loads(text))


def _segment(key: str) -> Segment:
    return parse_key("", key)


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
