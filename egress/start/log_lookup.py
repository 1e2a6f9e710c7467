"""What brokers say of the logs of partitions that are to be positioned: one that gives no answer holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor, wait
from datetime import timedelta

from formats.errors import BrokerUnavailable, TargetError
from formats.log_point import LogPoint
from infra.contracts.cluster import ClusterAdmin, LogProbe, LogTruncated, TopicPartition, Watermarks
from infra.runtime import log_fields

ONE_BY_ONE = timedelta(seconds=30)  # for all partitions together, where each is asked for by itself

log = logging.getLogger(__name__)


def marks_of(
    admin: ClusterAdmin, partitions: Collection[TopicPartition], pool: Executor
) -> tuple[Mapping[TopicPartition, Watermarks], Mapping[TopicPartition, str]]:
    """Of every partition, or why they are not known; absent ones are left out of both. Raises BrokerUnavailable when
    they are known of none. `pool` is not the one this runs on."""
    try:
        return admin.watermarks(partitions), {}
    except BrokerUnavailable as error:
        if len(partitions) < 2:
            raise
        why = error
    # One partition without a leader fails the question for all, and the answer does not say which one it is. So each is
    # asked for by itself, side by side, in a time that does not grow with their number. A cluster that is away would
    # take all of that time for nothing: one question that any broker answers finds out, and raises.
    admin.cluster_id()
    asked = {partition: pool.submit(admin.watermarks, [partition]) for partition in partitions}
    done = wait(asked.values(), timeout=ONE_BY_ONE.total_seconds()).done
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


def compared(
    probe: LogProbe, points: Mapping[TopicPartition, LogPoint]
) -> Mapping[TopicPartition, LogTruncated | None]:
    """Whether the points are true; left out where nothing is known. A refusal counts when it is made twice, since an
    operator has to resolve it."""
    if not points:
        return {}
    try:
        found = probe.compared(points)
        refused = {p: points[p] for p, truncated in found.items() if truncated is not None}
        again = probe.compared(refused) if refused else {}
    except (BrokerUnavailable, TargetError) as error:
        log.warning("logs_not_compared", extra={log_fields.COUNT: len(points), log_fields.ERROR: str(error)})
        return {}
    return {**dict.fromkeys(found.keys() - refused.keys()), **again}
