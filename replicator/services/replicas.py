"""The check of an archive's copies. Decodes nothing, so that a command that only deletes does not load Arrow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache

from compaction.replicas import ReplicaCheck
from formats.errors import StoreRefused
from formats.segment import Segment
from infra.archive.segments import SegmentStore
from infra.contracts.deployment import ReplicationRule
from infra.runtime.lifecycle import Stop
from infra.runtime.log_fields import ERROR
from infra.runtime.retry import Retries
from replicator.config import Config
from replicator.services.wiring import ONCE, stored_objects

log = logging.getLogger(__name__)


def replica_check(config: Config, store: SegmentStore, stop: Stop, opened: ExitStack) -> ReplicaCheck:
    """The check of the copies that S3 replication and `[sync]` of `config` make. Its clients are closed with
    `opened`."""
    rules = replication_rules(config, stop, opened)
    sync = config.sync
    if sync is None:
        return ReplicaCheck(original=store, rules=rules)
    there = SegmentStore(stored_objects(sync.destination, stop, opened), sync.destination.prefix)

    def is_synced(segment: Segment) -> bool:
        if segment.source.region != config.region:  # a copy of another region's archive, which sync copies nowhere
            return False
        by_level = not sync.levels or segment.level in sync.levels
        return by_level and (not sync.topics or any(t.matches(segment.source.topic) for t in sync.topics))

    return ReplicaCheck(original=store, copy=there, is_synced=is_synced, rules=rules)


def replication_rules(config: Config, stop: Stop, opened: ExitStack) -> Callable[[], Sequence[ReplicationRule]]:
    """Asks the bucket for them once. A role from before this check may not read them: then that is logged, and
    nothing waits for a rule. What is called raises StoreUnavailable."""

    @cache
    def rules() -> Sequence[ReplicationRule]:
        from replicator.services.setups import s3_setup  # noqa: PLC0415 -- few runs ask

        retries = Retries(stop=stop, policy=ONCE)
        try:
            return retries.call("replication rules", s3_setup(config.s3, opened).replication)
        except StoreRefused as error:
            log.warning("replication_rules_not_read", extra={ERROR: str(error)})
            return ()

    return rules
