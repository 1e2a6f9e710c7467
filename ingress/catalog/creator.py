"""Creates destination topics, and writes down that they are ours.

    intent ──> create ──> topic with its id ──> the ledger has it

A process may die between any two of these. A topic that exists, that no entry names, whose intent is in the ledger, and
that has what only we create topics with, is ours, too: the process that finds it completes the entry.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import TargetError
from formats.messages.ledger import CreationIntent, OwnedTopic
from formats.policies.topic_configs import CREATED_WITH
from infra.contracts.cluster import ClusterAdmin
from infra.contracts.internal_topics import Ledger
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock

log = logging.getLogger(__name__)


INTENT_HOLDS = timedelta(minutes=10)  # before it is written again, for a creation that is refused again and again


@dataclass(slots=True)
class TopicCreator:
    """Safe to call from two threads. Raises BrokerUnavailable, and TargetError with the remedy."""

    admin: ClusterAdmin
    ledger: Ledger
    clock: Clock
    replication_factor: int
    factor_setting: str = "ingress.replication_factor"  # that says it
    _intended: dict[str, datetime] = field(default_factory=dict)  # when the intent was written

    def create(
        self, name: str, partitions: int, configs: Mapping[str, str], *, source: str, lineage: tuple[str, ...]
    ) -> None:
        """`configs`: those of the source; what keeps every record is added. Nothing happens when it exists already:
        then another process created it, and wrote it down."""
        self._intend(name)
        if not self._create(name, partitions, {**configs, **CREATED_WITH}, bool(configs)):
            return
        log.info("destination_created", extra={log_fields.DESTINATION: name, log_fields.COUNT: partitions})
        facts = self.admin.describe([name]).get(name)
        if facts is not None and facts.topic_id:
            self.own(name, facts.topic_id, source=source, lineage=lineage, configs={*configs, *CREATED_WITH})

    def _intend(self, name: str) -> None:
        now, before = self.clock.now(), self._intended.get(name)
        if before is None or now - before > INTENT_HOLDS:
            self.ledger.write([CreationIntent(name=name, at=now)])
            self._intended[name] = now

    def own(
        self,
        name: str,
        topic_id: str,
        *,
        source: str,
        lineage: tuple[str, ...],
        configs: Collection[str] | None = None,
    ) -> None:
        """`configs`: names of those that it was created with; None: not known."""
        owned = OwnedTopic(
            name=name,
            topic_id=topic_id,
            source=source,
            at=self.clock.now(),
            lineage=lineage,
            configs=None if configs is None else tuple(sorted(configs)),
        )
        self.ledger.write([owned])
        self._intended.pop(name, None)

    def _create(self, name: str, partitions: int, configs: Mapping[str, str], has_others: bool) -> bool:
        try:
            with durable(Step.CREATE_TOPIC):
                return self.admin.create_topic(
                    name, partitions=partitions, replication_factor=self.replication_factor, configs=configs
                )
        except TargetError as error:
            if not has_others:
                raise TargetError(self._with_remedy(str(error))) from error
            # perhaps because of one config of the source, which is reported by its name when configs are compared
            log.warning(
                "destination_configs_refused", extra={log_fields.DESTINATION: name, log_fields.ERROR: str(error)}
            )
            return self._create(name, partitions, CREATED_WITH, has_others=False)

    def _with_remedy(self, error: str) -> str:
        if "replication factor" not in error.lower():
            return error
        return (
            f"{error}. The request has {self.factor_setting} = {self.replication_factor}: fewer brokers need a "
            "smaller one, or -1 for the broker's default"
        )
