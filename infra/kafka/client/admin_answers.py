"""Admin clients, and waiting for what they are asked, also when the broker that they want to ask is gone.

The client sends most requests (describe or create a topic) to the broker that its last metadata named as the
controller. When that broker dies, librdkafka 2.16 waits for it until the request times out, and so it does with each
later request: nothing makes it ask for newer metadata. Meanwhile it wakes the dead broker's thread without a pause,
which keeps two threads busy (both seen on a cluster of three brokers, of which one was killed). So:

  - any broker is asked for metadata when an answer does not come: the waiting request follows what that says;
  - an admin client keeps connections to all brokers: then there is nothing to wake.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.runtime.lifecycle import Deadline

T = TypeVar("T")
CONNECTED: Mapping[str, str] = {"enable.sparse.connections": "false"}
"""Properties of every admin client."""
ANSWERS_WITHIN = timedelta(seconds=1)
"""Longer than an answer takes, shorter than anybody's timeout."""


def answer_of(future: Future[T], client: AdminClient, within: timedelta) -> T:
    """Raises KafkaException when the answer is an error, and TimeoutError (of `concurrent.futures`)."""
    deadline = Deadline(within)
    while True:
        try:
            return future.result(min(ANSWERS_WITHIN, deadline.left).total_seconds())
        except FutureTimeout:
            if deadline.expired:
                raise
        refresh_metadata(client)


def refresh_metadata(client: AdminClient) -> None:
    """Takes ANSWERS_WITHIN at most; no error when no broker answers."""
    with suppress(KafkaException):
        client.list_topics(timeout=ANSWERS_WITHIN.total_seconds())
