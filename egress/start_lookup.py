"""Looks up, on a pool, where waiting partitions begin, and collects the answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from queue import SimpleQueue
from typing import assert_never

from egress.assigned_partition import Abandoned, AssignedPartition, Contested
from egress.assignment import Assignment
from egress.start.query import StartAnswer, StartAt, StartQuery, Unknown
from egress.start.resolver import StartResolver
from egress.topics.claims import Blocked
from egress.topics.log_identity import ForkEvidence
from egress.topics.watcher import Selected
from infra.contracts.cluster import TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lookups import Failed, Question, ask
from infra.runtime.retry import RETRY

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    """One call under way, and the partitions that it has not answered. Its answers come from threads of the pools."""

    unanswered: dict[TopicPartition, AssignedPartition]
    answers: SimpleQueue[tuple[TopicPartition, StartAnswer]] = field(default_factory=SimpleQueue)

    def answered(self, partition: TopicPartition, answer: StartAnswer) -> None:
        self.answers.put((partition, answer))

    def collect(self) -> Iterator[tuple[AssignedPartition, StartAnswer]]:
        for _ in range(self.answers.qsize()):
            partition, answer = self.answers.get()
            yield self.unanswered.pop(partition), answer


@dataclass(slots=True)
class StartLookup:
    """Use from the poll thread only. Lookups run on `pool`, and look partitions up in parallel on `listing_pool`."""

    resolver: StartResolver
    pool: Executor
    listing_pool: Executor
    _calls: list[tuple[_Call, Question[None]]] = field(default_factory=list)

    def poll(
        self, assignment: Assignment, topics: Mapping[str, Selected], now: datetime
    ) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
        """Collect the answers for partitions that are still assigned, then start a lookup for all that wait. A call
        answers each partition as soon as it can."""
        answers: list[tuple[AssignedPartition, StartAnswer]] = []
        for call, question in list(self._calls):
            is_over = question.is_answered  # before its answers are collected: none follows
            answers += call.collect()
            if is_over:
                self._calls.remove((call, question))
                answers += _left(call, question)
        found = _known(answers, now)
        skipped = {p for call, _ in self._calls for p in call.unanswered.values()} | {
            partition for partition, _ in found
        }
        waiting = [
            (h, w) for h in assignment.busy() if h not in skipped and (w := _question(h, topics, now)) is not None
        ]
        if waiting:
            queries = [query for _, query in waiting]
            call = _Call({h.partition: h for h, _ in waiting})
            question = ask(self.pool, self.resolver.resolve, queries, self.listing_pool, call.answered)
            self._calls.append((call, question))
        return [(partition, answer) for partition, answer in found if partition in assignment]


def _left(call: _Call, question: Question[None]) -> Iterator[tuple[AssignedPartition, StartAnswer]]:
    """The answer for partitions that a call has ended without: it failed."""
    match question.collect():
        case Failed(error=error):
            for partition in call.unanswered.values():
                yield partition, Unknown(str(error))
        case _:
            if call.unanswered:
                raise RuntimeError(f"no answer for {', '.join(map(str, call.unanswered))}")


def _known(
    answers: Sequence[tuple[AssignedPartition, StartAnswer]], now: datetime
) -> list[tuple[AssignedPartition, StartAt | Blocked]]:
    """The answers without those that are unknown, which are asked again later."""
    found: list[tuple[AssignedPartition, StartAt | Blocked]] = []
    unknown: dict[str, list[AssignedPartition]] = {}
    for partition, answer in answers:
        partition.ask_again(None)
        match answer:
            case Unknown(reason=reason):
                unknown.setdefault(reason, []).append(partition)
            case StartAt() | Blocked():
                partition.failing.succeeded(Attempt.POSITION)
                found.append((partition, answer))
            case _:
                assert_never(answer)
    for reason, partitions in unknown.items():
        _unknown(partitions, reason, now)
    return found


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
        case Contested(segments=segments, are_damaged=are_damaged):
            return replace(query, contested=segments, are_damaged=are_damaged, contest=partition.stopped)
        case Abandoned(evidence=ForkEvidence() as evidence):
            return replace(query, forked=partition.source, evidence=evidence)
        case _:
            return query
