"""A source partition whose target partition is assigned to this process, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from ingress.listings import Listing
from ingress.reports import Assignment
from ingress.sequencer import LatePolicy, Sequencer
from replicator import logkeys
from replicator.config import IngressSource
from replicator.metrics import Metrics
from replicator.segment import SourcePartition
from replicator.view import SegmentView


@dataclass(slots=True, eq=False)
class Held:
    """Compared by identity: the same partition assigned again is another holding."""

    assignment: Assignment
    policy: LatePolicy
    view: SegmentView = field(default_factory=SegmentView)
    sequencer: Sequencer | None = None  # None until its checkpoint was read
    resolving: bool = False
    retry_at: datetime | None = None  # of reading the checkpoint
    relist_at: datetime | None = None  # by the timer
    listing: Listing | None = None  # under way
    finished: dict[SourcePartition, int] = field(default_factory=dict)  # lives before its own: their next offsets
    refusals: int = 0  # of the same record, in a row
    stopped: str = ""  # why it waits for an operator

    @property
    def labels(self) -> dict[str, str]:
        return self.assignment.labels

    @property
    def fields(self) -> dict[str, object]:
        source = self.assignment.source
        return {logkeys.REGION: source.region, logkeys.TOPIC: source.place, logkeys.PARTITION: source.partition}

    def measure(self, metrics: Metrics, now: datetime) -> None:
        """How far delivery is behind what is known to be stored."""
        next_offset = self.sequencer.next_offset if self.sequencer else self.view.next_offset or None
        waiting = [i for i in self.view.infos if next_offset is None or i.segment.offsets.end >= next_offset]
        end = max((i.segment.offsets.next_offset for i in waiting), default=0)
        begin = next_offset or min((i.segment.offsets.start for i in waiting), default=0)
        oldest = min((i.stored_at for i in waiting), default=now)
        metrics.gauge("ingress_lag_records", max(end - begin, 0), **self.labels)
        metrics.gauge("ingress_lag_seconds", max((now - oldest).total_seconds(), 0), **self.labels)


def late_policy(settings: IngressSource) -> LatePolicy:
    return LatePolicy(
        first_segment_delay=settings.first_segment_delay,
        late_retries=settings.late_segment_retries,
        lost_timeout=settings.lost_segment_timeout,
        skip_lost=settings.on_lost == "skip",
    )
