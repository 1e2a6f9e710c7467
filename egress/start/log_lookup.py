"""Asks the brokers about the logs of partitions that are about to be read. A partition without an answer does not hold
up the others."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor, wait
from datetime import timedelta

from formats.errors import BrokerUnavailable, TargetError
from formats.log_point import LogPoint
from infra.contracts.cluster import ClusterAdmin, LogProbe, LogTruncated, TopicPartition, Watermarks
from infra.runtime import log_fields
from infra.runtime.lifecycle import Deadline

ONE_BY_ONE = timedelta(seconds=30)  # for all partitions together, when each is asked about separately

log = logging.getLogger(__name__)


class OneByOne:
    """The time that is left for partitions that are each asked about separately, over all requests of one lookup. It
    begins with the first of them."""

    def __init__(self) -> None:
        self._deadline: Deadline | None = None

    def left(self) -> timedelta:
        if self._deadline is None:
            self._deadline = Deadline(ONE_BY_ONE)
        return self._deadline.left


def marks_of(
    admin: ClusterAdmin, partitions: Collection[TopicPartition], pool: Executor, patience: OneByOne
) -> tuple[Mapping[TopicPartition, Watermarks], Mapping[TopicPartition, str]]:
    """Watermarks of each partition, and the reason for each whose watermarks are not known. Partitions that do not
    exist are in neither. Raises BrokerUnavailable when no watermarks are known at all. `pool` must not be the pool that
    this runs on."""
    try:
        return admin.watermarks(partitions), {}
    except BrokerUnavailable as error:
        if len(partitions) < 2:
            raise
        why = error
    # One partition without a leader fails the request for all, and the answer does not name it. So each partition is
    # asked about separately, in parallel, within a time that does not grow with their number. With an unreachable
    # cluster all of that time would be wasted: one request that any broker answers finds that out first, and raises.
    admin.cluster_id()
    asked = {partition: pool.submit(admin.watermarks, [partition]) for partition in partitions}
    done = wait(asked.values(), timeout=patience.left().total_seconds()).done
    found: dict[TopicPartition, Watermarks] = {}
    failed: dict[TopicPartition, str] = {}
    for partition, future in asked.items():
        if future not in done:
            future.cancel()
            failed[partition] = f"list offsets of {partition}: no answer within {ONE_BY_ONE}"
            continue
        try:
            found |= future.result()
        except BrokerUnavailable as error:
            failed[partition] = str(error)
    if failed and not found:
        raise why
    return found, failed


def check_points(
    probe: LogProbe, points: Mapping[TopicPartition, LogPoint]
) -> Mapping[TopicPartition, LogTruncated | None]:
    """None for each point that the log confirms, else how the log was truncated; partitions without an answer are left
    out. A truncation counts only when the brokers report it twice, since an operator has to resolve it."""
    if not points:
        return {}
    try:
        found = probe.compare_points(points)
        refused = {p: points[p] for p, truncated in found.items() if truncated is not None}
        again = probe.compare_points(refused) if refused else {}
    except (BrokerUnavailable, TargetError) as error:
        log.warning("logs_not_compared", extra={log_fields.COUNT: len(points), log_fields.ERROR: str(error)})
        return {}
    return {**dict.fromkeys(found.keys() - refused.keys()), **again}
