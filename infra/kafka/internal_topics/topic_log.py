"""Reads one of our topics as a log: its incarnation, the end offsets of its partitions, and its records.

The reader belongs to no group: it assigns every partition itself and commits nothing. A position that the log does not
hold any more, another incarnation of the topic and a new partition are reported, never ignored silently.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from datetime import timedelta
from itertools import filterfalse
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription  # type: ignore[attr-defined]
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from formats.errors import BrokerUnavailable
from infra.kafka.client.admin_answers import ANSWERS_WITHIN, CONNECTED, answer_of, refresh_metadata
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import UNREACHABLE, describe_error, error_of, translate
from infra.kafka.client.lost_brokers import LostBrokers
from infra.kafka.client.properties import reader_properties
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import ERROR, NEXT, TOPIC

MAX_RECORDS = 1000  # of one `fetch`

LEADER_CHANGES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        # one side has not heard of an election yet: a broker that was frozen answered so, and a start ended
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)
"""Errors for a partition, of an existing topic, that was just created or moved: retry, since the admin client does not
do so by itself."""

LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The topic's state in the cluster. Offsets are by partition."""

    topic_id: str
    starts: Mapping[int, int]  # first offset still in the log
    ends: Mapping[int, int]  # next offset to be written; records of open transactions lie before it


class PositionLost(Exception):
    """The log does not hold the next offset, or has been replaced. The callers of `TopicLog` catch and handle it."""


class TopicLog:
    """A reader of all partitions, or of one. Use from one thread only."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        answer_within: timedelta,
        check_every: timedelta,
        partition: int | None = None,
    ) -> None:
        """Connects in the background. `answer_within`: time limit of one request. `check_every`: interval between
        checks that the topic is still the same. `partition`: the only one to read; None: all."""
        self._topic, self._partition = topic, partition
        self._answer_within = answer_within
        self._check_every = check_every
        self._retrying = Retrying(
            retry=retry_if_exception(_leader_moves),
            stop=stop_after_delay(answer_within),
            wait=wait_fixed(0.05),
            reraise=True,
        )
        self._properties: dict[str, Any] = {**properties}
        self._connect()
        self._is_silent = False  # the last request got no answer
        self._facts: LogFacts | None = None
        self._next_check = Deadline(check_every)
        self._checking: Future[TopicDescription] | None = None
        self._problem = ""
        self.positions: dict[int, int] = {}  # by partition: next offset that `fetch` returns
        self.has_received = False  # a record or an EOF arrived since `read_from` or the last authorisation error
        self._is_refused = False

    def facts(self) -> LogFacts:
        """Current state of the topic. Raises BrokerUnavailable, and TargetError when the topic does not exist, or when
        reading it is not permitted."""
        if self._is_silent:
            self.reconnect()
        try:
            description = answer_of(self._describe(), self._admin, self._answer_within + ANSWERS_WITHIN)
            return LogFacts(
                topic_id=str(description.topic_id),
                starts=self._retrying(self._offsets, description, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
                ends=self._retrying(self._offsets, description, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
            )
        except KafkaException as error:
            self._is_silent = error_of(error).code() in UNREACHABLE
            raise translate(error, f"list the end offsets of {self._topic}") from error
        except FutureTimeout as error:
            self._is_silent = True
            raise BrokerUnavailable(f"list the end offsets of {self._topic}: no answer") from error

    def reconnect(self) -> None:
        """Replace the clients, and continue at the same positions. A client whose broker named no broker may never send
        a request again: see `infra.kafka.client.lost_brokers`. Raises BrokerUnavailable when none can be made now: the
        former ones stay."""
        watch, consumer = self._lost_brokers, self._consumer
        self._connect()
        _close(watch, consumer)
        self._checking, self._is_silent = None, False
        if self._facts is not None:
            self._assign()
        log.info("log_reconnected", extra={TOPIC: self._topic})

    def _connect(self) -> None:
        admin, consumer = connect(AdminClient, {**CONNECTED, **self._properties}), self._reader()
        self._admin, self._consumer = admin, consumer
        self._lost_brokers = LostBrokers(self._reader, self._properties)

    def _reader(self) -> Consumer:
        return connect(Consumer, reader_properties(self._properties))

    def read_from(self, facts: LogFacts, positions: Mapping[int, int]) -> None:
        """Continue `fetch` at `positions`; records fetched before are dropped."""
        self._facts, self._checking, self._next_check = facts, None, Deadline(self._check_every)
        self.positions = dict(positions)
        # a client that is connected already finds the leaders of a topic that is new to it within a second only, by a
        # timer of its own, unless it is asked
        refresh_metadata(self._consumer, self._topic)
        self._assign()

    def _assign(self) -> None:
        self.has_received = self._is_refused = False
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self.positions.items()])

    def fetch(self, timeout: timedelta) -> Sequence[Message]:
        """Records, as soon as there are any, or none after `timeout`. Connection problems are logged and lose no
        record. Raises PositionLost: call `read_from` before the next `fetch`; TargetError when reading the topic is not
        permitted: the next `fetch` continues where this one began."""
        self._check()
        if self._is_refused:
            self._assign()  # records that arrived with the authorisation error were dropped with it
        try:
            # the client would wait until all requested records are there, so request one first
            messages = self._consumer.consume(1, timeout.total_seconds())
            messages += self._consumer.consume(MAX_RECORDS, 0) if messages else []
        except (KafkaException, RuntimeError) as error:
            raise PositionLost(f"reading {self._topic} failed, and may have lost records: {error}") from error
        if errors := list(filter(Message.error, messages)):
            for message in errors:  # first: if one is raised, the records are dropped, and no position may move
                self._raise_if_lost(message)
            for message in errors:
                self._on_error(message)
            messages = list(filterfalse(Message.error, messages))
        elif messages:
            self._problem = ""
            self._lost_brokers.received()
        elif self._lost_brokers.suspected(self._consumer, self._topic):
            try:
                self.reconnect()
            except BrokerUnavailable as error:  # suspected again later
                log.warning("log_not_reconnected", extra={TOPIC: self._topic, ERROR: str(error), NEXT: "tried again"})
        # the last offset of each partition counts; a partition EOF follows its last record
        last = dict(zip(map(Message.partition, messages), map(Message.offset, messages), strict=True))
        for partition, offset in last.items():
            if partition is not None and offset is not None:
                self._passed(partition, offset + 1)
        return messages

    def close(self) -> None:
        _close(self._lost_brokers, self._consumer)

    def _passed(self, partition: int, next_offset: int) -> None:
        self.has_received = True
        self.positions[partition] = max(self.positions.get(partition, 0), next_offset)

    def _raise_if_lost(self, message: Message) -> None:
        """Raise the errors with which records were dropped, or the position was lost."""
        error = message.error()
        if error is None:
            return
        if error.code() in LOST:
            raise PositionLost(
                f"{self._topic}/{message.partition()} does not hold offset {message.offset()} any more: "
                f"{describe_error(error)}"
            )
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._is_refused = True
            raise translate(error, f"read {self._topic}", needs="READ")

    def _on_error(self, message: Message) -> None:
        """Handle any other message that is not a record."""
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF and partition is not None and offset is not None:
            self._passed(partition, offset)
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # the client looks up the coordinator of a group that it never joins
        elif error.name() != self._problem:  # log once, until records arrive again
            self._problem = error.name()
            log.warning(
                "log_not_readable",
                extra={TOPIC: self._topic, ERROR: describe_error(error), NEXT: "nothing, if it ends"},
            )

    def _check(self) -> None:
        """Check that the topic is still the same: a request is sent by one call, and its answer evaluated by a later
        one. Blocks only when the broker does not answer: see `admin_answers`."""
        if self._facts is None:
            return
        if self._checking is None:
            if self._next_check.expired:
                self._checking, self._next_check = self._describe(), Deadline(ANSWERS_WITHIN)
            return
        if not self._checking.done():
            if self._next_check.expired:
                refresh_metadata(self._admin)
                self._next_check = Deadline(ANSWERS_WITHIN)
            return
        answer, self._checking, self._next_check = self._checking, None, Deadline(self._check_every)
        try:
            description = answer.result()
        except KafkaException as error:
            log.info("log_not_described", extra={TOPIC: self._topic, ERROR: describe_error(error)})
            return
        if str(description.topic_id) != self._facts.topic_id:
            raise PositionLost(f"{self._topic} was deleted and created again")
        if self._partitions(description) != sorted(self._facts.ends):
            raise PositionLost(
                f"{self._topic} has {len(description.partitions)} partitions, not {len(self._facts.ends)}"
            )

    def _describe(self) -> Future[TopicDescription]:
        seconds = self._answer_within.total_seconds()
        futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=seconds)
        return futures[self._topic]

    def _partitions(self, description: TopicDescription) -> list[int]:
        """The partitions to read, in order."""
        return sorted(p.id for p in description.partitions if self._partition in (None, p.id))

    def _offsets(self, description: TopicDescription, spec: OffsetSpec) -> Mapping[int, int]:
        futures = self._admin.list_offsets(
            {TopicPartition(self._topic, p): spec for p in self._partitions(description)},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._answer_within.total_seconds(),
        )
        within = self._answer_within + ANSWERS_WITHIN
        return {partition.partition: answer_of(each, self._admin, within).offset for partition, each in futures.items()}


def _close(watch: LostBrokers, consumer: Consumer) -> None:
    watch.close()
    consumer.close()


def _leader_moves(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in LEADER_CHANGES
