"""Checks that a consumer group has members while offsets wait."""

from __future__ import annotations

from infra.contracts.cluster import GroupFacts


def missing_members(service: str, group_id: str, group: GroupFacts, waiting: int) -> str:
    """The problem of a group without a member while `waiting` offsets wait; empty when there is none."""
    if group.members or not waiting:
        return ""
    joins = "" if group.is_known else "; one that runs joins it with the first topic that it finds"
    return f"no {service} process is in group {group_id}, and {waiting} offsets wait{joins}"
