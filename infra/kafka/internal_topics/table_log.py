"""A compacted topic of ours, read to its end again and again: each read applies what was written since the last one.

    look up end offsets ─> read committed records until every position has reached its end

The ends are high watermarks, not last stable offsets: a committed record may lie after the start of another writer's
open transaction, and would be missed. Therefore a read waits for transactions that were open when it began (seen on a
broker).

Only one partition is read: all records of a table are in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from confluent_kafka import Message

from formats.errors import BrokerUnavailable, MalformedEvent
from infra.kafka.internal_topics.ensure import CHECKPOINT_PARTITION
from infra.kafka.internal_topics.topic_log import LogFacts, PositionLost, TopicLog
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import COUNT, ERROR, NEXT, OFFSET, PARTITION, TOPIC

POLL_TIMEOUT = timedelta(milliseconds=200)


class TableLog:
    """Use from one thread at a time."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        clear: Callable[[], None],
        apply: Callable[[Sequence[Message]], None],
        on_lost: Callable[[str], None],
        read_within: timedelta,
        answer_within: timedelta,
    ) -> None:
        """`clear`: the log is read from its start, since it was truncated or replaced, or for the first time. `apply`:
        the next records, in order. `on_lost`: why the log is read again. `read_within` must exceed the writers'
        transaction timeout: only that ends a dead writer's transaction."""
        self._topic = topic
        self._clear, self._apply, self._on_lost = clear, apply, on_lost
        self._read_within = read_within
        self._log = TopicLog(
            properties, topic, answer_within=answer_within, check_every=read_within, partition=CHECKPOINT_PARTITION
        )
        self._facts: LogFacts | None = None  # of the incarnation of the topic that was read

    def read(self) -> None:
        """Up to the records acknowledged before this call. Raises BrokerUnavailable, after which the next call
        continues where this one stopped; TargetError when the topic does not exist or may not be read."""
        deadline = Deadline(self._read_within)
        while True:
            try:
                # the ends come first: records acknowledged before this call lie before them
                self._read_up_to(self._aligned(self._log.facts()), deadline)
            except PositionLost as error:
                self._on_lost(str(error))
                self._facts = None  # a log that was truncated or replaced is read again from its start
                if deadline.expired:
                    raise BrokerUnavailable(f"read {self._topic}: {error}") from error
            else:
                return

    def close(self) -> None:
        self._log.close()

    def _aligned(self, facts: LogFacts) -> Mapping[int, int]:
        """The end offsets to reach. Starts over when another incarnation of the topic was read, or when the log has
        become shorter."""
        known = self._facts
        if (
            known is None
            or known.topic_id != facts.topic_id
            or known.starts != facts.starts  # records were deleted
            or any(facts.ends[p] < position for p, position in self._log.positions.items())
        ):
            self._clear()
            self._log.read_from(facts, facts.starts)
        self._facts = facts
        return facts.ends

    def _read_up_to(self, ends: Mapping[int, int], deadline: Deadline) -> None:
        while behind := {p: end for p, end in ends.items() if self._log.positions[p] < end}:
            if deadline.expired:
                partition, end = next(iter(behind.items()))
                self._log.reconnect()  # its consumer may have forgotten the brokers
                raise BrokerUnavailable(
                    f"{self._topic}/{partition}: read up to {self._log.positions[partition]} of {end} in "
                    f"{self._read_within}; the broker is down or slow, or a transaction is open"
                )
            messages = self._log.fetch(min(POLL_TIMEOUT, deadline.left))
            try:
                self._apply(messages)
            except BaseException:
                self._facts = None  # the position is after records that were not applied
                raise


def malformed_fields(topic: str, malformed: Sequence[tuple[Message, MalformedEvent]]) -> dict[str, object]:
    """Of a log line about records of one fetch: a topic that others write to may hold any number."""
    message, why = malformed[0]
    return {
        TOPIC: topic,
        PARTITION: message.partition(),
        OFFSET: message.offset(),
        COUNT: len(malformed),
        ERROR: str(why),
        NEXT: "skipped; find out what else writes to this topic",
    }
