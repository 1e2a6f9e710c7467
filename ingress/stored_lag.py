"""Lag, by listings of the archive, of partitions without a sequencer: refused ones, and ones that wait for a position
or for the previous incarnation. Listed at an interval on a pool.

    every `interval` ──> list after the known end ──> first offset, end, oldest segment ──less the checkpoint──> gauges
    every `renewed_after` the first segments are listed again: retention may have removed them
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition
from infra.archive.forward_listing import ahead
from infra.archive.segments import SegmentStore
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.metrics import Metrics
from ingress.delivery.events import labels_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The stored segments of one partition at and after a checkpoint."""

    checkpoint: int | None  # next offset; None: there is none, and everything stored waits
    start: int | None = None  # of the first segment; None: nothing waits
    end: int = 0  # next offset after the last segment
    oldest_at: datetime | None = None
    reach: Mapping[int, int] = field(default_factory=dict)  # for the next listing

    def lag(self, now: datetime) -> tuple[int, float]:
        """The lag in offsets and in seconds."""
        if self.start is None or self.oldest_at is None:
            return 0, 0.0
        begin = self.start if self.checkpoint is None else self.checkpoint
        return max(self.end - begin, 0), max((now - self.oldest_at).total_seconds(), 0.0)


_Answer = Mapping[CheckpointKey, _Waiting]


@dataclass(slots=True)
class StoredLag:
    """Use from the controller's thread only; listings run on `pool`, one call at a time."""

    store: SegmentStore
    metrics: Metrics
    pool: Executor
    interval: timedelta
    renewed_after: timedelta
    _known: dict[CheckpointKey, _Waiting] = field(default_factory=dict)
    _exported: set[SourcePartition] = field(default_factory=set)
    _lookup: Lookup[_Answer] = field(init=False)
    _renew_at: datetime | None = None

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(self, checkpoints: Mapping[CheckpointKey, int | None], now: datetime) -> None:
        """`checkpoints`: of all such partitions now, the next offset, or None without a checkpoint. The gauges of
        others are dropped, so partitions with a sequencer are measured after this."""
        self._collect()
        for key in self._known.keys() - checkpoints.keys():
            del self._known[key]
        is_news = any(key not in self._known or self._known[key].checkpoint != c for key, c in checkpoints.items())
        if checkpoints and (self._lookup.is_due(now) or (is_news and not self._lookup.is_under_way)):
            self._ask(checkpoints, now)
            self._collect()
        self._export(checkpoints, now)

    def _ask(self, checkpoints: Mapping[CheckpointKey, int | None], now: datetime) -> None:
        renew = self._renew_at is None or now >= self._renew_at
        if renew:
            self._renew_at = now + self.renewed_after
        self._lookup.due_at = now + self.interval
        self._lookup.ask(self._measure, dict(checkpoints), dict(self._known), renew=renew)

    def _collect(self) -> None:
        match self._lookup.collect():
            case Answer(value=known):
                self._known.update(known)
            case Failed(error=error):
                log.warning("lag_unknown", extra={log_fields.ERROR: str(error)})

    def _export(self, keys: Collection[CheckpointKey], now: datetime) -> None:
        known = {key.source: self._known[key] for key in keys if key in self._known}
        for source in self._exported - known.keys():
            self.metrics.forget("ingress_lag_records", **labels_of(source))
            self.metrics.forget("ingress_lag_seconds", **labels_of(source))
        self._exported = set(known)
        for source, waiting in known.items():
            offsets, seconds = waiting.lag(now)
            self.metrics.gauge("ingress_lag_records", offsets, **labels_of(source))
            self.metrics.gauge("ingress_lag_seconds", seconds, **labels_of(source))

    def _measure(self, checkpoints: Mapping[CheckpointKey, int | None], seen: _Answer, *, renew: bool) -> _Answer:
        """Runs on the pool. Raises StoreUnavailable."""
        found: dict[CheckpointKey, _Waiting] = {}
        for key, checkpoint in checkpoints.items():
            known = seen.get(key)
            if known is None or known.checkpoint != checkpoint:
                known = _Waiting(checkpoint)
            elif renew:
                known = self._renewed(key.source, known)
            found[key] = self._extended(key.source, known)
        return found

    def _renewed(self, source: SourcePartition, known: _Waiting) -> _Waiting:
        """Update the start by the first segments of each level: one request per level, however many segments it has."""
        first = ahead(self.store, source, known.checkpoint or 0, limit=1).infos
        if not first:
            return _Waiting(known.checkpoint)
        start = min(info.segment.offsets.start for info in first)
        return replace(known, start=start, oldest_at=min(info.stored_at for info in first))

    def _extended(self, source: SourcePartition, known: _Waiting) -> _Waiting:
        """Add the segments stored after its end: one page per level at a time, so that memory is bounded."""
        is_cut = True
        while is_cut:
            begin = max(known.end, known.checkpoint or 0)
            page = ahead(self.store, source, begin, reach=known.reach)
            starts = [i.segment.offsets.start for i in page.infos]
            stored_at = [i.stored_at for i in page.infos]
            known = replace(
                known,
                start=min([*starts, *([] if known.start is None else [known.start])], default=None),
                end=max([known.end, *(i.segment.offsets.next_offset for i in page.infos)]),
                oldest_at=min([*stored_at, *([] if known.oldest_at is None else [known.oldest_at])], default=None),
                reach=page.reach,
            )
            is_cut = page.is_cut and known.end > begin
        return known
