"""Which timestamps a topic of this cluster can hold, and records made to fit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from infra.contracts.cluster import ClusterAdmin
from infra.contracts.producer import Checked
from infra.kafka.client.encode import EARLIEST, LATEST, clamp_timestamps, unsupported_timestamps
from infra.kafka.client.topic_configs import limits_ms
from infra.runtime.lifecycle import Clock

SLACK_MS = 60_000  # between clamping a record and the broker's look at it, clocks that differ included
FRESH_SECONDS = 60.0  # topic settings are asked for again after this


@dataclass(frozen=True, slots=True)
class _Limits:
    before_max_ms: int
    after_max_ms: int
    kept: bool  # the producer's stamps are stored; else the broker's own are, and any may come
    until: float


@dataclass(slots=True)
class TargetTimestamps:
    """A `TimestampRule`. One thread."""

    admin: ClusterAdmin
    clock: Clock
    _limits: dict[str, _Limits] = field(default_factory=dict)

    def check(self, topic: str, batches: Sequence[pa.RecordBatch], *, clamp: bool) -> Checked:
        limits = self._of(topic)
        if not limits.kept:
            return Checked(batches, 0)
        now_ms = int(self.clock.now().timestamp() * 1000)
        before_max_ms, after_max_ms = limits.before_max_ms, limits.after_max_ms
        if clamp:  # the broker judges later, and by its own clock
            before_max_ms, after_max_ms = _with_slack(before_max_ms), _with_slack(after_max_ms)
        fit: list[pa.RecordBatch] = []
        altered = 0
        for batch in batches:
            bad = unsupported_timestamps(batch, before_max_ms=before_max_ms, after_max_ms=after_max_ms, now_ms=now_ms)
            if bad is not None and not clamp:
                stamp = bad.first_timestamp_ms
                why = "which the Kafka client replaces by the current time" if stamp == 0 else "which it refuses"
                return Checked(
                    (),
                    0,
                    f"source offset {bad.first_offset} has timestamp {stamp} ({_shown(stamp)}), {why}, as would "
                    f"{bad.count - 1} more. Raise {topic}'s message.timestamp.before.max.ms and after.max.ms, or set "
                    "on_timestamp = 'clamp' for this source",
                )
            if bad is not None:
                low = EARLIEST if before_max_ms >= LATEST else now_ms - before_max_ms
                high = LATEST if after_max_ms >= LATEST else now_ms + after_max_ms
                batch, changed = clamp_timestamps(batch, low, high)  # noqa: PLW2901
                altered += changed
            fit.append(batch)
        return Checked(fit, altered)

    def _of(self, topic: str) -> _Limits:
        known = self._limits.get(topic)
        if known is None or time.monotonic() > known.until:
            configs = self.admin.configs(topic)
            before_max_ms, after_max_ms = limits_ms(configs)
            known = self._limits[topic] = _Limits(
                before_max_ms,
                after_max_ms,
                configs.get("message.timestamp.type", "CreateTime") == "CreateTime",
                time.monotonic() + FRESH_SECONDS,
            )
        return known


def _with_slack(limit_ms: int) -> int:
    return limit_ms if limit_ms >= LATEST else limit_ms - min(SLACK_MS, limit_ms // 2)


def _shown(stamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(stamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return "no date"
