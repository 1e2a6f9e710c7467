"""The check of an archive's copies. Decodes nothing, so that a command that only deletes does not load Arrow."""

from __future__ import annotations

from contextlib import ExitStack

from compaction.replicas import ReplicaCheck
from formats.segment import Segment
from infra.archive.segments import SegmentStore
from infra.runtime.lifecycle import Stop
from replicator.config import Config
from replicator.services.wiring import stored_objects


def replica_check(config: Config, store: SegmentStore, stop: Stop, opened: ExitStack) -> ReplicaCheck:
    """The check of the copy that `[sync]` of `config` makes. Its clients are closed with `opened`."""
    sync = config.sync
    if sync is None:
        return ReplicaCheck(original=store)
    there = SegmentStore(stored_objects(sync.destination, stop, opened), sync.destination.prefix)

    def is_synced(segment: Segment) -> bool:
        by_level = not sync.levels or segment.level in sync.levels
        return by_level and (not sync.topics or any(t.matches(segment.source.topic) for t in sync.topics))

    return ReplicaCheck(original=store, copy=there, is_synced=is_synced)
