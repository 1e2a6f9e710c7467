"""Fetched messages of a group member, as the client's objects or as librdkafka's own: the rest of the consumer does not
know which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Protocol

from confluent_kafka import Message

from infra.contracts.cluster import TopicPartition
from infra.kafka.client import librdkafka
from infra.kafka.consumer import decode, decode_native
from infra.kafka.consumer.decode import Item
from infra.kafka.consumer.group_member import Membership
from infra.kafka.consumer.message_queue import MessageQueue, Messages
from infra.runtime.lifecycle import Deadline

LONGEST_WAIT = timedelta(milliseconds=500)  # without calling the client, which has to be polled


@dataclass(frozen=True, slots=True)
class Fetch:
    """Of one call; the items are valid inside its `with` block."""

    count: int  # of messages
    items: Iterator[tuple[TopicPartition, Item]]


class Fetching(Protocol):
    """Serves the member's callbacks, too. Failures are reported by the member's `disturbances`, and the items that were
    fetched are left out then. Use from one thread only."""

    def fetch(
        self, count: int, timeout: timedelta = timedelta(), linger: timedelta = timedelta()
    ) -> AbstractContextManager[Fetch]:
        """At most `count` messages that are already fetched; if there is none, the first that arrives within `timeout`.
        Then those that arrive within `linger`, if there is room."""

    def seeking(self, partition: TopicPartition) -> AbstractContextManager[None]:
        """For the block in which the client seeks the partition."""


def fetching(member: Membership) -> Fetching:
    """The faster way, if this process is fit for it."""
    return NativeFetching(member) if librdkafka.is_fit() else PlainFetching(member)


class PlainFetching:
    """As the client's message objects."""

    def __init__(self, member: Membership) -> None:
        self._member = member

    @contextmanager
    def fetch(self, count: int, timeout: timedelta = timedelta(), linger: timedelta = timedelta()) -> Iterator[Fetch]:
        messages = self._consume(count, timeout, linger)
        with self._member.failing():
            yield Fetch(len(messages), decode.items(messages))

    def seeking(self, partition: TopicPartition) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()  # the client delivers wherever it seeks

    def _consume(self, count: int, timeout: timedelta, linger: timedelta) -> Sequence[Message]:
        """The client's `consume` would wait the whole timeout for a full batch. Nothing once records were lost: those
        behind them would hide it until the disturbance is reported."""
        if self._member.disturbed:
            return []
        messages = self._member.consume(count, timedelta())
        if not messages and timeout > timedelta() and not self._member.disturbed:
            messages = self._member.consume(1, timeout)
        if messages and linger and len(messages) < count and not self._member.disturbed:
            messages += self._member.consume(count - len(messages), linger)
        return messages


class NativeFetching:
    """As librdkafka's own messages, from a queue of ours: see `message_queue`."""

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._member.before_close = self._close
        self._opened: MessageQueue | None = None

    @contextmanager
    def fetch(self, count: int, timeout: timedelta = timedelta(), linger: timedelta = timedelta()) -> Iterator[Fetch]:
        deadline = Deadline(timeout)
        events, taken = self._take(count, linger)
        while not events and taken is None and not self._member.disturbed and not deadline.expired:
            with self._member.guarded():
                self._queue.wait(min(deadline.left, LONGEST_WAIT))
            events, taken = self._take(count, linger)
        if taken is None:
            yield Fetch(len(events), decode.items(events))
            return
        with taken, self._member.failing():
            yield Fetch(len(events) + taken.count, chain(decode.items(events), decode_native.items(taken)))

    @contextmanager
    def seeking(self, partition: TopicPartition) -> Iterator[None]:
        self._queue.forward(partition.topic, partition.partition)
        yield
        self._queue.forward(partition.topic, partition.partition)

    def _take(self, count: int, linger: timedelta) -> tuple[Sequence[Message], Messages | None]:
        """Errors of topics and of the client, and what is in our queue, unless that is empty. The client's queue has a
        record only if it was on its way when its partition was forwarded, and the seek has made it obsolete since."""
        events = self._member.consume(count, timedelta())
        taken = None
        if not self._member.disturbed:
            with self._member.guarded():
                taken = self._queue.take(count, linger=linger)
        if taken is None or not taken.count:
            return events, None
        self._member.received()
        return events, taken

    @property
    def _queue(self) -> MessageQueue:
        if self._opened is None:  # not yet, or of another client
            self._opened = MessageQueue(self._member.client, self._member.count_error)
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
