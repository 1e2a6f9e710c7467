"""Whether the log that was read is still the one that the brokers have."""

from __future__ import annotations

from collections.abc import Collection

from egress.start.log_lookup import check_points
from formats.log_point import LogPoint
from infra.contracts.cluster import LogProbe, TopicPartition
from replicator.backfill.request import RangeOutcome


def changed_log(probe: LogProbe, partition: TopicPartition, outcomes: Collection[RangeOutcome]) -> str:
    """Why what was read is not known to be of the log as it is now; empty when the brokers confirm the last record of
    which the leader epoch is known, or when there is none. `outcomes`: of this partition."""
    read = [(one.last_offset, one.last_epoch) for one in outcomes if one.last_offset is not None]
    last = max(read, key=lambda one: one[0], default=None)
    if last is None or last[1] is None:
        return ""
    checked = check_points(probe, {partition: LogPoint(last[0] + 1, last[1])})
    if partition not in checked:
        return "the brokers do not say whether its log was cut while it was read: give the same command again"
    truncated = checked[partition]
    return "" if truncated is None else f"its log was cut while it was read: {truncated.reason}"
