"""Waits for the results of admin requests, also when the broker that a request is addressed to has died.

The client sends most requests (describe or create a topic) to the broker that its last metadata named as the
controller. When that broker dies, librdkafka 2.16 waits for it until the request times out, and does the same for each
later request: nothing makes it refresh its metadata. Meanwhile it wakes the dead broker's thread without a pause, which
keeps two threads busy (both seen on a cluster of three brokers of which one was killed). Therefore:

  - a late answer triggers a metadata request to any broker; the pending request then follows the new metadata;
  - an admin client stays connected to all brokers, so that no thread has to be woken.

An admin client may lose every broker it knew, as a consumer may (see `lost_brokers`): one that got no answer is
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from infra.runtime.lifecycle import Deadline

T = TypeVar("T")
CONNECTED: Mapping[str, str] = {"enable.sparse.connections": "false"}
"""Properties of a client whose first request must not wait for a connection, as every admin client."""
ANSWERS_WITHIN = timedelta(seconds=1)
"""Longer than an answer takes, shorter than any caller's timeout."""


def answer_of(future: Future[T], client: AdminClient, within: timedelta) -> T:
    """Result of `future`. Raises KafkaException when the answer is an error, and `concurrent.futures.TimeoutError`."""
    deadline = Deadline(within)
    while True:
        try:
            return future.result(min(ANSWERS_WITHIN, deadline.left).total_seconds())
        except FutureTimeout:
            if deadline.expired:
                raise
        refresh_metadata(client)


def refresh_metadata(client: AdminClient | Consumer, topic: str | None = None) -> None:
    """Of one topic, or of the whole cluster. Takes ANSWERS_WITHIN at most. Raises nothing when no broker answers."""
    with suppress(KafkaException):
        client.list_topics(topic, timeout=ANSWERS_WITHIN.total_seconds())
