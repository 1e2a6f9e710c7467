"""Checks, after the last record of a segment was read, that its topic is still the incarnation that was opened.

A consumer continues silently when a topic is deleted and created again: its records may be of either log. Topic ids are
never reused, so an answer that arrives after the last record was read, and has the id that reading began with, proves
that every record is of that incarnation. One request serves all waiting segments; they gather while one is in flight.

After an error the request is repeated. If the id differs, or the topic does not exist, the segment must not be stored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from formats.footer import SegmentOrigin
from infra.contracts.cluster import ClusterAdmin, describe_each
from infra.runtime import log_fields
from infra.runtime.retry import RETRY

log = logging.getLogger(__name__)

OnConfirmed = Callable[[bool], None]
Confirm = Callable[[str, SegmentOrigin, OnConfirmed], None]
"""Topic, origin that its segment was opened with, and callback for the result, which may run on any thread."""


@dataclass(frozen=True, slots=True)
class _Asked:
    topic: str
    origin: SegmentOrigin
    answer: OnConfirmed


@dataclass(slots=True)
class Confirmations:
    """`ask` may be called from any thread, `poll` only from the poll thread. `pool` runs one request at a time."""

    admin: ClusterAdmin
    pool: Executor
    _waiting: list[_Asked] = field(default_factory=list)
    _asking: bool = False
    _refused: bool = False  # the last request failed for some or all of the waiting segments
    _due_at: datetime | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, topic: str, origin: SegmentOrigin, answer: OnConfirmed) -> None:
        with self._mutex:
            self._waiting.append(_Asked(topic, origin, answer))
            if self._asking or self._refused:
                return  # the request in flight began before this one; the next follows when it ends, or is due
            self._asking = True
        self.pool.submit(self._run)

    def poll(self, now: datetime) -> None:
        """Repeat a failed request after RETRY."""
        with self._mutex:
            if not self._refused or self._asking:
                return
            if self._due_at is None:
                self._due_at = now + RETRY
            if now < self._due_at:
                return
            self._refused, self._due_at, self._asking = False, None, True
        self.pool.submit(self._run)

    def _run(self) -> None:
        with self._mutex:
            asked, self._waiting = self._waiting, []
        unanswered = self._answer(asked)
        with self._mutex:
            self._refused = bool(unanswered)
            self._waiting = unanswered + self._waiting
            self._asking = bool(self._waiting) and not self._refused
            if not self._asking:
                return
        self.pool.submit(self._run)

    def _answer(self, asked: list[_Asked]) -> list[_Asked]:
        """Call back with the results. Returns the entries that got none."""
        try:
            facts, refused = describe_each(self.admin, sorted({a.topic for a in asked}))
            # topics without ids can only be identified by the cluster id
            nameless = any(not f.topic_id for f in facts.values())
            cluster_id = self.admin.cluster_id() if nameless else ""
        except Exception as failure:  # whatever the cause: the waiting segments must get an answer at some time
            log.warning("topics_not_confirmed", extra={log_fields.ERROR: str(failure), log_fields.COUNT: len(asked)})
            return asked
        for topic, error in refused.items():
            log.warning("topics_not_confirmed", extra={log_fields.TOPIC: topic, log_fields.ERROR: str(error)})
        for one in asked:
            if one.topic in refused:
                continue
            found = facts.get(one.topic)
            same = found is not None and found.topic_id == one.origin.topic_id
            if same and not one.origin.topic_id:
                same = cluster_id == one.origin.cluster_id
            one.answer(same)
        return [one for one in asked if one.topic in refused]
