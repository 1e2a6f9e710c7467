"""An admin client whose calls fail with the reason when no broker can be reached.

The client delivers its log lines and errors only when it is polled, and a call that waits for its answer does not poll:
without this module, the reason of a failure would be lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from formats.errors import BrokerUnavailable, ConfigError
from infra.kafka.client.admin_answers import ANSWERS_WITHIN, CONNECTED, refresh_metadata
from infra.kafka.client.broker_certificate import why_not_trusted
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import UNREACHABLE, error_of
from infra.kafka.client.log import client_log
from infra.kafka.client.own_certificate import own_certificate
from infra.kafka.cluster.unreachable import NOT_ACQUIRED, Unreachable, parse_failure
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import NEXT, REASON
from infra.settings.kafka import AUTH, MSK_IAM

T = TypeVar("T")
POLL_SECONDS = 0.1
GRACE = timedelta(seconds=2)  # for a call, beyond the client's own timeout
FIRST_CONTACT = timedelta(seconds=5)
REPLACED_AFTER = timedelta(seconds=10)  # the youngest client that is replaced
BROKER_ERRORS = frozenset({KafkaError._RESOLVE, KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._AUTHENTICATION})

log = logging.getLogger(__name__)


class ClusterUnreachable(BrokerUnavailable):
    """No broker is connected; the message says why. An immediate retry would fail in the same way."""


class ClientReports:
    """What a client says of its brokers, in callbacks within `poll`: neither may raise. Nothing here refers to the
    client, which refers to this: so its threads and connections end with the last reference to it."""

    def __init__(self, servers: str, unreachable: Unreachable) -> None:
        self._servers, self._unreachable = servers, unreachable

    def log(self, level: int, line: str, *arguments: object) -> None:
        """Called for each log line. While a broker is down there are some twenty lines a second: they become the reason
        in the error instead of log lines."""
        text = line % arguments
        is_failure = text.startswith("FAIL ") and self._failed(text)
        client_log.log(logging.DEBUG if is_failure else level, "%s", text)

    def on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._unreachable.all_down()
        elif error.code() in BROKER_ERRORS:
            text = error.str()  # the same text as the log line, which `log_level` may suppress
            self._failed(f"{self._servers}: {text}" if text.startswith(NOT_ACQUIRED) else text)

    def _failed(self, text: str) -> bool:
        failure = parse_failure(text)
        if failure is not None:
            self._unreachable.failed(failure, time.monotonic())
        return failure is not None


class AdminConnection:
    """`client` sends requests; `wait` returns the answer. Safe to call from several threads. A client that gets no
    answer is replaced: see `infra.kafka.client.admin_answers`. The client ends with the last reference to this."""

    def __init__(
        self, properties: Mapping[str, Any], *, timeout: timedelta, first_contact: timedelta = FIRST_CONTACT
    ) -> None:
        """`timeout`: for each call. `first_contact`: for calls before the first answer, when every broker is down.
        Raises ConfigError for properties that the client rejects."""
        self.timeout, self._first_contact = timeout, first_contact
        servers = str(properties.get("bootstrap.servers", "?"))
        self._unreachable = Unreachable(
            servers, partial(why_not_trusted, properties=properties), partial(own_certificate, properties)
        )
        self._reports = ClientReports(servers, self._unreachable)
        self._was_reached = False
        self.has_acls = properties.get(AUTH) != MSK_IAM  # whether ACLs of Kafka can decide who may do what
        self._config: dict[str, Any] = {**CONNECTED, **properties, "error_cb": self._reports.on_error}
        self._replacing = threading.Lock()
        try:
            self._connect()
        except KafkaException as error:
            raise ConfigError([str(error.args[0].str())], source="properties of [kafka]") from error

    def _connect(self) -> None:
        self.client = connect(AdminClient, self._config, logger=self._reports)
        self._is_new = Deadline(REPLACED_AFTER)

    def _unanswered(self) -> None:
        """The next request uses another client, unless this one is too new to tell."""
        with self._replacing:
            if self._is_new.expired:
                self._connect()

    def wait(self, answer: Future[T], operation: str) -> T:
        """Result of a pending request. Raises ClusterUnreachable, BrokerUnavailable when there is no answer in time,
        and KafkaException when the answer is an error."""
        asked_at, warned, refresh = time.monotonic(), False, Deadline(ANSWERS_WITHIN)
        patience = self.timeout if self._was_reached else min(self._first_contact, self.timeout)
        while True:
            self.client.poll(0)
            try:
                result = answer.result(POLL_SECONDS)
            except FutureTimeout:
                pass
            except KafkaException as error:
                if error_of(error).code() not in UNREACHABLE:
                    self._answered()
                    raise
                self.client.poll(0)
                self._unanswered()
                kind = ClusterUnreachable if self._unreachable.is_down else BrokerUnavailable
                raise kind(f"{operation}: {self._unreachable.text()}") from error
            else:
                self._answered()
                return result
            if refresh.expired and not self._unreachable.is_down:
                refresh_metadata(self.client)
                refresh = Deadline(ANSWERS_WITHIN)
            now = time.monotonic()
            if why := self._unreachable.verdict(asked_at, now, patience):
                self._unanswered()
                raise ClusterUnreachable(f"{operation}: no broker can be reached: {why}")
            if now - asked_at >= (self.timeout + GRACE).total_seconds():
                self._unanswered()
                raise BrokerUnavailable(
                    f"{operation}: no answer within {self.timeout.total_seconds():g} s: {self._unreachable.text()}"
                )
            if not warned and now - asked_at >= FIRST_CONTACT.total_seconds():
                warned = True
                text = f"{operation}: {self._unreachable.text()}"
                log.warning(
                    "cluster_does_not_answer",
                    extra={REASON: text, NEXT: f"waiting for it, {self.timeout.total_seconds():g} s in all"},
                )

    def wait_for(self, call: Callable[[], T], operation: str) -> T:
        """The same for a blocking `call` of the client: it runs on a daemon thread of its own, which is abandoned when
        the wait ends first."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="kafka-admin", daemon=True).start()
        return self.wait(answer, operation)

    def _answered(self) -> None:
        self._was_reached = True
        self._unreachable.answered()
