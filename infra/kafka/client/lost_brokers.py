"""Finds out that a consumer has lost every broker it knew, and will never ask one again.

A broker that has lost its session with the controller may name no broker in an answer about the cluster. librdkafka
2.16 forgets every broker then, and may never connect to one again (its issue 5301; seen after freezes of a cluster's
only broker). No call of a consumer fails: it waits for records that never come.

    a message received              ──> nothing is asked for CHECK_EVERY
    no answer within ANSWERS_WITHIN ──> is it the cluster? another client asks
    the other one gets an answer    ──> the consumer has as long as it needs to connect again (RECOVERS_WITHIN)
    still no answer                 ──> its brokers are lost: replace the consumer

An outage of the whole cluster ends at the second step, so nothing is replaced because of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException

from infra.kafka.client.errors import UNREACHABLE, error_of
from infra.runtime.lifecycle import Deadline, Stop

CHECK_EVERY = timedelta(seconds=10)
ANSWERS_WITHIN = timedelta(seconds=5)
RECOVERS_WITHIN = timedelta(seconds=15)  # more than the longest interval between attempts to connect
ONE_REQUEST = timedelta(seconds=1)  # so that `close` waits for no more than that


class LostBrokers:
    """Watches one consumer, and its successors. `received`, `suspected` and `close` on the consumer's thread; what asks
    is a thread of its own, of which there is one at a time."""

    def __init__(self, another: Callable[[], Consumer], *, check_every: timedelta = CHECK_EVERY) -> None:
        """`another`: creates a client of the same cluster that joins no group."""
        self._another = another
        self._check_every = check_every
        self._stop = Stop()
        self._check: threading.Thread | None = None
        self._is_lost = False
        self._next = Deadline(check_every)

    def received(self) -> None:
        """Nothing is asked for `check_every` from now on."""
        self._next = Deadline(self._check_every)

    def suspected(self, consumer: Consumer, topic: str) -> bool:
        """True once when the consumer's brokers are lost. Never blocks: a request about `topic`, which may be missing,
        is sent by one call, and its answer is evaluated by a later one."""
        if self._check is None:
            if self._next.expired:
                self._check = threading.Thread(
                    target=self._ask, args=(consumer, topic), name="kafka-lost-brokers", daemon=True
                )
                self._check.start()
            return False
        if self._check.is_alive():
            return False
        self._check = None
        self.received()
        is_lost, self._is_lost = self._is_lost, False
        return is_lost

    def close(self) -> None:
        """Returns when no request uses the consumer any more, which must not be closed before. It waits for the request
        under way: ONE_REQUEST, when no broker answers."""
        self._stop.set()
        if self._check is not None:
            self._check.join()

    def _ask(self, consumer: Consumer, topic: str) -> None:
        if self._answers(consumer, topic, ANSWERS_WITHIN):
            return
        with closing(self._another()) as other:
            if not self._answers(other, topic, ANSWERS_WITHIN):
                return
        self._is_lost = not self._answers(consumer, topic, RECOVERS_WITHIN) and not self._stop.is_set()

    def _answers(self, client: Consumer, topic: str, within: timedelta) -> bool:
        """A broker answers, be it with an error."""
        deadline = Deadline(within)
        while not deadline.expired and not self._stop.is_set():
            try:
                client.list_topics(topic, timeout=min(ONE_REQUEST, deadline.left).total_seconds())
            except KafkaException as error:
                if error_of(error).code() in UNREACHABLE:
                    continue
            return True
        return False
