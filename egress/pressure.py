"""Pauses fetching while memory or spool are short. The poll loop never blocks, since the group membership needs it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from egress.assigned_partition import AssignedPartition
from egress.assignment import Assignment
from egress.read_session import ReadSession
from egress.segments.builder import SegmentBuilder
from infra.contracts.consumer import SourceConsumer
from infra.runtime import log_fields
from infra.runtime.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pressure:
    """Use from the poll thread only."""

    builder: SegmentBuilder
    consumer: SourceConsumer
    assignment: Assignment
    metrics: Metrics
    is_paused: bool = False

    def poll(self) -> Iterator[tuple[AssignedPartition, ReadSession]]:
        """Pause or resume fetching. Yields the partitions whose open segments must be sealed before they are full."""
        if not self.is_paused and self.builder.must_pause:
            self.is_paused = True
            self.consumer.pause([p for p, h in self.assignment.partitions.items() if h.reading is not None])
            for partition in self.assignment:
                self.metrics.count("egress_pauses", 1, **partition.labels)
            self._log("fetching_paused")
        elif self.is_paused and self.builder.may_resume:
            self.is_paused = False
            self.consumer.resume([p for p, h in self.assignment.partitions.items() if h.is_fetched])
            self._log("fetching_resumed")
        if self.is_paused:
            # Sealed segments are stored without help, but open ones would stay until they are full or old. In each
            # turn, since files of other processes may fill the disk.
            self.builder.encode_early()
            for source in self.builder.heaviest_open():
                heavy = self.assignment.of(source)
                if heavy is not None and (session := heavy.reading) is not None:
                    yield heavy, session

    def _log(self, event: str) -> None:
        log.info(event, extra={log_fields.BYTES: self.builder.buffered_bytes + self.builder.spool_bytes})
