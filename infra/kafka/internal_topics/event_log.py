"""The segment-events topic: written by the instance that learns of a segment, read in full by every instance."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from formats.errors import BrokerUnavailable, MalformedEvent, TargetError
from formats.messages.segment_events import SegmentEvent, decode, encode, encode_key
from formats.records.milliseconds import known_time_of_ms
from infra.contracts.internal_topics import LogReset
from infra.kafka.client.acknowledged_writer import AcknowledgedWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.internal_topics.topic_log import PositionLost, TopicLog
from infra.runtime.crash_points import Step, durable
from infra.runtime.failures import ALARM
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import COUNT, ERROR, NEXT, OFFSET, PARTITION, REASON, TOPIC
from infra.settings.units import format_age

MEMORY_BYTES = 8 << 20  # of unacknowledged events: some ten thousand
RETRY = timedelta(seconds=5)  # between attempts to look up the log's end offsets

log = logging.getLogger(__name__)


class KafkaEventLog:
    """An EventLog. `publish` on one thread, `start` and `poll` on another, `close` when both have ended."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        producer: Mapping[str, object] | None = None,
        publish_within: timedelta = timedelta(seconds=30),
        answer_within: timedelta = timedelta(seconds=10),
        check_every: timedelta = timedelta(seconds=30),
        alarm: timedelta = ALARM,
    ) -> None:
        """`properties`: those of the reader; `producer`: those of the writer, by default the same. A new or recreated
        topic is noticed within `check_every`. `alarm`: how long its end offsets may be unknown before that is a
        problem. Raises ConfigError."""
        self._topic = topic
        batched = producer_properties(producer or properties, memory_bytes=MEMORY_BYTES)
        self._writer = AcknowledgedWriter(batched, topic, publish_within)
        self._log = TopicLog(properties, topic, answer_within=answer_within, check_every=check_every)
        self._lost = ""  # why the position is lost, until the end offsets are known again
        self._refused = ""  # why we are not permitted to read the topic; the position stays
        self._retry: Deadline | None = None
        self._alarm = alarm
        self._unread: tuple[Deadline, str] | None = None  # while the position is lost: until the alarm, the last error

    def publish(self, events: Sequence[SegmentEvent]) -> None:
        """Write events. A key always maps to the same partition, so events of one segment keep their order."""
        with durable(Step.PUBLISH_EVENT):
            self._writer.write((encode_key(event), encode(event)) for event in events)

    def start(self) -> None:
        """Start reading at the end of the log. Raises BrokerUnavailable or TargetError; then `poll` keeps trying, and
        returns LogReset once it has the end offsets."""
        self._lost = self._lost or "not read yet"
        facts = self._log.facts()
        self._log.read_from(facts, facts.ends)
        self._lost, self._refused, self._retry, self._unread = "", "", None, None

    @property
    def problem(self) -> str:
        if self._refused or self._unread is None:
            return self._refused
        until, why = self._unread
        return f"{self._topic} has not been readable for {format_age(self._alarm)}: {why}" if until.expired else ""

    def poll(self, timeout: timedelta) -> Sequence[SegmentEvent | LogReset]:
        """Events read. The end offsets are looked up again before LogReset is returned, so that a listing made after it
        misses nothing."""
        if self._lost:
            return self._start_over()
        if self._retry is not None:
            if not self._retry.expired:
                return ()
            self._retry = None
        try:
            messages = self._log.fetch(timeout)
        except TargetError as error:
            # a missing permission does not move the position: no listing is needed, and reading continues there
            if not self._refused:
                log.warning("event_log_refused", extra={TOPIC: self._topic, ERROR: str(error)})
            self._refused, self._retry = str(error), Deadline(RETRY)
            return ()
        except PositionLost as error:
            self._lost = str(error)
            return self._start_over()
        if self._log.has_received:
            self._refused = ""
        return self._decoded(messages)

    def close(self) -> None:
        self._writer.close()
        self._log.close()

    def _start_over(self) -> Sequence[LogReset]:
        if self._retry is not None and not self._retry.expired:
            return ()
        reason = self._lost
        try:
            self.start()
        except (BrokerUnavailable, TargetError) as error:
            self._retry = Deadline(RETRY)
            since = Deadline(self._alarm) if self._unread is None else self._unread[0]
            self._unread = since, str(error)
            if isinstance(error, TargetError):
                self._refused = str(error)
            log.warning("event_log_unavailable", extra={TOPIC: self._topic, REASON: reason, ERROR: str(error)})
            return ()
        return (LogReset(reason),)

    def _decoded(self, messages: Sequence[Message]) -> Sequence[SegmentEvent]:
        events: list[SegmentEvent] = []
        malformed: list[tuple[Message, MalformedEvent]] = []
        for message in messages:
            try:
                events.append(decode(message.value() or b"", _published_at(message)))
            except MalformedEvent as error:
                malformed.append((message, error))
        if malformed:
            first, why = malformed[0]
            log.warning(
                "malformed_events",
                extra={
                    TOPIC: self._topic,
                    PARTITION: first.partition(),
                    OFFSET: first.offset(),
                    COUNT: len(malformed),
                    ERROR: str(why),
                    NEXT: "skipped; find out what else writes to this topic",
                },
            )
        return events


def _published_at(message: Message) -> datetime | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else known_time_of_ms(milliseconds)
