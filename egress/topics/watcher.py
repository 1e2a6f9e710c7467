"""Refreshes which topics are archived, and which archive paths are claimed: at an interval, and at once when the
settings were replaced; on a pool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.settings import EgressSettings, EgressTopicSettings
from formats.errors import TransientError
from formats.incarnation import topics_of
from formats.topic_selection import select, unmatched
from infra.contracts.cluster import ClusterAdmin, TopicFacts, describe_each
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.retry import RETRY
from infra.settings.current import InForce

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selected:
    settings: EgressTopicSettings
    facts: TopicFacts
    appeared: bool  # did not exist at the first refresh


@dataclass(frozen=True, slots=True)
class _Refresh:
    topics: Mapping[str, Selected]
    other_cluster: str | None
    claimed: frozenset[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()  # rules that match none of the cluster's topics


@dataclass(slots=True)
class TopicWatcher:
    """Use from the poll thread only; the requests run on `pool`."""

    admin: ClusterAdmin
    settings: InForce[EgressSettings]
    own_topics: Collection[str]
    cluster_id: str  # of the cluster at the start of this process
    interval: timedelta
    pool: Executor
    claimed_paths: Callable[[], frozenset[str]]  # the claimed archive paths; raises StoreUnavailable
    topics: Mapping[str, Selected] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # topic -> why the cluster does not show it
    claimed: frozenset[str] = frozenset()
    other_cluster: str | None = None  # id of the cluster at the bootstrap address now, if it is another
    _failures: Failures = field(default_factory=Failures)
    _refreshed: bool = False
    _idle: frozenset[str] = frozenset()
    _at_first: frozenset[str] | None = None
    # the topics that expressions may select, and the settings with which they were listed
    _searched: frozenset[str] = frozenset()
    _searched_by: EgressSettings | None = None
    # the settings of the last refresh that was begun, and of the last one that succeeded
    _asked: EgressSettings | None = None
    _answered: EgressSettings | None = None
    _lookup: Lookup[_Refresh] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(self, now: datetime) -> bool:
        """True after the first refresh, and when something changed. After an error the topics known before stay, since
        they are not absent; also when another cluster answers, whose topics are not these."""
        match self._lookup.collect():
            case None:
                settings = self.settings.value
                is_replaced = settings is not self._asked and not self._lookup.is_under_way
                if is_replaced or self._lookup.is_due(now):
                    self._lookup.due_at, self._asked = now + self.interval, settings
                    self._lookup.ask(self._ask, settings)
                return False
            case Failed(error=error):
                log.warning("topics_not_refreshed", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.TOPICS, str(error), now)
                if self._answered is not None and self._answered is not self._asked:
                    self._lookup.due_at = now + RETRY
                return False
            case Answer(value=found):
                self._failures.succeeded(Attempt.TOPICS)
                self._answered = self._asked
                return self._collected(found)

    def _collected(self, found: _Refresh) -> bool:
        """Whether something changed."""
        self._log_idle(found.idle)
        before = self._known
        self.other_cluster, self.claimed = found.other_cluster, found.claimed
        if found.other_cluster is None:
            self.topics, self.refused = found.topics, found.refused
        news = before != self._known or not self._refreshed
        self._refreshed = True
        return news

    def alarm(self, now: datetime) -> str:
        """Why topics are not refreshed: archiving continues, but new topics are not found. Empty while they are."""
        return self._failures.alarm(now)

    @property
    def _known(self) -> tuple[object, ...]:
        return self.topics, self.refused, self.other_cluster, self.claimed

    def _ask(self, settings: EgressSettings) -> _Refresh:
        cluster_id = self.admin.cluster_id()
        if cluster_id != self.cluster_id:
            return _Refresh({}, cluster_id, self.claimed)
        everything, rules = frozenset(self.admin.topics()), settings.rules
        if settings.finds_new_topics or settings is not self._searched_by:
            self._searched, self._searched_by = everything, settings
        claimed = self._refreshed_paths()
        # a listing omits topics that the principal may not describe: by name, refused differ from absent ones; those
        # that are archived are known by name, also to a process that has never seen them
        by_name = {r.pattern.text for r in rules if not r.pattern.is_expression}
        by_name |= topics_of(claimed) - everything
        chosen = select(
            everything & self._searched | by_name | self.topics.keys() | self.refused.keys(), rules, self.own_topics
        )
        facts, errors = describe_each(self.admin, chosen)
        refused = {
            n: f"{error}. Egress needs READ, which includes it: allow READ on {n}; or, if that topic was deleted, take "
            "its name out of [egress.topics], or add it to egress.exclude"
            for n, error in errors.items()
        }
        if self._at_first is None:
            self._at_first = everything | refused.keys()
        idle = (rule.pattern for rule in unmatched(rules, everything | refused.keys()))
        topics = {n: Selected(chosen[n], facts[n], n not in self._at_first) for n in sorted(facts)}
        return _Refresh(topics, None, claimed, refused, frozenset(map(str, idle)))

    def _refreshed_paths(self) -> frozenset[str]:
        """The claimed paths; those known before when the store does not answer, so that new topics are found still."""
        try:
            return self.claimed_paths()
        except TransientError as error:
            log.warning("places_not_refreshed", extra={log_fields.ERROR: str(error)})
            return self.claimed

    def _log_idle(self, idle: frozenset[str]) -> None:
        """Log each rule that matches no topic once: it may be a typing error, or its topic does not exist yet."""
        for rule in sorted(idle - self._idle):
            log.warning("rule_matches_no_topic", extra={log_fields.TOPIC: rule})
        self._idle = idle
