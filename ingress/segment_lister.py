"""Lists the segments and recorded gaps of assigned partitions, on a pool.

begin, or start and `ask_started` ──> under way ──> `collect` ──> the view, then the sequencer
                                        └─ begun again: the answer of the current one is dropped; the view keeps
                                           events that arrive meanwhile
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lifecycle import Clock
from infra.runtime.lookups import Answer, Failed, Question
from infra.runtime.metrics import Metrics
from infra.runtime.retry import RETRY
from ingress.archive_listing import ArchiveListing, FirstListing, ListingRequest
from ingress.assigned_partition import AssignedPartition, Listed, ListedSegments, PendingListing
from ingress.sequencer import Effect, Sequencer

log = logging.getLogger(__name__)

MAX_PER_TURN = 10_000  # segments in one turn


@dataclass(slots=True, kw_only=True)
class SegmentLister:
    """Called on the controller's thread, whose turns begin with `begin_turn`."""

    archive: ArchiveListing
    clock: Clock
    jitter: Callable[[timedelta], timedelta]
    interval: timedelta  # of the timer
    metrics: Metrics
    _room: int = MAX_PER_TURN  # segments that this turn may still collect
    _started: list[FirstListing] = field(default_factory=list)

    def begin_turn(self) -> None:
        self._room = MAX_PER_TURN

    def begin(self, assigned: AssignedPartition, sequencer: Sequencer, *, full: bool, reason: str) -> None:
        """`full`: list every key of the partition, which alone proves that a segment is missing. Else list from the
        position on."""
        token = assigned.view.listing_begun()
        answer = self.archive.ask(_request(assigned, sequencer, full=full))
        self._begun(assigned, answer, token, full=full, reason=reason)

    def start(self, assigned: AssignedPartition, sequencer: Sequencer) -> None:
        """List a partition that begins from its position on, with the next `ask_started`."""
        token, first = assigned.view.listing_begun(), FirstListing(_request(assigned, sequencer, full=False))
        self._started.append(first)
        self._begun(assigned, Question(first.answer), token, full=False, reason="start")

    def ask_started(self) -> None:
        """Partitions that have started by now are listed together."""
        started, self._started = self._started, []
        self.archive.ask_firsts(started)

    def _begun(
        self, assigned: AssignedPartition, answer: Question[ListedSegments], token: int, *, full: bool, reason: str
    ) -> None:
        self.metrics.count("relists", 1, reason=reason)
        now = self.clock.now()
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


def _request(assigned: AssignedPartition, sequencer: Sequencer, *, full: bool) -> ListingRequest:
    return ListingRequest(
        source=assigned.delivery_target.source,
        position=sequencer.next_offset or 0,
        reach=assigned.reach,
        full=full,
        wants_begin=sequencer.next_offset is None and assigned.view.begin is None,
        begun_at=assigned.delivery_target.begun_at or 0,
        left_behind={source: undelivered.span.start for source, undelivered in assigned.left_behind.items()},
    )
