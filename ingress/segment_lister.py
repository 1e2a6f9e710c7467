"""Listings of held partitions: what the archive has of each, and which gaps it recorded, asked on a pool.

begin ──> under way ──> `taken_in` ──> the view, then the sequencer
             └─ begun anew: the one under way is forgotten; events that come meanwhile are kept by the view
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from formats.errors import ReplicatorError
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.forward_listing import ahead, all_ahead, covered
from infra.archive.segments import SegmentStore
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lifecycle import Clock
from infra.runtime.metrics import Metrics
from infra.runtime.retry import RETRY

if TYPE_CHECKING:
    from ingress.assigned_partition import AssignedPartition
    from ingress.sequencer import Effect

from ingress.assigned_partition import Listing, Stored

log = logging.getLogger(__name__)

TAKEN_IN = 10_000  # segments in one turn


@dataclass(slots=True, kw_only=True)
class SegmentLister:
    """Called on the controller's thread, whose turns begin with `turn`; asks on `pool`."""

    store: SegmentStore
    control: ControlStore
    pool: ThreadPoolExecutor
    clock: Clock
    jitter: Callable[[timedelta], timedelta]
    interval: timedelta  # of the timer
    metrics: Metrics
    _room: int = TAKEN_IN  # segments that this turn still takes in

    def turn(self) -> None:
        self._room = TAKEN_IN

    def begin(self, held: AssignedPartition, *, full: bool, reason: str) -> None:
        """`full`: every key of the partition is looked at, which alone proves that something is missing. Else from the
        position on."""
        self.metrics.count("relists", 1, reason=reason)
        now = self.clock.now()
        next_offset = held.sequencer.next_offset if held.sequencer else None
        token = held.view.listing_begun()
        wants_begin = next_offset is None and held.view.begin is None
        answer = self.pool.submit(
            self._ask,
            held.assignment.source,
            next_offset or 0,
            held.reach,
            full=full,
            wants_begin=wants_begin,
            begun_at=held.assignment.begun_at or 0,
            left_behind={source: undelivered.span.start for source, undelivered in held.left_behind.items()},
        )
        held.listing = Listing(answer=answer, token=token, full=full, begun_at=now)
        held.relist_at = now + self.jitter(self.interval)

    def by_timer(self, held: AssignedPartition, now: datetime) -> None:
        """The last segment of a quiet topic leaves no gap when its notification is lost."""
        if held.sequencer is not None and held.listing is None and held.relist_at is not None and now >= held.relist_at:
            self.begin(held, full=False, reason="timer")

    def taken_in(self, held: AssignedPartition, now: datetime) -> list[Effect]:
        """What follows from the answer, if there is one. When many come at once, those that this turn has no room for
        are taken in by the next one: the group is to be polled in between."""
        listing = held.listing
        if listing is None or not listing.answer.done() or self._room <= 0:
            return []
        assert held.sequencer is not None
        held.listing = None
        try:
            stored = listing.answer.result()
        except ReplicatorError as error:
            log.warning("listing_failed", extra=held.fields | {log_fields.ERROR: str(error)})
            held.failures.failed(Attempt.LISTING, str(error), now)
            held.view.listing_failed(listing.token)
            held.relist_at = now + RETRY  # nothing else asks again for a listing that the sequencer did not want
            return held.sequencer.listing_failed(now)
        self._room -= len(stored.infos)
        held.reach = {**held.reach, **stored.reach}
        held.failures.worked(Attempt.LISTING)
        if not held.view.listed(
            listing.token,
            stored.infos,
            stored.recorded,
            begin=stored.begin,
            complete=listing.full,
            is_cut=stored.is_cut,
        ):
            return []
        held.stored(stored)
        return held.sequencer.listed(now, full=listing.full, begun_at=listing.begun_at)

    def _ask(
        self,
        source: SourcePartition,
        position: int,
        reach: Mapping[int, int],
        *,
        full: bool,
        wants_begin: bool,
        begun_at: int,
        left_behind: Mapping[SourcePartition, int],
    ) -> Stored:
        store = self.store
        # gaps, then segments: every segment that was stored before a gap was written down is then seen
        recorded = self.control.gap_ranges(source)
        found = all_ahead(store, source, position) if full else ahead(store, source, position, reach=reach)
        return Stored(
            recorded=recorded,
            infos=found.infos,
            begin=_begin_of(self.control, source) if wants_begin else None,
            is_cut=found.is_cut,
            reach=found.reach,
            passed=covered(store, source, before=begun_at).runs if begun_at else (),
            left_behind={
                earlier: [info.segment.offsets for info in ahead(store, earlier, end).infos]
                for earlier, end in left_behind.items()
            },
        )


def _begin_of(control: ControlStore, source: SourcePartition) -> int | None:
    """Asked behind the segments: it was written before any of them was stored, so in a bucket that keeps the order of
    writes who sees a segment sees it."""
    begin = control.begin(source)
    return None if begin is None else begin.offset
