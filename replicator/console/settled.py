"""Up to which offset no segment of a partition may be on its way any more: what is missing below it is missing. Pure.

Segments are stored, and replicated, in any order; a flow's position passes them in that of their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.console.state import ConsoleState, FlowKind, PartitionRow


def settled_offsets(state: ConsoleState, where: tuple[str, str, int]) -> Mapping[str, int]:
    """`where`: region, topic and partition. By incarnation id, the next offset to be archived, or delivered, when the
    state was read; 0 before the first commit. An incarnation is left out where nothing is on its way: it is over, or it
    has no commit and egress no process."""
    found: dict[str, int] = {}
    for _, part in state.flows:
        if part.value is None:
            continue
        for row in part.value.rows:
            if (row.source.region, row.source.topic, row.source.partition) != where:
                continue
            if not _is_at_rest(row, part.value.members):
                id_ = row.source.incarnation
                found[id_] = max(row.position or 0, found.get(id_, 0))
    return found


def _is_at_rest(row: PartitionRow, members: int) -> bool:
    return row.flow is FlowKind.EGRESS and row.position is None and members == 0
