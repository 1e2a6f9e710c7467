"""One member of a consumer group: join, assignment, revocation, leave.

Rules
  1. No exception crosses the client library. Callbacks run inside `consume`, and one that raises there loses the
     records of that call for good and may make `close` hang (both seen). Therefore their exceptions are kept and
     reported by `disturbances` afterwards.
  2. An assigned partition is paused at an explicit offset. Never at END: the answer to the client's request for the end
     offset may arrive after a seek and override it (seen), which would look like a hole.
  3. A revoked partition is unassigned after the listener has returned, so that it can still be committed.
  4. When a callback fails, the client assigns or unassigns by itself, without another callback. The result is a
     partition that no member works on, or one that we write to but do not own (seen). Therefore both sides are compared
     after any exception, and this member ends when they differ.
  5. After a loss the subscription does not change until the group has assigned partitions again: the client aborts the
     process when it changes during the rejoin (seen).
  6. A client that has lost every broker is replaced by another one, which joins as a new member: see `lost_brokers`.
     What the former one still reports is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import BrokerUnavailable, OwnershipLost
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, GroupListener
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import UNAUTHORISED, describe_error, translate
from infra.kafka.client.lost_brokers import LostBrokers
from infra.kafka.client.properties import lookup_properties
from infra.kafka.consumer.group_metadata import group_metadata, names_member
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import ERROR, NEXT, REASON
from infra.runtime.metrics import Metrics

PLACEHOLDER = 0  # offset of a paused partition until it gets its own; nothing read from there is used
POLL_TIMEOUT = timedelta(milliseconds=100)
TURN = timedelta(milliseconds=10)
LEFT_WITHIN = timedelta(seconds=2)  # else the session ends by itself
PROBLEM_LASTS = timedelta(seconds=10)  # longer than the client's interval between attempts to join

log = logging.getLogger(__name__)


class _Interrupted(Exception):
    pass


class Membership:
    """Owns the client. Use from one thread only."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        group_id: str,
        metrics: Metrics,
        on_commit: Callable[[KafkaError | None, list[ClientPartition]], None] | None = None,
    ) -> None:
        self._metrics = metrics
        self._listener: GroupListener | None = None
        self._assigned: set[TopicPartition] = set()
        self._exceptions: list[BaseException] = []
        self._fatal: KafkaError | None = None
        self._group_id = group_id
        self._problem, self._problem_lasts = "", Deadline(timedelta())
        self._diverged = ""  # why the client's assignment differs from ours
        self._closed = False
        self._joining_again = False
        self._topics: frozenset[str] = frozenset()
        self._subscribe_later = False
        self._properties, self._on_commit = dict(properties), on_commit
        self._lost_brokers = LostBrokers(
            lambda: connect(Consumer, lookup_properties(self._properties)), self._properties
        )
        self._clients = 0  # created so far
        self.before_close: Callable[[], None] = lambda: None  # called when a client is about to be closed
        self._connect()

    def _connect(self) -> None:
        """From here on, callbacks of a former client are dropped; not when it fails."""
        number = self._clients + 1
        config: dict[str, object] = {**self._properties, "error_cb": self._guarded(self.count_error, number)}
        if self._on_commit is not None:
            config["on_commit"] = self._guarded(self._on_commit, number)
        self.client, self._clients = connect(Consumer, config), number

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned to this member, until they are revoked or lost."""
        return frozenset(self._assigned)

    @property
    def problem(self) -> str:
        """Why the cluster rejects this member, and what to do; empty when it does not."""
        return "" if self._problem_lasts.expired else self._problem

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        self._listener, self._topics = listener, frozenset(topics)
        self._subscribe_later = self._joining_again
        if not self._joining_again:
            self._subscribe()

    def _subscribe(self) -> None:
        self._subscribe_later = False
        if not self._topics:  # which the client refuses
            self.client.unsubscribe()
            return
        self.client.subscribe(
            sorted(self._topics),
            on_assign=self._guarded(self._on_assign),
            on_revoke=self._guarded(self._on_revoke),
            on_lost=self._guarded(self._on_lost),
        )

    def consume(self, count: int, timeout: timedelta) -> list[Message]:
        """Like the client's method: waits the whole `timeout` if there are fewer than `count` messages. After a failure
        the result is empty, and `disturbances` reports it. Raises OwnershipLost when this member can never continue."""
        if self._fatal is not None:
            self._end(describe_error(self._fatal))
        if self._subscribe_later and not self._joining_again:
            self._subscribe()
        messages: list[Message] = []
        with self.guarded():
            messages = self.client.consume(count, max(timeout.total_seconds(), 0))
        if self._exceptions and self._fatal is None:
            self._compare(self._exceptions[-1])
        if messages and messages[0].error() is None:
            self.received()
        elif self._topics and not self._closed and self._lost_brokers.suspected(self.client, min(self._topics)):
            self._replace_client()
        return messages

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """For a call that may lose records when it fails: `disturbances` reports the failure, and the block ends."""
        try:
            yield
        except Exception as error:
            self._exceptions.append(error)
        except BaseException as error:  # Ctrl-C inside the call: a caller that continues must learn of it
            self._exceptions.append(_Interrupted(_reason(error)))
            raise

    @contextmanager
    def failing(self) -> Iterator[None]:
        """For a block that loses fetched records when it fails: its exception is raised, and a caller that continues
        learns of it by `disturbances`."""
        try:
            yield
        except BaseException as error:
            self._exceptions.append(_Interrupted(_reason(error)))
            raise

    def received(self) -> None:
        """Records have come, be it past `consume`."""
        self._lost_brokers.received()

    def _replace_client(self) -> None:
        """The partitions are lost: the group gives them to others, or to the new member, once the session ends."""
        reason = "the client has lost every broker, while another client reaches the cluster"
        self._metrics.count("broker_errors")
        former = self.client
        try:
            self._connect()
        except BrokerUnavailable as error:  # suspected again later
            log.warning("consumer_not_replaced", extra={REASON: f"{reason}; {error}", NEXT: "tried again"})
            return
        log.warning("consumer_replaced", extra={REASON: reason, NEXT: "nothing: the new one joins the group"})
        self.before_close()
        threading.Thread(target=self._close_client, args=(former,), name="kafka-consumer-close", daemon=True).start()
        lost, self._assigned = self.assignment, set()
        if self._listener is not None and lost:
            self._guarded(self._listener.lost)(lost)
        self._joining_again = False
        self._subscribe()

    def _compare(self, error: BaseException) -> None:
        of_client = _ours(self.client.assignment())
        if of_client != self._assigned:
            self._diverged = (
                f"{_reason(error)}: its client is assigned {_names(of_client)}, the member {_names(self._assigned)}"
            )
            self._end(self._diverged)

    def _end(self, reason: str) -> NoReturn:
        self._guarded(self._on_lost)(self.client, [])
        raise OwnershipLost(f"group member: {reason}. This client is unusable; restart the process")

    @property
    def disturbed(self) -> bool:
        return bool(self._exceptions)

    def disturbances(self) -> list[ConsumerDisturbed]:
        """Failures since the last call. An interrupt that occurred inside a callback is raised here, and counts as a
        disturbance in the next call."""
        exceptions, self._exceptions = self._exceptions, []
        for error in exceptions:
            if not isinstance(error, Exception):
                self._exceptions.append(_Interrupted(_reason(error)))
                raise error
        return [ConsumerDisturbed(_reason(error)) for error in exceptions]

    def close(self, timeout: timedelta) -> None:
        """Leave the group and release the client, in bounded time. The listener is called on this thread."""
        if self._closed:
            return
        self._closed, self._subscribe_later = True, False
        self._lost_brokers.close()
        deadline = Deadline(timeout)
        try:
            self.client.unsubscribe()
            # `consume` serves revocations. Its result is not used: no records are read after this.
            while self._assigned and not deadline.expired and self._fatal is None:
                self.consume(1000, min(POLL_TIMEOUT, deadline.left))
            self._wait_until_left(Deadline(min(LEFT_WITHIN, deadline.left / 2)))
        except Exception as error:
            log.warning("group_leave_failed", extra={ERROR: repr(error)})
        self.before_close()
        # The client's own `close` may block forever after an exception in a callback: not on this thread.
        closer = threading.Thread(
            target=self._close_client, args=(self.client,), name="kafka-consumer-close", daemon=True
        )
        closer.start()
        closer.join(max(deadline.left, POLL_TIMEOUT).total_seconds())
        if closer.is_alive():
            log.warning("consumer_close_unfinished", extra={NEXT: "the broker drops this member by session timeout"})
        for disturbed in self.disturbances():
            log.warning("listener_failed_while_closing", extra={ERROR: disturbed.reason})

    def _wait_until_left(self, deadline: Deadline) -> None:
        """A client that is closed while its own thread still gives up thousands of partitions may end without leaving
        the group, which then keeps them from others until the session ends (seen with 2,000)."""
        if "group.instance.id" in self._properties or self._fatal is not None:  # a static member does not leave
            return
        while not deadline.expired and names_member(self.client, group_metadata(self.client)):
            self.consume(1000, min(TURN, deadline.left))

    def _close_client(self, client: Consumer) -> None:
        try:
            client.close()
        except Exception as error:
            log.warning("consumer_close_failed", extra={ERROR: repr(error)})

    # --- callbacks: on the thread that calls `consume` ------------------------------------------------------------

    def _guarded(self, callback: Callable[..., None], of_client: int | None = None) -> Callable[..., None]:
        """`of_client`: number of the client that calls it; by default of the one in use."""
        of_client = self._clients if of_client is None else of_client

        def guarded(*args: object) -> None:
            if of_client != self._clients:
                return
            try:
                callback(*args)
            except BaseException as error:
                self._exceptions.append(error)

        return guarded

    def _on_assign(self, client: Consumer, partitions: Sequence[ClientPartition]) -> None:
        self._joining_again = False
        paused = [ClientPartition(p.topic, p.partition, PLACEHOLDER) for p in partitions]
        client.incremental_assign(paused)
        client.pause(paused)
        added = _ours(partitions)
        self._assigned |= added
        if self._listener is not None and added:
            self._listener.assigned(added)

    def _on_revoke(self, client: Consumer, partitions: list[ClientPartition]) -> None:
        revoked = _ours(partitions)
        try:
            if self._listener is not None and revoked:
                self._listener.revoked(revoked)  # first: once unassigned, they cannot be committed
        finally:
            self._assigned -= revoked
            client.incremental_unassign(partitions)

    def _on_lost(self, client: Consumer, partitions: list[ClientPartition]) -> None:
        """Once this member has ended, the group sends no more callbacks, and all its partitions are lost."""
        ended = self._fatal is not None or bool(self._diverged)
        lost = self.assignment if ended else _ours(partitions)
        self._joining_again = True
        self._assigned -= lost
        try:
            if self._listener is not None and lost:
                self._listener.lost(lost)
        finally:
            if not ended:
                client.incremental_unassign(partitions)

    def count_error(self, error: KafkaError) -> None:
        """Of the client as a whole, or of a topic. The client recovers from all but the fatal ones by itself."""
        self._metrics.count("broker_errors")
        if error.code() in UNAUTHORISED:
            self._problem = str(translate(error, f"member of group {self._group_id}", needs="READ"))
            self._problem_lasts = Deadline(PROBLEM_LASTS)
        if error.fatal() or error.code() == KafkaError._FATAL:  # an error from `consume` lacks the flag
            self._fatal = error
            log.error("broker_error", extra={ERROR: describe_error(error)})


def _ours(partitions: Sequence[ClientPartition]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(p.topic, p.partition) for p in partitions)


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "nothing"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
