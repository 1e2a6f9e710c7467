"""Looks up, on a pool, where waiting partitions begin, and collects the answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from egress.assigned_partition import Abandoned, AssignedPartition, Contested
from egress.assignment import Assignment
from egress.start.resolver import StartAt, StartQuery, StartResolver, Unknown
from egress.topics.claims import Blocked
from egress.topics.log_identity import ForkEvidence
from egress.topics.watcher import Selected
from infra.contracts.cluster import TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lookups import Answer, Failed, Lookups
from infra.runtime.retry import RETRY

log = logging.getLogger(__name__)

_Answers = Mapping[TopicPartition, StartAt | Blocked | Unknown]


@dataclass(slots=True)
class StartLookup:
    """Use from the poll thread only. Lookups run on `pool`, and list the archive on `listing_pool`."""

    resolver: StartResolver
    pool: Executor
    listing_pool: Executor
    _lookups: Lookups[AssignedPartition, _Answers] = field(init=False)

    def __post_init__(self) -> None:
        self._lookups = Lookups(self.pool)

    def poll(
        self, assignment: Assignment, topics: Mapping[str, Selected], now: datetime
    ) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
        """Collect the answers for partitions that are still assigned, then start a lookup for all that wait."""
        found: list[tuple[AssignedPartition, StartAt | Blocked]] = []
        for asked, outcome in self._lookups.collect():
            found += self._collected(asked, outcome, now)
        skipped = self._lookups.keys | {partition for partition, _ in found}
        waiting = [(h, w) for h in assignment if h not in skipped and (w := _question(h, topics, now)) is not None]
        if waiting:
            questions = [question for _, question in waiting]
            self._lookups.ask([h for h, _ in waiting], self.resolver.resolve, questions, self.listing_pool)
        return [(partition, answer) for partition, answer in found if partition in assignment]

    def _collected(
        self, asked: Sequence[AssignedPartition], outcome: Answer[_Answers] | Failed, now: datetime
    ) -> Iterator[tuple[AssignedPartition, StartAt | Blocked]]:
        for partition in asked:
            partition.ask_again(None)
        match outcome:
            case Failed(error=error):
                _unknown(asked, str(error), now)
            case Answer(value=answers):
                for partition in asked:
                    match answers[partition.partition]:
                        case Unknown(reason=reason):
                            _unknown([partition], reason, now)
                        case answer:
                            partition.failing.succeeded(Attempt.POSITION)
                            yield partition, answer
            case _:
                assert_never(outcome)


def _unknown(partitions: Sequence[AssignedPartition], why: str, now: datetime) -> None:
    log.warning("positions_unknown", extra={log_fields.ERROR: why, log_fields.COUNT: len(partitions)})
    for partition in partitions:
        partition.failing.failed(Attempt.POSITION, why, now)
        partition.ask_again(now + RETRY)


def _question(partition: AssignedPartition, topics: Mapping[str, Selected], now: datetime) -> StartQuery | None:
    """None while the start need not, or must not yet, be looked up."""
    selected = topics.get(partition.partition.topic)
    # the group may know a new partition before the topics are refreshed
    if not partition.is_due(now) or selected is None or partition.partition.partition >= selected.facts.partition_count:
        return None
    query = StartQuery(partition.partition, selected.settings, selected.appeared)
    match partition.remainder:
        case Contested(segments=segments):
            return replace(query, contested=segments, contest=partition.stopped)
        case Abandoned(evidence=ForkEvidence() as evidence):
            return replace(query, forked=partition.source, evidence=evidence)
        case _:
            return query
