"""Finds out that a consumer has lost every broker it knew, and will never ask one again.

A broker that has lost its session with the controller may name no broker in an answer about the cluster. librdkafka
2.16 forgets every broker then, and may never connect to one again (its issue 5301; seen after freezes of a cluster's
only broker). No call of a consumer fails: it waits for records that never come.

    nothing received for CHECK_EVERY ──> ask
    no answer                        ──> is it the cluster? another client asks, and this one again and again
    an answer, or a record           ──> all is well
    the other client got an answer, and this one none for RECOVERS_WITHIN since then ──> ask once more, patiently
    no answer                        ──> its brokers are lost

An outage of the whole cluster ends before the last steps, so nothing is replaced because of one. The last request is
patient since a broker answers the requests of a connection in their order: behind a fetch that waits for records, an
answer takes as long as that may wait (seen: with 5 s for that, none of the short requests of an idle consumer got one).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException

from formats.errors import ReplicatorError
from infra.kafka.client.errors import UNREACHABLE, error_of
from infra.runtime.lifecycle import Deadline, Stop
from infra.runtime.log_fields import ERROR, NEXT

CHECK_EVERY = timedelta(seconds=10)
ASK_AGAIN = timedelta(seconds=2)
RECOVERS_WITHIN = timedelta(seconds=15)  # more than the longest interval between attempts to connect
ONE_REQUEST = timedelta(milliseconds=500)
ONE_REQUEST_OF_OTHER = timedelta(seconds=5)
FETCH_WAIT, FETCH_WAIT_MS = "fetch.wait.max.ms", 500  # the client's default

log = logging.getLogger(__name__)


class LostBrokers:
    """Watches one consumer, and its successors. Use from the consumer's thread: the client makes other threads wait
    for the end of `consume`, which is called again at once, so that they may wait for minutes (seen)."""

    def __init__(
        self,
        another: Callable[[], Consumer],
        properties: Mapping[str, object],
        *,
        check_every: timedelta = CHECK_EVERY,
    ) -> None:
        """`another`: creates a client of the same cluster that joins no group. `properties`: of the consumer."""
        self._another = another
        self._last_request = ONE_REQUEST_OF_OTHER + timedelta(
            milliseconds=int(str(properties.get(FETCH_WAIT, FETCH_WAIT_MS)))
        )
        self._check_every = check_every
        self._other: _OtherClient | None = None  # while the consumer gets no answer
        self._next = Deadline(check_every)

    def received(self) -> None:
        """A broker has answered: nothing is asked for `check_every` from now on."""
        self._next = Deadline(self._check_every)
        self.close()

    def suspected(self, consumer: Consumer, topic: str) -> bool:
        """True once when the consumer's brokers are lost. Sends a request about `topic`, which may be missing, when one
        is due, and waits ONE_REQUEST for the answer, longer for the last one."""
        if not self._next.expired:
            return False
        if answers(consumer, topic, ONE_REQUEST):
            self.received()
            return False
        self._next = Deadline(ASK_AGAIN)
        if self._other is None:
            self._other = _OtherClient(self._another, topic)
        if self._other.patience is None or not self._other.patience.expired:
            return False
        is_lost = not answers(consumer, topic, self._last_request)
        self.received()
        return is_lost

    def close(self) -> None:
        if self._other is not None:
            self._other.stop.set()
            self._other = None


class _OtherClient:
    """Asks on a thread of its own until it has an answer, or until `stop`."""

    def __init__(self, create: Callable[[], Consumer], topic: str) -> None:
        self._create, self._topic = create, topic
        self.stop = Stop()
        self.patience: Deadline | None = None  # since its answer: how long the first client has to recover
        threading.Thread(target=self._ask, name="kafka-other-client", daemon=True).start()

    def _ask(self) -> None:
        client = self._made()
        if client is None:
            return
        with closing(client):
            while not self.stop.is_set():
                if answers(client, self._topic, ONE_REQUEST_OF_OTHER):
                    self.patience = Deadline(RECOVERS_WITHIN)
                    return

    def _made(self) -> Consumer | None:
        """None: stopped before one could be made."""
        while not self.stop.is_set():
            try:
                return self._create()
            except (KafkaException, ReplicatorError) as error:  # such as without a token: it may be made later
                log.info("other_client_not_made", extra={ERROR: str(error), NEXT: "tried again"})
                self.stop.wait(ASK_AGAIN)
        return None


def answers(client: Consumer, topic: str, within: timedelta) -> bool:
    """Whether a broker answers, be it with an error."""
    try:
        client.list_topics(topic, timeout=within.total_seconds())
    except KafkaException as error:
        return error_of(error).code() not in UNREACHABLE
    return True
