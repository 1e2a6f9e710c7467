"""Reports lasting problems to operators: failures in a row, missing segments, and a target that does not answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.contracts.consumer import Placement
from infra.contracts.internal_topics import EventLog
from infra.runtime.failures import Attempt
from infra.runtime.health import Health
from ingress.assigned_partition import AssignedPartition, StopReason
from ingress.assignment import Assignment
from ingress.delivery.rounds import Delivery

EVENTS = "segment events"  # in health
ROUND_ALARM = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class Alarms:
    """Use from the controller's thread only."""

    assignment: Assignment
    delivery: Delivery
    placement: Placement
    event_log: EventLog
    health: Health
    _halted: str = ""  # why delivery was halted at the last turn

    def poll(self, now: datetime) -> None:
        for assigned in self.assignment:
            self._watch_failures(assigned, now)
        self._watch_target()

    def _watch_failures(self, assigned: AssignedPartition, now: datetime) -> None:
        """Report lasting failures in a row as a stop; the partition is retried as before. Report a lasting wait for a
        segment as a problem."""
        self.health.problem(assigned.lateness, assigned.late_since(now))
        alarm = assigned.failures.alarm(now)
        if alarm and (sequencer := assigned.sequencer) is not None and sequencer.exhausted:
            assigned.failures.succeeded(Attempt.DELIVERY)  # the segments that failed are gone from the archive
            alarm = assigned.failures.alarm(now)
        match assigned.stop_reason:
            case None if alarm:
                self.assignment.stop(assigned, alarm, blames_target=True, by_failures=True)
            case StopReason(by_failures=True) if not alarm:
                self.assignment.resume(assigned)
            case StopReason(by_failures=True):
                self.assignment.fails(assigned, alarm)
            case _:
                pass

    def _watch_target(self) -> None:
        """Report problems that affect every partition of this process."""
        halted, waits = self.delivery.halted, self.delivery.waiting_for_target
        if halted:
            self.health.stopped("delivery", halted)
        elif waits > ROUND_ALARM:  # a round waits for its slowest partition
            reason = f"the target has not acknowledged a round of records for {waits.total_seconds():.0f} s: is a "
            self.health.stopped("delivery", reason + "partition without a leader, or below min.insync.replicas?")
        else:
            self.health.resumed("delivery")
        self.health.stopped("group", self.placement.problem)
        if problem := self.event_log.problem:
            self.health.problem(EVENTS, f"new segments are found by listings only: {problem}")
        else:
            self.health.solved(EVENTS)
        affected = self.assignment if halted or self._halted else ()
        for assigned in affected:  # the note of each partition that waits shows it in `status`
            sequencer = assigned.sequencer
            if halted and assigned.stop_reason is None and sequencer is not None and sequencer.delivering:
                self.assignment.stop(assigned, halted, blames_target=True)
            elif self._halted and assigned.stopped == self._halted and halted != self._halted:
                self.assignment.resume(assigned)
        self._halted = halted
