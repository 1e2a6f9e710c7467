"""A topic of ours read as one log: which life it is in, where its partitions end, and what it says.

The reader belongs to no group: it assigns every partition itself and commits nothing. A position that the log does not
hold any more, another life of the topic and a new partition are told, never passed over in silence.
"""

from __future__ import annotations

import logging
import uuid
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
from infra.kafka.client.errors import told, translate
from infra.kafka.client.log import client_log
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import ERROR, NEXT, TOPIC

READER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # never jump silently
    "isolation.level": "read_committed",  # an aborted checkpoint never was one
    "enable.partition.eof": True,  # its offset passes what is no record: transaction markers, aborted records
    "allow.auto.create.topics": False,
}
AT_ONCE = 1000  # records

MOVING = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
"""What a broker says of a partition, of a topic that exists, that was just made or moved: ask again, the admin client
does not do it by itself."""

LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What the cluster says of the topic. Offsets are by partition."""

    topic_id: str
    starts: Mapping[int, int]  # first offset still held
    ends: Mapping[int, int]  # next offset to be written; records of open transactions lie before it


class PositionLost(Exception):
    """The log does not hold what was to be read next, or is not the log it was. Caught where it is known what to do."""


class TopicLog:
    """A reader of all partitions, or of one. One thread."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        answer_within: timedelta,
        check_every: timedelta,
        partition: int | None = None,
    ) -> None:
        """Connects in the background. The cluster gets `answer_within` for one question, and is asked every
        `check_every` whether the topic still is what it was. `partition`: the only one that is read."""
        self._topic, self._partition = topic, partition
        self._answer_within = answer_within
        self._check_every = check_every
        self._moving = Retrying(
            retry=retry_if_exception(_leader_moves),
            stop=stop_after_delay(answer_within),
            wait=wait_fixed(0.05),
            reraise=True,
        )
        given: dict[str, Any] = {**properties}
        reader = {**given, **READER, "group.id": f"replicator.reader.{uuid.uuid4().hex}"}
        self._admin = AdminClient({**CONNECTED, **given}, logger=client_log)
        self._consumer = Consumer(reader, logger=client_log)
        self._facts: LogFacts | None = None
        self._next_check = Deadline(check_every)
        self._checking: Future[TopicDescription] | None = None
        self._trouble = ""
        self.positions: dict[int, int] = {}  # by partition: next offset that `fetch` will tell of
        self.is_heard = False  # a record, or the end of a partition, came since `read_from` or the last refusal
        self._is_refused = False

    def facts(self) -> LogFacts:
        """Raises BrokerUnavailable, and TargetError when the topic does not exist, or is not for us to read."""
        try:
            description = answer_of(self._describe(), self._admin, self._answer_within + ANSWERS_WITHIN)
            return LogFacts(
                topic_id=str(description.topic_id),
                starts=self._moving(self._offsets, description, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
                ends=self._moving(self._offsets, description, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
            )
        except KafkaException as error:
            raise translate(error, f"ask for the ends of {self._topic}") from error
        except FutureTimeout as error:
            raise BrokerUnavailable(f"ask for the ends of {self._topic}: no answer") from error

    def read_from(self, facts: LogFacts, positions: Mapping[int, int]) -> None:
        """`fetch` goes on there; what was fetched before is forgotten."""
        self._facts, self._checking, self._next_check = facts, None, Deadline(self._check_every)
        self.positions = dict(positions)
        self._assign()

    def _assign(self) -> None:
        self.is_heard = self._is_refused = False
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self.positions.items()])

    def fetch(self, timeout: timedelta) -> Sequence[Message]:
        """Records, as soon as there are any, or none after `timeout`. Trouble of the connection is logged, and no
        record is missed by it. Raises PositionLost: call `read_from` before the next `fetch`; TargetError when the
        topic is not for us to read: the next `fetch` goes on where this one began."""
        self._check()
        if self._is_refused:
            self._assign()  # records that came with the refusal were dropped with it
        try:
            # the client would wait for all it is asked for, so it is asked for one first
            messages = self._consumer.consume(1, timeout.total_seconds())
            messages += self._consumer.consume(AT_ONCE, 0) if messages else []
        except (KafkaException, RuntimeError) as error:
            raise PositionLost(f"reading {self._topic} failed, records may be gone with it: {error}") from error
        if any(map(Message.error, messages)):
            for message in filter(Message.error, messages):
                self._told(message)
            messages = list(filterfalse(Message.error, messages))
        elif messages:
            self._trouble = ""
        # the last offset of each partition wins; an end of partition is told after its last record
        last = dict(zip(map(Message.partition, messages), map(Message.offset, messages), strict=True))
        for partition, offset in last.items():
            if partition is not None and offset is not None:
                self._passed(partition, offset + 1)
        return messages

    def close(self) -> None:
        self._consumer.close()

    def _passed(self, partition: int, next_offset: int) -> None:
        self.is_heard = True
        self.positions[partition] = max(self.positions.get(partition, 0), next_offset)

    def _told(self, message: Message) -> None:
        """What came in place of a record."""
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF and partition is not None and offset is not None:
            self._passed(partition, offset)
        elif error.code() in LOST:
            raise PositionLost(f"{self._topic}/{partition} does not hold offset {offset} any more: {told(error)}")
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._is_refused = True
            raise translate(error, f"read {self._topic}", needs="READ")
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # the client asks for the coordinator of a group that it never joins
        elif error.name() != self._trouble:  # once, until records come again
            self._trouble = error.name()
            log.warning("log_not_readable", extra={TOPIC: self._topic, ERROR: told(error), NEXT: "nothing, if it ends"})

    def _check(self) -> None:
        """Whether the topic is what it was: a question is asked now, and its answer looked at later. Waits only when
        the broker that is asked does not answer: see `admin_answers`."""
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
            log.info("log_not_described", extra={TOPIC: self._topic, ERROR: told(error)})
            return
        if str(description.topic_id) != self._facts.topic_id:
            raise PositionLost(f"{self._topic} was deleted and created again")
        if self._partitions(description) != sorted(self._facts.ends):
            raise PositionLost(
                f"{self._topic} has {len(description.partitions)} partitions, not {len(self._facts.ends)}"
            )

    def _describe(self) -> Future[TopicDescription]:
        seconds = self._answer_within.total_seconds()
        asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=seconds)
        return asked[self._topic]

    def _partitions(self, description: TopicDescription) -> list[int]:
        """Those that are read, in order."""
        return sorted(p.id for p in description.partitions if self._partition in (None, p.id))

    def _offsets(self, description: TopicDescription, spec: OffsetSpec) -> Mapping[int, int]:
        asked = self._admin.list_offsets(
            {TopicPartition(self._topic, p): spec for p in self._partitions(description)},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._answer_within.total_seconds(),
        )
        within = self._answer_within + ANSWERS_WITHIN
        return {where.partition: answer_of(each, self._admin, within).offset for where, each in asked.items()}


def _leader_moves(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in MOVING
