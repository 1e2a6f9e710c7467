"""Finds partitions and topics that were stored after a restore with `follow` was planned.

every `interval`, on a pool: folder names of the archive ── any new one? ──> new plan ──> `found`, if it can be executed
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from formats.coverage import explained_until
from formats.segment import SourcePartition
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock
from infra.runtime.lookups import Answer, Failed, Lookup
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.plan import RestorePlan, TopicPlan

log = logging.getLogger(__name__)

SETTLED_AFTER = timedelta(minutes=30)  # as ingress waits for segments before the first one that it knows
AFTER_REFUSAL = 10  # intervals: a whole plan costs a listing of each partition


@dataclass(slots=True)
class NewPartitions:
    """`turn` is called on one thread."""

    plan: RestorePlan  # the plan that is executed
    stored: Callable[[], Collection[SourcePartition]]
    make_plan: Callable[[], RestorePlan]
    pool: Executor
    clock: Clock
    interval: timedelta
    found: RestorePlan | None = None  # the plan to execute instead: all of the current one, and what is new
    _lookup: Lookup[RestorePlan | None] = field(init=False)
    _logged: str = ""

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def turn(self) -> bool:
        """Whether a new plan was found. Never blocks."""
        now = self.clock.now()
        if self._lookup.due_at is None:
            self._lookup.due_at = now + self.interval
        match self._lookup.collect():
            case None:
                if self.found is None and self._lookup.is_due(now):
                    self._lookup.ask(self._ask)
            case Answer(value=found):
                self.found = found
                self._put_off(now)
            case Failed(error=error):
                self._log_once(str(error))
                self._put_off(now)
        return self.found is not None

    def _put_off(self, now: datetime) -> None:
        self._lookup.due_at = now + self.interval * (AFTER_REFUSAL if self._logged else 1)

    def _ask(self) -> RestorePlan | None:
        known = _restored_sources(self.plan)
        if set(self.stored()) <= known:
            self._log_once("")
            return None
        plan = self.make_plan()
        before = {topic.destination: topic for topic in self.plan.topics}
        reasons = [f"{c.kind}: {c.reason}" for c in plan.all_conflicts if not c.accepted]
        kept = {
            t.destination for t in plan.topics if t.destination in before and not _goes_on(before[t.destination], t)
        }
        reasons += [
            f"{name}: another incarnation of its source is stored; restore that one by itself" for name in sorted(kept)
        ]
        # deletion was confirmed for what the first plan named
        full = {t.destination for t in plan.topics if t.purge is not None and t.destination not in before}
        reasons += [f"{name}: it holds records, and was not named to be emptied: restore it by itself" for name in full]
        self._log_once("; ".join(reasons))
        if any(not c.accepted for c in plan.conflicts):
            return None
        # a topic that was started continues, whatever conflicts its new partitions have
        topics = [before.get(t.destination) if t.refused or t.destination in kept | full else t for t in plan.topics]
        fit = replace(plan, topics=[topic for topic in topics if topic is not None])
        return None if _restored_sources(fit) <= known else fit

    def _log_once(self, reasons: str) -> None:
        """Log `reasons` once while they stay the same; empty: nothing to log."""
        if reasons and reasons != self._logged:
            log.warning("newcomers_not_restored", extra={log_fields.REASON: reasons})
        self._logged = reasons


@dataclass(slots=True)
class Settling:
    """Holds back partitions whose first stored segment may not be their first one.

    Segments may arrive in any order, and segments before the offset where a restore began are never delivered. Such a
    partition counts as new once its first segment is stored; if the start of its archive is not recorded, once its
    first segment has stayed the same for `SETTLED_AFTER`.
    """

    _seen: dict[SourcePartition, tuple[int, datetime]] = field(default_factory=dict)  # first stored offset, since when
    _logged: dict[SourcePartition, int] = field(default_factory=dict)

    def settled(self, plan: RestorePlan, now: datetime) -> RestorePlan:
        """`plan` without the partitions that are held back."""
        topics = [replace(t, partitions=[p for p in t.partitions if self._is_settled(p, now)]) for t in plan.topics]
        return replace(plan, topics=[topic for topic in topics if topic.partitions])

    def _is_settled(self, partition: PartitionPlan, now: datetime) -> bool:
        if partition.checkpoint is not None or not partition.infos or partition.offsets is None:
            return True
        source, start = partition.source, min(info.segment.offsets.start for info in partition.infos)
        if start <= partition.wanted_from:
            return True
        begin = partition.archive_begin
        if begin is not None:
            is_settled = explained_until(partition.recorded, begin) >= start
        else:
            first, since = self._seen.get(source, (start, now))
            self._seen[source] = (start, since if first == start else now)
            is_settled = any(gap.next_offset == start for gap in partition.recorded)
            is_settled |= now - self._seen[source][1] > SETTLED_AFTER
        if not is_settled and self._logged.get(source) != start:
            self._logged[source] = start
            why = f"its archive begins at {begin}" if begin is not None else "the start of its archive is not recorded"
            log.warning(
                "partition_waits",
                extra={
                    log_fields.REGION: source.region,
                    log_fields.TOPIC: source.path,
                    log_fields.PARTITION: source.partition,
                    log_fields.REASON: f"offsets before {start} are not stored, and {why}: it is not started yet",
                    log_fields.NEXT: "nothing, if they are still being uploaded; "
                    f"else start there explicitly: --offsets {start}-",
                },
            )
        return is_settled


def _goes_on(before: TopicPlan, now: TopicPlan) -> bool:
    """Whether the new plan still has every partition of the current one."""
    return {p.source for p in before.partitions} <= {p.source for p in now.partitions}


def _restored_sources(plan: RestorePlan) -> set[SourcePartition]:
    return {p.source for t in plan.topics for p in t.partitions if p.target.partition < t.partition_count}
