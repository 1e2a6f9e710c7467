"""Asks, after the last record of a segment was read, whether its topic is still the one that was opened.

A consumer goes on silently when a topic is deleted and created again: what it read may be of either log. Topic ids
never return, so an answer that comes after the last record was read, and names the id that reading began with, proves
that every record is of that life. One call serves all segments that wait; they gather while a call is under way.

An error is no answer: it is asked again. Another id, or no such topic, is one: the segment must not be stored.
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
"""Topic, what its segment was opened with, and whom to tell, on some thread, once it is known."""


@dataclass(frozen=True, slots=True)
class _Asked:
    topic: str
    origin: SegmentOrigin
    answer: OnConfirmed


@dataclass(slots=True)
class Confirmations:
    """`ask` may be called from any thread; `turn` is the poll thread's. `pool` runs one question at a time."""

    admin: ClusterAdmin
    pool: Executor
    _waiting: list[_Asked] = field(default_factory=list)
    _asking: bool = False
    _refused: bool = False  # the last question got no answer, for all or some of those who wait
    _due_at: datetime | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, topic: str, origin: SegmentOrigin, answer: OnConfirmed) -> None:
        with self._mutex:
            self._waiting.append(_Asked(topic, origin, answer))
            if self._asking or self._refused:
                return  # the question under way began before this one; the next comes when it ends, or is due
            self._asking = True
        self.pool.submit(self._run)

    def turn(self, now: datetime) -> None:
        """Asks again, a while after an error."""
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
        unanswered = self._tell(asked)
        with self._mutex:
            self._refused = bool(unanswered)
            self._waiting = unanswered + self._waiting
            self._asking = bool(self._waiting) and not self._refused
            if not self._asking:
                return
        self.pool.submit(self._run)

    def _tell(self, asked: list[_Asked]) -> list[_Asked]:
        """Those that could not be told."""
        try:
            facts, refused = describe_each(self.admin, sorted({a.topic for a in asked}))
            # where topics have no ids, the cluster's is all there is
            nameless = any(not f.topic_id for f in facts.values())
            cluster_id = self.admin.cluster_id() if nameless else ""
        except Exception as failure:  # whatever it was, it is no answer, and those who wait must not wait for ever
            log.warning("topics_not_confirmed", extra={log_fields.ERROR: str(failure), log_fields.COUNT: len(asked)})
            return asked
        for topic, error in refused.items():
            log.warning("topics_not_confirmed", extra={log_fields.TOPIC: topic, log_fields.ERROR: str(error)})
        for one in asked:
            if one.topic in refused:
                continue
            told = facts.get(one.topic)
            same = told is not None and told.topic_id == one.origin.topic_id
            if same and not one.origin.topic_id:
                same = cluster_id == one.origin.cluster_id
            one.answer(same)
        return [one for one in asked if one.topic in refused]
