"""An admin client whose calls end with the reason when no broker can be reached.

The client serves its log lines and errors only when it is polled, and a call that waits for its answer does not poll:
so the reason of a failure would be known to nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from formats.errors import BrokerUnavailable, ConfigError
from infra.kafka.client.admin_answers import ANSWERS_WITHIN, CONNECTED, refresh_metadata
from infra.kafka.client.errors import UNREACHED, error_of
from infra.kafka.client.log import client_log
from infra.kafka.cluster.unreachable import Unreachable, parse_failure
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import NEXT, REASON

T = TypeVar("T")
SLICE_SECONDS = 0.1
GRACE = timedelta(seconds=2)  # what a call gets beyond the client's own timeout
FIRST_CONTACT = timedelta(seconds=5)
OF_A_BROKER = frozenset({KafkaError._RESOLVE, KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._AUTHENTICATION})

log = logging.getLogger(__name__)


class ClusterUnreachable(BrokerUnavailable):
    """No broker is connected, and the message says why. Asking again at once gives the same answer."""


class AdminConnection:
    """`client` asks; `wait` gets the answer. Safe to call from several threads."""

    def __init__(
        self, properties: Mapping[str, Any], *, timeout: timedelta, first_contact: timedelta = FIRST_CONTACT
    ) -> None:
        """`timeout`: of each call. `first_contact`: of calls before the first answer, when every broker is down. Raises
        ConfigError for properties that the client refuses."""
        self._timeout, self._first_contact = timeout, first_contact
        self._unreachable = Unreachable(str(properties.get("bootstrap.servers", "?")))
        self._was_reached = False
        try:
            # the client calls `log` of what it is given; neither callback may raise
            config: dict[str, Any] = {**CONNECTED, **properties, "error_cb": self._on_error}
            self.client = AdminClient(config, logger=self)
        except KafkaException as error:
            raise ConfigError([str(error.args[0].str())], source="properties of [kafka]") from error

    def wait(self, answer: Future[T], doing: str) -> T:
        """Raises ClusterUnreachable, BrokerUnavailable when there is no answer in time, and KafkaException when the
        answer is an error."""
        asked_at, warned, refresh = time.monotonic(), False, Deadline(ANSWERS_WITHIN)
        patience = self._timeout if self._was_reached else min(self._first_contact, self._timeout)
        while True:
            self.client.poll(0)
            try:
                result = answer.result(SLICE_SECONDS)
            except FutureTimeout:
                pass
            except KafkaException as error:
                if error_of(error).code() not in UNREACHED:
                    self._answered()
                    raise
                self.client.poll(0)
                kind = ClusterUnreachable if self._unreachable.is_down else BrokerUnavailable
                raise kind(f"{doing}: {self._unreachable.text()}") from error
            else:
                self._answered()
                return result
            if refresh.expired and not self._unreachable.is_down:
                refresh_metadata(self.client)
                refresh = Deadline(ANSWERS_WITHIN)
            now = time.monotonic()
            if why := self._unreachable.verdict(asked_at, now, patience):
                raise ClusterUnreachable(f"{doing}: no broker can be reached: {why}")
            if now - asked_at >= (self._timeout + GRACE).total_seconds():
                raise BrokerUnavailable(
                    f"{doing}: no answer within {self._timeout.total_seconds():g} s: {self._unreachable.text()}"
                )
            if not warned and now - asked_at >= FIRST_CONTACT.total_seconds():
                warned = True
                text = f"{doing}: {self._unreachable.text()}"
                log.warning(
                    "cluster_does_not_answer",
                    extra={REASON: text, NEXT: f"waiting for it, {self._timeout.total_seconds():g} s in all"},
                )

    def wait_for(self, call: Callable[[], T], doing: str) -> T:
        """The same for a `call` of the client that blocks: it runs on a thread of its own, which is left behind."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="kafka-admin", daemon=True).start()
        return self.wait(answer, doing)

    def _answered(self) -> None:
        self._was_reached = True
        self._unreachable.answered()

    # --- what the client calls, in `poll` ---

    def log(self, level: int, line: str, *arguments: object) -> None:
        """A broker that is away makes some twenty lines a second: they become the reason of the error instead."""
        text = line % arguments
        is_failure = text.startswith("FAIL ") and self._failed(text)
        client_log.log(logging.DEBUG if is_failure else level, "%s", text)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._unreachable.all_down()
        elif error.code() in OF_A_BROKER:
            self._failed(error.str())  # the same text as the line, which `log_level` may have silenced

    def _failed(self, text: str) -> bool:
        failure = parse_failure(text)
        if failure is not None:
            self._unreachable.failed(failure, time.monotonic())
        return failure is not None
