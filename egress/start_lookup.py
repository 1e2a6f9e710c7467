"""Partitions that wait to know where to begin: asks for them on a pool, and takes in the answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime

from egress.assigned_partition import AssignedPartition
from egress.start.resolver import StartAt, StartQuery, StartResolver, Unknown
from egress.topics.claims import Blocked
from egress.topics.watcher import Selected
from formats.errors import ReplicatorError
from infra.contracts.cluster import TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.retry import RETRY

log = logging.getLogger(__name__)

_Answers = Mapping[TopicPartition, StartAt | Blocked | Unknown]


@dataclass(slots=True)
class StartLookup:
    """The poll thread calls; the questions run on `pool`, and list the archive on `listing_pool`."""

    resolver: StartResolver
    pool: Executor
    listing_pool: Executor
    _asked: list[tuple[list[AssignedPartition], Future[_Answers]]] = field(default_factory=list)

    def turn(
        self, helds: Iterable[AssignedPartition], topics: Mapping[str, Selected], now: datetime
    ) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
        """Answers that came; of partitions that moved away since, too. Then asks for all that wait."""
        found: list[tuple[AssignedPartition, StartAt | Blocked]] = []
        for asked in [a for a in self._asked if a[1].done()]:
            self._asked.remove(asked)
            found += self._answered(*asked, now)
        answered = {id(held) for held, _ in found}
        waiting = [(h, w) for h in helds if id(h) not in answered and (w := _question(h, topics, now)) is not None]
        if waiting:
            for held, _ in waiting:
                held.resolving = True
            future = self.pool.submit(self.resolver.resolve, [w for _, w in waiting], self.listing_pool)
            self._asked.append(([h for h, _ in waiting], future))
        return found

    def _answered(
        self, helds: list[AssignedPartition], future: Future[_Answers], now: datetime
    ) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
        for held in helds:
            held.resolving, held.retry_at = False, None
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
        held.retry_at = now + RETRY


def _question(held: AssignedPartition, topics: Mapping[str, Selected], now: datetime) -> StartQuery | None:
    """None while it need not, or must not yet, be asked."""
    selected = topics.get(held.partition.topic)
    if held.resolving or held.going is not None or held.storing or (held.retry_at is not None and now < held.retry_at):
        return None
    # the group may know a new partition before our own look at the topics does
    if selected is None or held.partition.partition >= selected.facts.partition_count:
        return None
    return StartQuery(
        held.partition,
        selected.settings,
        selected.appeared,
        held.contested,
        held.stopped,
        held.source if held.evidence is not None else None,
        held.evidence,
    )
