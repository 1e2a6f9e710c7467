"""Removes generations of control objects that `compaction.generation_rules` does not keep. Egress, which writes them,
has no right to delete."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from compaction.generation_rules import RULES, KeepRule, is_superseded
from formats.control.keys import generations_prefix
from infra.archive.generations import is_generation
from infra.contracts.storage import ObjectInfo, ObjectStore
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

BATCH = 1000  # objects of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinnedKind:
    """Generations of one kind of control object."""

    stored: int
    superseded: int  # of these, what goes
    superseded_bytes: int


@dataclass(frozen=True, slots=True)
class GenerationThinner:
    """One thread. Each call lists every generation, in constant memory; raises StoreUnavailable."""

    objects: ObjectStore
    prefix: str
    region: str
    stop: Stop

    def plan(self, now: datetime, horizon: datetime | None) -> Mapping[str, ThinnedKind]:
        """By kind, those with any generation. `now`: by the store's clock."""
        found = {}
        for kind, rule in RULES.items():
            stored = superseded = size_bytes = 0
            for info, is_gone in self._decided(kind, rule, now, horizon):
                stored += 1
                superseded += is_gone
                size_bytes += info.size_bytes if is_gone else 0
            if stored:
                found[kind] = ThinnedKind(stored=stored, superseded=superseded, superseded_bytes=size_bytes)
        return found

    def remove(self, now: datetime, horizon: datetime | None) -> Mapping[str, int]:
        """How many were removed of each kind. Ends early, between two requests, when `stop` is set."""
        removed: dict[str, int] = {}
        for kind, rule in RULES.items():
            gone = (info.key for info, is_gone in self._decided(kind, rule, now, horizon) if is_gone)
            while keys := list(islice(gone, BATCH)):
                if self.stop.is_set():
                    return removed
                with durable(Step.THIN_GENERATIONS):
                    self.objects.delete_many(keys)
                removed[kind] = removed.get(kind, 0) + len(keys)
            if kind in removed:
                extra = {log_fields.REGION: self.region, log_fields.OPERATION: kind, log_fields.COUNT: removed[kind]}
                log.info("generations_thinned", extra=extra)
        return removed

    def _decided(
        self, kind: str, rule: KeepRule, now: datetime, horizon: datetime | None
    ) -> Iterator[tuple[ObjectInfo, bool]]:
        """Each generation in order of numbers, and whether it goes; foreign keys are left out."""
        before: ObjectInfo | None = None
        prefix = generations_prefix(self.prefix, self.region, kind)
        for info in self.objects.list(prefix):
            if not is_generation(info.key[len(prefix) :]):
                continue
            if before is not None:
                yield before, is_superseded(before.modified_at, info.modified_at, rule, now, horizon)
            before = info
        if before is not None:
            yield before, False  # the newest
