"""Callbacks of the Kafka client that raise when they are ordered to: what a victim has instead of the client's classes.

    before   the product's callback is never called; the exception crosses the client library
    inside   the client refuses what the callback asks of it, to assign or to unassign; the product's own guard meets it
    after    the product's callback has done its work; the exception crosses the client library

How often a callback is called is not known beforehand, so an order stands until it is carried out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import confluent_kafka

from infra.runtime.crash_points import AFTER, BEFORE

INSIDE = "inside"
WORD = "raise"


class Planned(Exception):
    """What an ordered callback raises."""


class Callback(StrEnum):
    ON_ASSIGN = "on-assign"
    ON_REVOKE = "on-revoke"
    ON_LOST = "on-lost"
    ON_COMMIT = "on-commit"  # only egress has one
    ERROR_CB = "error-cb"
    LOGGER = "logger"
    DELIVERY_REPORT = "delivery-report"

    @property
    def of_group(self) -> bool:
        """It takes a rebalance to be called."""
        return self in (Callback.ON_ASSIGN, Callback.ON_REVOKE, Callback.ON_LOST)

    @property
    def whens(self) -> Sequence[str]:
        return (BEFORE, INSIDE, AFTER) if self.of_group else (BEFORE, AFTER)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Raise:
    """An order: the `occurrence`th call from then on raises."""

    callback: Callback
    when: str
    occurrence: int = 1

    def __post_init__(self) -> None:
        if self.when not in self.callback.whens or self.occurrence < 1:
            raise ValueError(f"want one of {self.callback.whens}, and an occurrence from 1 on: {self!r}")

    def __str__(self) -> str:
        return f"{WORD} {self.callback.value} {self.when} {self.occurrence}"

    @property
    def name(self) -> str:
        """Without the occurrence."""
        return f"{self.when} {self.callback.value}"

    @staticmethod
    def parse(text: str) -> Raise:
        word, callback, when, occurrence = text.split()
        if word != WORD:
            raise ValueError(f"not an order to raise: {text!r}")
        return Raise(callback=Callback(callback), when=when, occurrence=int(occurrence))


Due = Callable[[Callback, str], bool]  # whether it is this call that has to raise
Function = Callable[..., Any]


def install(due: Due, *, every_report: bool) -> None:
    """Before the product imports the client. `every_report`: a producer reports successes, too; the product wants
    failures only, and most processes never have one."""
    hooks = Hooks(due)
    confluent_kafka.Consumer = consumer(hooks)  # type: ignore[misc]
    confluent_kafka.Producer = producer(hooks, every_report=every_report)  # type: ignore[misc]
    logging.getLogger("infra.kafka.client").filters.insert(0, hooks.log)


class Hooks:
    """Raises Planned where it is due."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._inside = threading.local()

    def around(self, callback: Callback, function: Function) -> Function:
        def called(*arguments: Any) -> Any:
            self._check(callback, BEFORE)
            with self._within(callback):
                found = function(*arguments)
            self._check(callback, AFTER)
            return found

        return called

    def report(self, function: Function, error: Any, message: Any) -> None:
        """Once per record: `around` without what only rebalances need."""
        self._check(Callback.DELIVERY_REPORT, BEFORE)
        function(error, message)
        self._check(Callback.DELIVERY_REPORT, AFTER)

    def log(self, _record: logging.LogRecord) -> bool:
        """The client's lines come through a filter, and what a filter raises goes to the client."""
        for when in Callback.LOGGER.whens:
            self._check(Callback.LOGGER, when)
        return True

    def asked(self) -> None:
        """The product asks the client for something; inside a callback or not."""
        callback = getattr(self._inside, "callback", None)
        if callback is not None:
            self._check(callback, INSIDE)

    @contextmanager
    def _within(self, callback: Callback) -> Iterator[None]:
        self._inside.callback = callback
        try:
            yield
        finally:
            self._inside.callback = None

    def _check(self, callback: Callback, when: str) -> None:
        if self._due(callback, when):
            raise Planned(f"planned {when} {callback.value}")


def consumer(hooks: Hooks) -> type[confluent_kafka.Consumer]:
    settings = {"error_cb": Callback.ERROR_CB, "on_commit": Callback.ON_COMMIT}
    listeners = {c.value.replace("-", "_"): c for c in Callback if c.of_group}

    class Consumer(confluent_kafka.Consumer):
        def __init__(self, config: dict[str, Any], **rest: Any) -> None:
            hooked = {name: hooks.around(c, config[name]) for name, c in settings.items() if name in config}
            super().__init__({**config, **hooked}, **rest)

        def subscribe(self, topics: list[str], *rest: Any, **given: Any) -> None:
            assert not rest, "listeners are given by name"
            hooked = {name: hooks.around(c, given[name]) for name, c in listeners.items() if name in given}
            super().subscribe(topics, **{**given, **hooked})

        def incremental_assign(self, partitions: Any) -> None:
            hooks.asked()
            super().incremental_assign(partitions)

        def incremental_unassign(self, partitions: Any) -> None:
            hooks.asked()
            super().incremental_unassign(partitions)

    return Consumer


def producer(hooks: Hooks, *, every_report: bool) -> type[confluent_kafka.Producer]:
    class Producer(confluent_kafka.Producer):
        def __init__(self, config: dict[str, Any], **rest: Any) -> None:
            talkative = {"delivery.report.only.error": False} if every_report else {}
            super().__init__({**config, **talkative}, **rest)

        def produce(  # noqa: PLR0917 -- as the client's
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            partition: int = -1,
            callback: Function | None = None,
            on_delivery: Function | None = None,
            *rest: Any,
        ) -> None:
            report = callback or on_delivery
            hooked = None if report is None else partial(hooks.report, report)
            super().produce(topic, value, key, partition, hooked, None, *rest)

    return Producer
