"""What a restore that follows finds beyond its plan: partitions and topics that were stored since.

every `interval`, on a pool: names below the archive ── any that is not known? ──> plan anew ──> `found`, if one is fit
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ingress.restore_plan import RestorePlan
from replicator import logkeys
from replicator.errors import ReplicatorError
from replicator.protocols import Clock
from replicator.segment import SourcePartition

log = logging.getLogger(__name__)

AFTER_REFUSAL = 10  # intervals: a whole plan costs a listing of each partition


@dataclass(slots=True)
class Newcomers:
    """`turn` is one thread's."""

    plan: RestorePlan  # what is carried out
    stored: Callable[[], Collection[SourcePartition]]
    make_plan: Callable[[], RestorePlan]
    pool: Executor
    clock: Clock
    interval: timedelta
    found: RestorePlan | None = None  # what to carry out instead: all that is, and what is new
    _asked: Future[RestorePlan | None] | None = None
    _look_at: datetime | None = None
    _told: str = ""

    def turn(self) -> bool:
        """Whether something was found to begin with."""
        now = self.clock.now()
        if self._look_at is None:
            self._look_at = now + self.interval
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            try:
                self.found = asked.result()
            except ReplicatorError as error:
                self._tell(str(error))
            self._look_at = now + self.interval * (AFTER_REFUSAL if self._told else 1)
        elif self._asked is None and now >= self._look_at and self.found is None:
            self._asked = self.pool.submit(self._ask)
        return self.found is not None

    def _ask(self) -> RestorePlan | None:
        known = _carried_out(self.plan)
        if set(self.stored()) <= known:
            self._tell("")
            return None
        plan = self.make_plan()
        refused = [*plan.objections, *(o for topic in plan.topics if topic.refused for o in topic.objections)]
        self._tell("; ".join(f"{o.what}: {o.why}" for o in refused if not o.accepted))
        if any(not o.accepted for o in plan.objections):
            return None
        # a topic that was begun goes on, whatever is to be said against what is new of it
        before = {topic.destination: topic for topic in self.plan.topics}
        topics = [before.get(topic.destination) if topic.refused else topic for topic in plan.topics]
        fit = replace(plan, topics=[topic for topic in topics if topic is not None])
        return None if _carried_out(fit) <= known else fit

    def _tell(self, reasons: str) -> None:
        """Once, for as long as they are the same; empty: nothing is to be told."""
        if reasons and reasons != self._told:
            log.warning("newcomers_not_restored", extra={logkeys.REASON: reasons})
        self._told = reasons


def _carried_out(plan: RestorePlan) -> set[SourcePartition]:
    return {p.source for t in plan.topics for p in t.partitions if p.target.partition < t.partition_count}
