"""What the target's answer to a round means for each of its partitions: how far it is delivered, and what is read next.

A refused record is found by halving: its partition is read again in runs of half as many records, until the record is
alone in one. The records before it are delivered then, and the position is its offset.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from queue import Queue

from infra.contracts.producer import FailureKind, RunFailed
from infra.runtime import log_fields
from infra.runtime.metrics import Metrics
from ingress.delivery.events import DeliveryEvent, DeliveryFailed, DeliveryTarget, Progressed
from ingress.delivery.read_ahead import Narrow, ReadAhead, ReadPosition, SegmentRead
from ingress.delivery.round_parts import RefusedRun, RoundPart

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoundResults:
    """Use from the delivery thread only."""

    read_ahead: ReadAhead
    reports: Queue[DeliveryEvent]
    metrics: Metrics

    def finish(
        self, parts: Collection[RoundPart], failures: Collection[RunFailed], seconds: float, at: datetime
    ) -> None:
        """`seconds`: how long the round took; `at`: its end."""
        failed = {failure.partition: failure for failure in failures}
        sharing = Counter(part.reading.delivery_target.target for part in parts)
        for part in parts:
            target = part.reading.delivery_target.target
            if (failure := failed.get(target)) is None:
                self._delivered(part, seconds, at)
            else:
                self._failed(part, failure, shares_partition=sharing[target] > 1)

    def _delivered(self, part: RoundPart, seconds: float, at: datetime) -> None:
        reading, delivery_target = part.reading, part.reading.delivery_target
        if part.count:
            self.read_ahead.joins(delivery_target.target)
        if part.has_run:
            self._measure(delivery_target, part, seconds, at)
            position, count = reading.position, part.count
            self.reports.put(
                Progressed(delivery_target, position.next_offset, part.done, count, part.size_bytes, position.dropped)
            )
        self._after(part)

    def _failed(self, part: RoundPart, failure: RunFailed, *, shares_partition: bool) -> None:
        """`shares_partition`: another source is delivered to the same target partition in this round."""
        reading, delivery_target = part.reading, part.reading.delivery_target
        if failure.kind in (FailureKind.RETRY_NOW, FailureKind.DELIVER_SEPARATELY):
            if failure.kind is FailureKind.DELIVER_SEPARATELY:
                self.read_ahead.set_apart(delivery_target.target.topic)
            self.read_ahead.again(reading, part.begin, reading.narrow)
        elif failure.kind is FailureKind.REJECTED and shares_partition:  # separate rounds show whose record it is
            self.read_ahead.again(reading, part.begin, Narrow(max(part.read, 1), part.last_offset + 1))
        elif failure.kind is FailureKind.REJECTED:
            reason = f"{failure.code}: {failure.reason}"
            count = part.read if part.count else 0
            self._refused(reading, part.begin, RefusedRun(reason, count, part.last_offset))
        else:
            if failure.kind is FailureKind.DENIED:
                self.read_ahead.set_apart(delivery_target.target.topic)
            elif failure.kind is FailureKind.STALLED:
                self.read_ahead.set_apart(delivery_target.target)
            self.read_ahead.drop(delivery_target.epoch)
            self.reports.put(DeliveryFailed(delivery_target, f"{failure.code}: {failure.reason}", failure.kind))

    def _after(self, part: RoundPart) -> None:
        reading, then = part.reading, part.then
        if isinstance(then, RefusedRun):
            self._refused(reading, reading.position, then)
        elif then is not None:
            self.read_ahead.drop(reading.delivery_target.epoch)
            self.reports.put(then)
        elif part.done:
            self.read_ahead.drop(reading.delivery_target.epoch)
        elif reading.narrow is not None and reading.next_offset >= reading.narrow.until:
            # it was refused only together with another source
            self.read_ahead.again(reading, reading.position, None)

    def _refused(self, reading: SegmentRead, position: ReadPosition, refusal: RefusedRun) -> None:
        narrow = reading.narrow
        if refusal.count == 0:  # without records: the first checkpoint was refused
            self.read_ahead.drop(reading.delivery_target.epoch)
            self.reports.put(DeliveryFailed(reading.delivery_target, refusal.reason, FailureKind.REJECTED))
            return
        if refusal.count == 1 or (narrow is not None and narrow.max_records == 1):
            self.read_ahead.drop(reading.delivery_target.epoch)
            reason = f"the record at offset {refusal.last_offset} is refused: {refusal.reason}"
            self.reports.put(DeliveryFailed(reading.delivery_target, reason, FailureKind.REJECTED, refusal.last_offset))
            return
        # a run may leave out as many records again, so its count alone might never fall
        most = refusal.count if narrow is None else min(refusal.count, narrow.max_records)
        self.read_ahead.again(reading, position, Narrow(max(most // 2, 1), refusal.last_offset + 1))

    def _measure(self, delivery_target: DeliveryTarget, part: RoundPart, seconds: float, at: datetime) -> None:
        part.records.acknowledged(at, self.metrics, delivery_target.record_labels)
        if delivery_target.transform:
            self.metrics.count("dropped_records", part.dropped, **delivery_target.record_labels)
        self.metrics.observe("produce_latency_seconds", seconds, **delivery_target.labels)
        log.debug("run_delivered", extra={log_fields.RECORDS: part.count, log_fields.BYTES: part.size_bytes})
