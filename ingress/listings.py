"""Listings of held partitions: what the archive has of each, and which gaps it recorded, asked on a pool.

begin ──> under way ──> `taken_in` ──> the view, then the sequencer
             └─ begun anew: the one under way is forgotten; events that come meanwhile are kept by the view
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from replicator import logkeys
from replicator.control_store import ControlStore
from replicator.errors import ReplicatorError
from replicator.metrics import Metrics
from replicator.protocols import Clock
from replicator.segment import OffsetRange, SegmentInfo, SourcePartition
from replicator.store import SegmentStore

if TYPE_CHECKING:
    from ingress.held import Held
    from ingress.sequencer import Effect

log = logging.getLogger(__name__)

RETRY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A listing's answer."""

    recorded: Sequence[OffsetRange]
    infos: Sequence[SegmentInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One that is under way."""

    answer: Future[Stored]
    token: int  # for the view
    full: bool
    begun_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Listings:
    """Called on the controller's thread; asks on `pool`."""

    store: SegmentStore
    control: ControlStore
    pool: ThreadPoolExecutor
    clock: Clock
    jitter: Callable[[timedelta], timedelta]
    interval: timedelta  # of the timer
    metrics: Metrics

    def begin(self, held: Held, *, full: bool, reason: str) -> None:
        self.metrics.count("relists", 1, reason=reason)
        now = self.clock.now()
        next_offset = held.sequencer.next_offset if held.sequencer else None
        token = held.view.listing_begun()
        answer = self.pool.submit(self._ask, held.assignment.source, full=full, next_offset=next_offset or 0)
        held.listing = Listing(answer=answer, token=token, full=full, begun_at=now)
        if full:
            held.relist_at = now + self.jitter(self.interval)

    def by_timer(self, held: Held, now: datetime) -> None:
        """The last segment of a quiet topic leaves no gap when its notification is lost."""
        if held.sequencer is not None and held.listing is None and held.relist_at is not None and now >= held.relist_at:
            self.begin(held, full=True, reason="timer")

    def taken_in(self, held: Held, now: datetime) -> list[Effect]:
        """What follows from the answer, if there is one."""
        listing = held.listing
        if listing is None or not listing.answer.done():
            return []
        assert held.sequencer is not None
        held.listing = None
        try:
            stored = listing.answer.result()
        except ReplicatorError as error:
            log.warning("listing_failed", extra=held.fields | {logkeys.ERROR: str(error)})
            held.view.listing_failed(listing.token)
            held.relist_at = now + RETRY  # nothing else asks again for a listing that the sequencer did not want
            return held.sequencer.listing_failed(now)
        if not held.view.listed(listing.token, stored.infos, stored.recorded, complete=listing.full):
            return []
        return held.sequencer.listed(now, full=listing.full, begun_at=listing.begun_at)

    def _ask(self, source: SourcePartition, *, full: bool, next_offset: int) -> Stored:
        return list_stored(self.control, self.store, source, start_at=None if full else next_offset)


def list_stored(
    control: ControlStore, store: SegmentStore, source: SourcePartition, *, start_at: int | None = None
) -> Stored:
    """`start_at`: only level 0, from there on. Gaps, then segments: every segment that was stored before a gap was
    written down is then seen."""
    recorded = control.gap_ranges(source)
    infos = store.list(source) if start_at is None else store.list(source, level=0, start_at=start_at)
    return Stored(recorded=recorded, infos=infos)
