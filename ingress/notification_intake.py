"""Moves notifications from the queue to the event log: each one is published before it is deleted.

The event log is the only source of events: this process, too, learns of a segment by reading the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import BrokerUnavailable, QueueUnavailable, StoreUnavailable, TargetError
from formats.messages.s3_notifications import ProbeEvent, parse
from formats.messages.segment_events import Created, QueueMessage, SegmentEvent
from formats.segment import SourcePartition
from infra.contracts.internal_topics import EventLog
from infra.contracts.storage import NotificationQueue
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Stop
from infra.runtime.metrics import Metrics
from infra.runtime.retry import PROBLEM_WITHIN, UNAVAILABLE
from infra.runtime.stages import observe_stage
from infra.settings.current import InForce
from ingress.settings import IngressSettings

log = logging.getLogger(__name__)

BEGIN_AGAIN = timedelta(milliseconds=50)
REPORTED_AFTER = 3
PROBE_AGE = timedelta(minutes=15)  # a doctor that sent an older one is gone
SUBJECT = "notifications"  # in health
ACCEPTED = "the topic of segment events accepts what the queue sends"
REMEMBERED = 10_000  # malformed messages that were logged


@dataclass(frozen=True, slots=True)
class _Received:
    """Of one receive."""

    understood: Sequence[QueueMessage]
    events: Sequence[SegmentEvent]
    probes: Sequence[ProbeEvent]
    at: datetime


@dataclass(slots=True)
class Intake:
    """Runs on its own thread."""

    queue: NotificationQueue
    event_log: EventLog
    prefix: str
    settings: InForce[IngressSettings]
    wanted: Callable[[SourcePartition], bool]  # other topics' events are counted as foreign
    wait: timedelta
    metrics: Metrics
    health: Health
    stop: Stop
    clock: Clock
    may_begin: Callable[[], bool] = lambda: True  # only a process that may deliver takes notifications from the queue
    answer: Callable[[str], None] = lambda _: None  # notes that the notification of a doctor's probe has arrived
    _malformed: dict[str, None] = field(default_factory=dict)
    _failures: int = 0
    _failing_since: datetime | None = None  # begin of the first of these attempts
    _unsettled: _Received | None = None  # of which the log did not accept the events

    def run(self) -> None:
        while not self.stop.is_set():
            if not self.may_begin():
                self.stop.wait(BEGIN_AGAIN)
                continue
            began = self.clock.now()
            try:
                self.receive_once()
                self._failures, self._failing_since = 0, None
                self.health.solved(SUBJECT)
            except (QueueUnavailable, BrokerUnavailable, TargetError) as error:
                pause = UNAVAILABLE.delay(self._failures)
                self._failures += 1
                self._failing_since = self._failing_since or began
                lasts = self.clock.now() - self._failing_since >= PROBLEM_WITHIN
                if lasts or self._failures >= REPORTED_AFTER or isinstance(error, TargetError):
                    until = "the queue answers" if isinstance(error, QueueUnavailable) else ACCEPTED
                    self.health.problem(SUBJECT, f"until {until}, only listings find new segments: {error}")
                log.warning(
                    "intake_waits",
                    extra={log_fields.ERROR: str(error), log_fields.WAIT_MS: int(pause.total_seconds() * 1000)},
                )
                self.stop.wait(pause)

    def receive_once(self) -> int:
        """One receive, or what is left of the one before. Returns how many messages were settled."""
        if self._unsettled is not None:
            # nothing more is received until the log accepts it: each receive counts towards the dead-letter queue
            return self._settle(self._unsettled)
        messages = self.queue.receive(self.wait)
        if not messages:
            return 0
        events: list[SegmentEvent] = []
        received_at = self.clock.now()
        probes: list[ProbeEvent] = []
        understood = [message for message in messages if self._read(message, events, probes, received_at)]
        return self._settle(_Received(understood, events, probes, received_at))

    def _settle(self, received: _Received) -> int:
        # publish, then delete: a crash in between publishes again, and events may repeat
        self._unsettled = received
        if received.events:
            self.event_log.publish(received.events)
        self._unsettled = None
        # answered before deleted: a crash in between answers again, which changes nothing
        self._answer([probe for probe in received.probes if received.at - probe.at <= PROBE_AGE])
        if received.understood:
            with durable(Step.DELETE_MESSAGE):
                self.queue.delete(received.understood)
        return len(received.understood)

    def _answer(self, probes: Sequence[ProbeEvent]) -> None:
        """Best effort: segments do not wait for a doctor. After a failure, which may have taken as long as a request
        may, the others of this receive get no answer."""
        try:
            for probe_id in dict.fromkeys(probe.probe_id for probe in probes):
                self.answer(probe_id)
        except StoreUnavailable as error:
            log.warning("probe_not_answered", extra={log_fields.ERROR: str(error)})

    def _read(
        self, message: QueueMessage, events: list[SegmentEvent], probes: list[ProbeEvent], received_at: datetime
    ) -> bool:
        """False when the message stays in the queue, and moves to the dead-letter queue in the end."""
        parsed = parse(message.body, prefix=self.prefix, regions=self.settings.value.regions)
        foreign = parsed.foreign
        probes += parsed.probes
        for event in parsed.events:
            if self.wanted(event.segment.source):
                events.append(event)
                self._measure(event, message.sent_at, received_at)
                self.metrics.count("segment_events", 1, type="created" if isinstance(event, Created) else "removed")
            else:
                foreign += 1
        if foreign:
            self.metrics.count("foreign_notifications", foreign)
        if not parsed.problems:
            return True
        if message.message_id not in self._malformed:
            self._remember(message.message_id)
            self.metrics.count("malformed_notifications", 1)
            log.warning(
                "malformed_notification",
                extra={
                    log_fields.MESSAGE_ID: message.message_id,
                    log_fields.REASON: "; ".join(_some(parsed.problems)),
                    log_fields.NEXT: "left to the queue's dead-letter queue",
                },
            )
        return False

    def _measure(self, event: SegmentEvent, sent_at: datetime | None, received_at: datetime) -> None:
        """A message that is received again counts again."""
        if isinstance(event, Created) and sent_at is not None:
            observe_stage(self.metrics, event.segment, "notify", event.info.stored_at, sent_at)
            observe_stage(self.metrics, event.segment, "queue", sent_at, received_at)

    def _remember(self, message_id: str) -> None:
        self._malformed[message_id] = None
        if len(self._malformed) > REMEMBERED:
            self._malformed.pop(next(iter(self._malformed)))


def _some(problems: Sequence[str]) -> Sequence[str]:
    return problems if len(problems) <= 3 else [*problems[:3], f"and {len(problems) - 3} more"]
