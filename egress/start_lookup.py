"""Partitions that wait to know where to begin: asks for them on a pool, and takes in the answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from egress.assigned_partition import Abandoned, AssignedPartition, Contested
from egress.start.resolver import StartAt, StartQuery, StartResolver, Unknown
from egress.topics.claims import Blocked
from egress.topics.log_identity import ForkEvidence
from egress.topics.watcher import Selected
from formats.errors import ReplicatorError
from infra.contracts.cluster import TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Attempt

log = logging.getLogger(__name__)

RETRY = timedelta(seconds=1)

_Answers = Mapping[TopicPartition, StartAt | Blocked | Unknown]


@dataclass(slots=True)
class StartLookup:
    """The poll thread calls; the questions run on `pool`, and list the archive on `listing_pool`."""

    resolver: StartResolver
    pool: Executor
    listing_pool: Executor
    _asked: list[tuple[list[AssignedPartition], Future[_Answers]]] = field(default_factory=list)

    def turn(
        self, partitions: Iterable[AssignedPartition], topics: Mapping[str, Selected], now: datetime
    ) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
        """Answers that came; of partitions that moved away since, too. Then asks for all that wait."""
        found: list[tuple[AssignedPartition, StartAt | Blocked]] = []
        for asked in [a for a in self._asked if a[1].done()]:
            self._asked.remove(asked)
            found += self._answered(*asked, now)
        passed_by = {held for held, _ in found} | {held for helds, _ in self._asked for held in helds}
        waiting = [(h, w) for h in partitions if h not in passed_by and (w := _question(h, topics, now)) is not None]
        if waiting:
            future = self.pool.submit(self.resolver.resolve, [w for _, w in waiting], self.listing_pool)
            self._asked.append(([h for h, _ in waiting], future))
        return found

    def _answered(
        self, helds: list[AssignedPartition], future: Future[_Answers], now: datetime
    ) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
        for held in helds:
            held.ask_again(None)
        try:
            answers = future.result()
        except ReplicatorError as error:
            _unknown(helds, str(error), now)
            return []
        found: list[tuple[AssignedPartition, StartAt | Blocked]] = []
        for held in helds:
            match answers[held.partition]:
                case Unknown(reason=reason):
                    _unknown([held], reason, now)
                case answer:
                    held.failing.worked(Attempt.POSITION)
                    found.append((held, answer))
        return found


def _unknown(helds: Sequence[AssignedPartition], why: str, now: datetime) -> None:
    log.warning("positions_unknown", extra={log_fields.ERROR: why, log_fields.COUNT: len(helds)})
    for held in helds:
        held.failing.failed(Attempt.POSITION, why, now)
        held.ask_again(now + RETRY)


def _question(held: AssignedPartition, topics: Mapping[str, Selected], now: datetime) -> StartQuery | None:
    """None while it need not, or must not yet, be asked."""
    selected = topics.get(held.partition.topic)
    # the group may know a new partition before our own look at the topics does
    if not held.is_due(now) or selected is None or held.partition.partition >= selected.facts.partition_count:
        return None
    query = StartQuery(held.partition, selected.settings, selected.appeared)
    match held.remainder:
        case Contested(segments=segments):
            return replace(query, contested=segments, contest=held.stopped)
        case Abandoned(evidence=ForkEvidence() as evidence):
            return replace(query, forked=held.source, evidence=evidence)
        case _:
            return query
