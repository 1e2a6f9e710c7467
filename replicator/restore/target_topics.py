"""Checks that the topics that a restore writes to are still the ones that it started with.

When a topic is deleted and created again, a producer continues into the new topic without an error. Topic ids are never
reused: a topic whose id is the same at the end was the same all the time, and holds everything that was acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.contracts.cluster import ClusterAdmin
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup

log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(seconds=3)


@dataclass(slots=True)
class TargetTopics:
    """`turn` is called on one thread and never blocks; requests run on `pool`."""

    admin: ClusterAdmin
    ids: Mapping[str, str]  # by name, at the start; empty: the broker has no topic ids, and only a deletion is detected
    pool: Executor
    _replaced: Mapping[str, str] = field(default_factory=dict)
    _lookup: Lookup[Mapping[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def turn(self, now: datetime) -> Mapping[str, str]:
        """Why each replaced topic, by name, is another one now; as of the last answer."""
        if self._lookup.due_at is None:
            self._lookup.due_at = now + CHECK_EVERY
        match self._lookup.collect():
            case None:
                if self._lookup.is_due(now):
                    self._lookup.ask(self.replaced)
            case Answer(value=replaced):
                self._replaced, self._lookup.due_at = replaced, now + CHECK_EVERY
            case Failed(error=error):  # no answer: nothing is known
                self._lookup.due_at = now + CHECK_EVERY
                log.warning("destinations_not_seen", extra={log_fields.ERROR: str(error)})
        return self._replaced

    def replaced(self) -> Mapping[str, str]:
        """As `turn`, as of now; blocks. Raises BrokerUnavailable, TargetError."""
        found = self.admin.describe(self.ids.keys())
        answer: dict[str, str] = {}
        for name, topic_id in self.ids.items():
            if name not in found:
                answer[name] = f"{name} was deleted while this restore wrote to it{_AND_SO}"
            elif topic_id and found[name].topic_id != topic_id:
                answer[name] = (
                    f"{name} was deleted and created again while this restore wrote to it (topic id {topic_id}, now "
                    f"{found[name].topic_id}){_AND_SO}"
                )
        return answer


_AND_SO = (
    ": what it had delivered is gone, and the topic does not hold the restored records. Find out who replaced it, then "
    "start another restore with --id"
)
