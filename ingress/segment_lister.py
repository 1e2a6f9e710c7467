"""Lists the segments and recorded gaps of assigned partitions, on a pool.

begin ──> under way ──> `collect` ──> the view, then the sequencer
             └─ begun again: the answer of the current one is dropped; the view keeps events that arrive meanwhile
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.forward_listing import ahead, all_ahead, covered
from infra.archive.segments import SegmentStore
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lifecycle import Clock
from infra.runtime.lookups import Answer, Failed, ask
from infra.runtime.metrics import Metrics
from infra.runtime.retry import RETRY
from ingress.assigned_partition import AssignedPartition, Listed, ListedSegments, PendingListing
from ingress.sequencer import Effect, Sequencer

log = logging.getLogger(__name__)

MAX_PER_TURN = 10_000  # segments in one turn


@dataclass(slots=True, kw_only=True)
class SegmentLister:
    """Called on the controller's thread, whose turns begin with `begin_turn`; lists on `pool`."""

    store: SegmentStore
    control: ControlStore
    pool: Executor
    clock: Clock
    jitter: Callable[[timedelta], timedelta]
    interval: timedelta  # of the timer
    metrics: Metrics
    _room: int = MAX_PER_TURN  # segments that this turn may still collect

    def begin_turn(self) -> None:
        self._room = MAX_PER_TURN

    def begin(self, assigned: AssignedPartition, sequencer: Sequencer, *, full: bool, reason: str) -> None:
        """`full`: list every key of the partition, which alone proves that a segment is missing. Else list from the
        position on."""
        self.metrics.count("relists", 1, reason=reason)
        now = self.clock.now()
        next_offset = sequencer.next_offset
        token = assigned.view.listing_begun()
        wants_begin = next_offset is None and assigned.view.begin is None
        answer = ask(
            self.pool,
            self._ask,
            assigned.delivery_target.source,
            next_offset or 0,
            assigned.reach,
            full=full,
            wants_begin=wants_begin,
            begun_at=assigned.delivery_target.begun_at or 0,
            left_behind={source: undelivered.span.start for source, undelivered in assigned.left_behind.items()},
        )
        relist_at = now + self.jitter(self.interval)
        assigned.listing_begun(PendingListing(answer=answer, token=token, full=full, begun_at=now, relist_at=relist_at))

    def by_timer(self, assigned: AssignedPartition, sequencer: Sequencer, now: datetime) -> None:
        """List at an interval: the last segment of a quiet topic leaves no gap when its notification is lost."""
        if isinstance(assigned.listing, Listed) and now >= assigned.listing.relist_at:
            self.begin(assigned, sequencer, full=False, reason="timer")

    def collect(self, assigned: AssignedPartition, sequencer: Sequencer, now: datetime) -> list[Effect]:
        """The effects of the answer, if there is one. Of many answers, those that exceed this turn's room are left to
        the next one, since the group has to be polled in between."""
        listing = assigned.listing
        if not isinstance(listing, PendingListing) or self._room <= 0:
            return []
        match listing.answer.collect():
            case None:
                return []
            case Failed(error=error):
                log.warning("listing_failed", extra=assigned.fields | {log_fields.ERROR: str(error)})
                assigned.failures.failed(Attempt.LISTING, str(error), now)
                assigned.view.listing_failed(listing.token)
                # nothing else repeats a listing that the sequencer did not request
                assigned.listing_ended(now + RETRY)
                return sequencer.listing_failed(now)
            case Answer(value=stored):
                assigned.listing_ended(listing.relist_at)
                return self._show(assigned, sequencer, listing, stored, now)

    def _show(
        self,
        assigned: AssignedPartition,
        sequencer: Sequencer,
        listing: PendingListing,
        stored: ListedSegments,
        now: datetime,
    ) -> list[Effect]:
        self._room -= len(stored.infos)
        assigned.reach = {**assigned.reach, **stored.reach}
        assigned.failures.succeeded(Attempt.LISTING)
        if not assigned.view.listed(
            listing.token,
            stored.infos,
            stored.recorded,
            begin=stored.begin,
            complete=listing.full,
            is_cut=stored.is_cut,
        ):
            return []
        assigned.stored(stored)
        return sequencer.listed(now, full=listing.full, begun_at=listing.begun_at)

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
    ) -> ListedSegments:
        store = self.store
        # gaps before segments, so that every segment stored before a gap was recorded is seen
        recorded = self.control.gap_ranges(source)
        found = all_ahead(store, source, position) if full else ahead(store, source, position, reach=reach)
        return ListedSegments(
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
    """Where the archive begins. Read after the segments: it was recorded before any of them was stored, so in a bucket
    that keeps the order of writes it is visible once a segment is."""
    begin = control.begin(source)
    return None if begin is None else begin.offset
