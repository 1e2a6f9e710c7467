"""Which topics are archived now, and in which places: asks from time to time, on a pool, and tells what changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.settings import EgressTopicSettings
from formats.errors import TransientError
from formats.topic_selection import TopicRule, select
from infra.contracts.cluster import ClusterAdmin, TopicFacts, describe_each
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.lookups import Answer, Failed, Lookup

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selected:
    settings: EgressTopicSettings
    facts: TopicFacts
    appeared: bool  # was not there at our first look


@dataclass(frozen=True, slots=True)
class _Look:
    topics: Mapping[str, Selected]
    other_cluster: str | None
    claimed: frozenset[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()  # rules that match none of the cluster's topics


@dataclass(slots=True)
class TopicWatcher:
    """The poll thread calls; the question itself runs on `pool`."""

    admin: ClusterAdmin
    rules: Sequence[TopicRule[EgressTopicSettings]]
    own_topics: Collection[str]
    cluster_id: str  # of the cluster this process began with
    interval: timedelta
    pool: Executor
    places: Callable[[], frozenset[str]]  # those of the archive that are claimed; raises StoreUnavailable
    topics: Mapping[str, Selected] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # topic -> why the cluster does not show it
    claimed: frozenset[str] = frozenset()
    other_cluster: str | None = None  # what stands behind the bootstrap address now, if it is another
    _failures: Failures = field(default_factory=Failures)
    _looked: bool = False
    _idle: frozenset[str] = frozenset()
    _first_look: frozenset[str] | None = None
    _lookup: Lookup[_Look] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def turn(self, now: datetime) -> bool:
        """True after the first look, and when something changed. An error keeps what was known: it is no absence; and
        so does another cluster, whose topics are not these."""
        match self._lookup.take_in():
            case None:
                if self._lookup.is_due(now):
                    self._lookup.due_at = now + self.interval
                    self._lookup.ask(self._ask)
                return False
            case Failed(error=error):
                log.warning("topics_not_refreshed", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.TOPICS, str(error), now)
                return False
            case Answer(value=found):
                self._failures.worked(Attempt.TOPICS)
                return self._taken_in(found)

    def _taken_in(self, found: _Look) -> bool:
        """Whether it is news."""
        self._tell_idle(found.idle)
        before = self._known
        self.other_cluster, self.claimed = found.other_cluster, found.claimed
        if found.other_cluster is None:
            self.topics, self.refused = found.topics, found.refused
        news = before != self._known or not self._looked
        self._looked = True
        return news

    def alarm(self, now: datetime) -> str:
        """That what is archived goes on, and what is new is not seen; empty when it is."""
        return self._failures.alarm(now)

    @property
    def _known(self) -> tuple[object, ...]:
        return self.topics, self.refused, self.other_cluster, self.claimed

    def _ask(self) -> _Look:
        cluster_id = self.admin.cluster_id()
        if cluster_id != self.cluster_id:
            return _Look({}, cluster_id, self.claimed)
        everything = frozenset(self.admin.topics())
        # a listing leaves out what the principal may not describe: a question by name tells a refusal from an absence
        by_name = {r.pattern.text for r in self.rules if not r.pattern.is_expression}
        chosen = select(everything | by_name | self.topics.keys() | self.refused.keys(), self.rules, self.own_topics)
        facts, errors = describe_each(self.admin, chosen)
        refused = {
            n: f"{error}. Egress needs READ, which includes it: allow READ on {n}; or, if that topic was deleted, take "
            "its name out of [egress.topics] and restart egress"
            for n, error in errors.items()
        }
        if self._first_look is None:
            self._first_look = everything | refused.keys()
        idle = (r.pattern for r in self.rules if not r.pattern.matches_any(everything | refused.keys()))
        topics = {n: Selected(chosen[n], facts[n], n not in self._first_look) for n in sorted(facts)}
        return _Look(topics, None, self._places(), refused, frozenset(map(str, idle)))

    def _places(self) -> frozenset[str]:
        """A store that does not answer keeps no new topic from being found."""
        try:
            return self.places()
        except TransientError as error:
            log.warning("places_not_refreshed", extra={log_fields.ERROR: str(error)})
            return self.claimed

    def _tell_idle(self, idle: frozenset[str]) -> None:
        """Perhaps a slip of the pen, perhaps a topic that is still to come: said once."""
        for rule in sorted(idle - self._idle):
            log.warning("rule_matches_no_topic", extra={log_fields.TOPIC: rule})
        self._idle = idle
