"""Checks records against the timestamp limits of a target topic, and clamps them if configured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from infra.contracts.cluster import ClusterAdmin
from infra.contracts.producer import Checked
from infra.kafka.client.encode import (
    EARLIEST,
    LATEST,
    UnsupportedTimestamps,
    clamp_timestamps,
    unsupported_timestamps,
)
from infra.kafka.client.topic_configs import limits_ms
from infra.runtime.lifecycle import Clock

SLACK_MS = 60_000  # between clamping a record and the broker's check of it, including clock skew
REFRESH_SECONDS = 60.0  # topic configs are read again after this time


@dataclass(frozen=True, slots=True)
class _Limits:
    before_max_ms: int
    after_max_ms: int
    keeps_timestamps: bool  # the producer's timestamps are stored; else the broker stores its own and accepts any
    until: float


@dataclass(slots=True)
class TargetTimestamps:
    """A TimestampRule. Use from one thread only."""

    admin: ClusterAdmin
    clock: Clock
    remedy: str = "set on_timestamp = 'clamp' for this source"  # what clamps, at the end of a refusal's sentence
    _limits: dict[str, _Limits] = field(default_factory=dict)

    def check(self, topic: str, batches: Sequence[pa.RecordBatch], *, clamp: bool) -> Checked:
        if not batches:  # a first checkpoint: no request for each topic within a transaction
            return Checked(batches, 0)
        limits = self._of(topic)
        if not limits.keeps_timestamps:
            return Checked(batches, 0)
        now_ms = int(self.clock.now().timestamp() * 1000)
        before_max_ms, after_max_ms = limits.before_max_ms, limits.after_max_ms
        if clamp:  # the broker checks later, and by its own clock
            before_max_ms, after_max_ms = _with_slack(before_max_ms), _with_slack(after_max_ms)
        accepted: list[pa.RecordBatch] = []
        altered = 0
        for batch in batches:
            bad = unsupported_timestamps(batch, before_max_ms=before_max_ms, after_max_ms=after_max_ms, now_ms=now_ms)
            if bad is not None and not clamp:
                return Checked((), 0, _refusal(topic, bad, self.remedy))
            if bad is not None:
                low = EARLIEST if before_max_ms >= LATEST else now_ms - before_max_ms
                high = LATEST if after_max_ms >= LATEST else now_ms + after_max_ms
                batch, changed = clamp_timestamps(batch, low, high)  # noqa: PLW2901
                altered += changed
            accepted.append(batch)
        return Checked(accepted, altered)

    def _of(self, topic: str) -> _Limits:
        known = self._limits.get(topic)
        if known is None or time.monotonic() > known.until:
            configs = self.admin.configs(topic)
            before_max_ms, after_max_ms = limits_ms(configs)
            known = self._limits[topic] = _Limits(
                before_max_ms,
                after_max_ms,
                configs.get("message.timestamp.type", "CreateTime") == "CreateTime",
                time.monotonic() + REFRESH_SECONDS,
            )
        return known


def _with_slack(limit_ms: int) -> int:
    return limit_ms if limit_ms >= LATEST else limit_ms - min(SLACK_MS, limit_ms // 2)


def _refusal(topic: str, bad: UnsupportedTimestamps, remedy: str) -> str:
    timestamp_ms = bad.first_timestamp_ms
    what = f"source offset {bad.first_offset} has timestamp {timestamp_ms} ({_as_text(timestamp_ms)})"
    more = f"{bad.count - 1} more records of the run have timestamps that {topic} would not get as they are"
    if timestamp_ms == 0:  # no config of the topic helps: librdkafka takes 0 for none (its issue 1153)
        return (
            f"{what}, which the Kafka client replaces by the current time; {more}. {remedy[0].upper()}{remedy[1:]}, "
            "which makes it 1"
        )
    return (
        f"{what}, which the topic rejects; {more}. Raise {topic}'s message.timestamp.before.max.ms and after.max.ms, "
        f"or {remedy}"
    )


def _as_text(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return "no date"
