"""Decides the order in which one source partition's segments are delivered. No I/O: facts in, effects out.

Rules
  1. What is delivered next, and when to wait, re-list or give up, is decided here and nowhere else.
  2. One delivery at a time, of adjacent slices; slices follow each other without a gap or a repeat, except where a gap
     was given up.
  3. A gap is given up only after a full listing made after its timeout still shows it. An error is not a listing.
  4. A recorded gap is passed as soon as a full listing brings it and shows no segment there: the segment wins.
  5. A wait counts from when it was first noticed here, by any process: `Waits` holds what to keep for the next one. The
     timestamp of a segment is no evidence, since a replica has that of its original.
  6. Delivery begins at the recorded begin of the archive, and offsets missing there are a gap like any other. Without
     that record it begins with the first known segment, once none has appeared before it for a while.
  7. Nothing is delivered before the first checkpoint records where delivery began: `Begin`.
  8. Where known segments end and one that was not delivered has gone, the rest is listed before it counts as delivered.

    view changed ──> Deliver ──> progressed* ──> delivered ──> Finished*, Deliver …
                 │           └─> failed (wait, again) / vanished (another segment that covers it, or Relist)
                 └─> gap: Relist at once ──> recorded: Relist in full ──> Passed ──> on after it
                                         └─> Late, Relist with growing pauses ──> Lost ──> on past it, or stopped
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.coverage import Gap, SegmentSlice, explained_until, next_step, remaining, steps
from formats.messages.delivery_checkpoint import Waiting
from formats.segment import OffsetRange, Segment
from infra.runtime.retry import Backoff
from ingress.segment_view import SegmentView

# limits of one delivery: small segments make large runs, and large ones do not delay other partitions for long
CHAIN_SLICES, CHAIN_BYTES = 1_000, 16 << 20  # as stored


@dataclass(frozen=True, slots=True)
class Deliver:
    """Produce the slices, which are adjacent; answer `progressed` repeatedly and then `delivered`, or else `failed`, or
    `vanished` or `corrupt` with the segment at fault."""

    slices: tuple[SegmentSlice, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Write the first checkpoint, at `offset`, where delivery begins; answer `delivered` or `failed`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The slice, and its checkpoint, are in the target."""

    segment_slice: SegmentSlice


@dataclass(frozen=True, slots=True)
class Relist:
    """List the recorded gaps of this partition, and then its segments, into the view; answer `listed` or
    `listing_failed`. If not `full`, listing from the position on is enough, without reading every key."""

    full: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """A later segment is known, but these offsets are neither stored nor recorded as a gap. Returned once per gap."""

    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class Waits:
    """A listing confirmed this wait. The partition's next owner should know its begin."""

    waiting: Waiting


@dataclass(frozen=True, slots=True)
class Passed:
    """Egress recorded that no segment will ever have these offsets; delivery continues after them. Only the checkpoint
    of the next run covers them, and a process that starts before it passes them again."""

    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class Lost:
    """No segment with these offsets appeared within the timeout. Returned once per gap."""

    offsets: OffsetRange
    skipped: bool  # delivery continues after them; else it waits for them or for an operator


Effect = Deliver | Begin | Finished | Relist | Late | Waits | Passed | Lost


FAILED = Backoff(timedelta(seconds=0.5), timedelta(seconds=10))
REFUSED = Backoff(timedelta(seconds=30), timedelta(minutes=5))  # seldom resolved by time alone


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePolicy:
    first_segment_delay: timedelta  # settle time before delivery begins with the first known segment
    late_retries: int
    lost_timeout: timedelta
    skip_lost: bool
    late_delay: timedelta = timedelta(seconds=1)  # before the first re-list; doubles
    after_failure: Backoff = FAILED  # of a delivery or a listing
    after_refusal: Backoff = REFUSED  # refused by the data or the target, not a failure of the network

    def pause(self, failures: int, *, refused: bool) -> timedelta:
        """The pause before a retry. `failures`: in a row before this one."""
        return (self.after_refusal if refused else self.after_failure).delay(failures)


@dataclass(slots=True)
class _Gap:
    offsets: OffsetRange
    since: datetime  # for the timeout
    noticed_at: datetime
    is_confirmed: bool = False  # a listing begun since it was noticed shows it
    retries: int = 0
    lost: bool = False


@dataclass(slots=True)
class Sequencer:
    """Not thread safe. The caller feeds `view` and then calls `changed`."""

    policy: LatePolicy
    view: SegmentView
    next_offset: int | None  # of the next record to deliver; None until the first segment is chosen
    is_begun: bool = True  # a checkpoint says where delivery began
    waited: Waiting | None = None  # what an earlier owner waited for
    delivering: tuple[SegmentSlice, ...] = ()  # slices that are not finished
    beginning: bool = False  # the first checkpoint is being written
    listed_at: datetime | None = None  # when the last complete listing began that nothing has put in doubt since
    wake_at: datetime | None = None  # call `tick` then; None: only new facts change anything
    _gap: _Gap | None = None
    _late_at: int | None = None  # start of the last gap that was reported late
    _failures: int = 0
    _backing_off: bool = False
    _wanted: Relist | None = None  # a requested listing without an answer
    _listing: bool = False  # it is in flight
    _vanished: Segment | None = None  # the last segment that a listing showed and the store did not have
    _first: Waiting | None = None  # the first known segment, while it is not certain that delivery begins there
    _settled: bool = False  # the listing that the choice of the first segment waits for was requested

    def __post_init__(self) -> None:
        if self.next_offset is not None:
            self.view.applied(self.next_offset)

    @property
    def gap(self) -> OffsetRange | None:
        """The offsets that delivery waits for."""
        return self._gap.offsets if self._gap else None

    @property
    def stopped(self) -> bool:
        """Whether a lost gap stops this partition until the segment appears or an operator decides."""
        return self._gap is not None and self._gap.lost

    @property
    def exhausted(self) -> bool:
        """Whether no known segment is left to deliver, and no request or wait is pending. O(n)."""
        if self.is_busy or self._gap is not None or self._listing or self._backing_off:
            return False
        if self.view.truncated or self.view.doubtful:
            return False
        if self.next_offset is None:
            return not len(self.view)
        return next_step(self.view.segments, self.next_offset) is None

    @property
    def is_busy(self) -> bool:
        """Whether a delivery is in flight, so that the position may move."""
        return bool(self.delivering) or self.beginning

    def changed(self, now: datetime) -> list[Effect]:
        """The view has changed."""
        self._forget_doubtful_listing()
        return self._advance(now)

    def progressed(self, next_offset: int) -> list[Effect]:
        """Records below `next_offset`, and their checkpoint, are in the target."""
        self.next_offset = next_offset
        self.view.applied(next_offset)
        self._failures, self._vanished = 0, None
        done = len(self.delivering) - len(remaining(self.delivering, next_offset))
        finished, self.delivering = self.delivering[:done], self.delivering[done:]
        return [Finished(segment_slice) for segment_slice in finished]

    def delivered(self, now: datetime) -> list[Effect]:
        if self.beginning:
            self._failures, self.beginning, self.is_begun = 0, False, True
            return self._advance(now)
        assert self.delivering
        return [*self.progressed(self.delivering[-1].offsets.next_offset), *self._advance(now)]

    def failed(self, now: datetime) -> list[Effect]:
        """The rest is not in the target; retry after a pause."""
        self.delivering, self.beginning = (), False
        self._back_off(now, refused=False)
        return []

    def vanished(self, segment: Segment, now: datetime) -> list[Effect]:
        """The store holds no such object (a plain 404): merged away, or removed."""
        self.delivering = ()
        self._without(segment)
        if self.next_offset is not None and isinstance(next_step(self.view.segments, self.next_offset), SegmentSlice):
            return self._advance(now)
        if segment == self._vanished:  # listed, but absent, again: an inconsistent store is given time
            self._wanted = Relist(False, "missing")
            self._back_off(now, refused=False)
            return []
        self._vanished = segment
        return self._relist(full=False, reason="missing")

    def corrupt(self, segment: Segment, now: datetime) -> list[Effect]:
        """The object does not match its key. Another segment may cover its offsets; else it is read again after a
        listing, in case it was replaced."""
        self.delivering = ()
        self._without(segment)
        if self.next_offset is not None and isinstance(next_step(self.view.segments, self.next_offset), SegmentSlice):
            return self._advance(now)
        self._wanted = Relist(False, "corrupt")
        self._back_off(now, refused=True)
        return []

    def listed(self, now: datetime, *, full: bool, begun_at: datetime) -> list[Effect]:
        """The answer of a `Relist`, or of any other listing, is in the view; the listing began at `begun_at`."""
        self._listing = False
        self._wanted = None
        if not self.is_busy and not self._backing_off:
            self._failures = 0
        if self.view.disturbed:  # it proves no absence
            full, self._settled = False, False
        if full:
            self.listed_at = begun_at
        self._forget_doubtful_listing()
        if self.next_offset is None:
            self._take(self.view.begin)
        if self.next_offset is None:
            # any listing shows the first segments reliably: there is no position yet that it could start after
            return [*self._advance(now), *([] if self.view.disturbed else self._unsettled())]
        if full and (passed := self._pass_recorded()):
            return [*passed, *self._advance(now)]
        gap = self._gap
        if gap is None or not self._still_exists(gap):
            return self._advance(now)
        if not full and self._is_recorded(gap.offsets):
            return self._relist(full=True, reason="gap")
        if gap.lost:
            return self._advance(now)
        if full and begun_at >= gap.since + self.policy.lost_timeout:
            late = [] if gap.is_confirmed else self._late(gap)  # every earlier listing failed
            return [*late, *self._give_up(gap, now)]
        if not gap.is_confirmed:
            if begun_at < gap.noticed_at:
                return self._relist(full=False, reason="gap")
            gap.is_confirmed = True
            self._wait_for_gap(gap, now)
            return self._late(gap)
        gap.retries += 1
        self._wait_for_gap(gap, now)
        return []

    def listing_failed(self, now: datetime) -> list[Effect]:
        self._listing = False
        self._back_off(now, refused=False)
        return []

    def tick(self, now: datetime) -> list[Effect]:
        if self.wake_at is None or now < self.wake_at or self.is_busy or self._listing:
            return []
        self.wake_at = None
        self._backing_off = False
        if self._wanted is not None:
            return self._relist(full=self._wanted.full, reason=self._wanted.reason)
        if self._gap is not None and not self._gap.lost and self._still_exists(self._gap):
            final = now >= self._gap.since + self.policy.lost_timeout
            # in full at times: other segments of its level may hide the missing one
            return self._relist(full=final or self._gap.retries % 4 == 3, reason="late")
        return self._advance(now)

    def _advance(self, now: datetime) -> list[Effect]:
        if self.is_busy or self._backing_off:
            return []
        if self.next_offset is None:
            effects = self._choose_start(now)
            if self.next_offset is None:
                return effects
        step = next_step(self.view.segments, self.next_offset)
        match step:
            case SegmentSlice():
                self._gap, self.wake_at = None, None
                if not self.is_begun:
                    self.beginning = True
                    return [Begin(self.next_offset)]
                self.delivering = self._chain(self.next_offset)
                return [Deliver(self.delivering)]
            case Gap(offsets=offsets):
                return self._notice(offsets, now)
            case None:
                self._gap = None
                if self.view.truncated:
                    return self._relist(full=False, reason="truncated")
                return self._relist(full=False, reason="removed") if self.view.doubtful else []

    def _without(self, segment: Segment) -> None:
        self.view.removed(segment)
        self._forget_doubtful_listing()

    def _forget_doubtful_listing(self) -> None:
        if self.view.doubtful:
            self.listed_at = None

    def _chain(self, next_offset: int) -> tuple[SegmentSlice, ...]:
        """The slice at the position, and the adjacent ones up to the limits of one delivery."""
        sizes = {info.segment: info.size_bytes for info in self.view.infos}
        chain: list[SegmentSlice] = []
        left = CHAIN_BYTES
        for step in steps(self.view.segments, next_offset):
            if isinstance(step, Gap) or len(chain) == CHAIN_SLICES:
                break
            left -= sizes[step.segment]
            if chain and left < 0:
                break
            chain.append(step)
        return tuple(chain)

    def _notice(self, offsets: OffsetRange, now: datetime) -> list[Effect]:
        if self._gap is not None and self._gap.offsets.start == offsets.start:
            self._gap.offsets = offsets
            return []  # waiting already; the end of the gap does not matter
        # the timeout counts for all owners, however often the partition moves, since one of them noticed the gap
        self._gap = _Gap(offsets, self._since(Waiting(offsets.start, now)), now)
        self._wait_for_gap(self._gap, now)
        # at once: no need to wait for a recorded gap, nor for a notification that was overtaken or lost
        return self._relist(full=self._is_recorded(offsets), reason="gap")

    def _is_recorded(self, offsets: OffsetRange) -> bool:
        """Whether at least the start of `offsets` is in a recorded gap, as far as known."""
        return explained_until(self.view.recorded, offsets.start) > offsets.start

    def _pass_recorded(self) -> list[Effect]:
        """Pass a recorded gap. Only right after a full listing: single events (a removal before the creation of the
        merged segment) can show a gap where there is none."""
        if self.is_busy or self.next_offset is None:
            return []
        step = next_step(self.view.segments, self.next_offset)
        if not isinstance(step, Gap) or not self._is_recorded(step.offsets):
            return []
        next_offset = min(explained_until(self.view.recorded, self.next_offset), step.offsets.next_offset)
        passed = Passed(OffsetRange(self.next_offset, next_offset - 1))
        self._gap, self.next_offset = None, next_offset
        self.view.applied(next_offset)
        if not self._backing_off:
            self.wake_at = None
        return [passed]

    def _late(self, gap: _Gap) -> list[Effect]:
        """Report the gap once. A notification of a deleted segment may hide it for a while; it is the same gap when it
        is back."""
        before, self._late_at = self._late_at, gap.offsets.start
        late = [Late(gap.offsets)] if before != gap.offsets.start else []
        return [*late, Waits(Waiting(gap.offsets.start, gap.since))]

    def _since(self, waiting: Waiting) -> datetime:
        """The begin of this wait by any owner; `waiting.since` if none waited before."""
        known = self.waited
        if known is None or (known.offset, known.is_beginning) != (waiting.offset, waiting.is_beginning):
            return waiting.since
        return min(known.since, waiting.since)

    def _wait_for_gap(self, gap: _Gap, now: datetime) -> None:
        end = gap.since + self.policy.lost_timeout
        pause = Backoff(self.policy.late_delay, self.policy.lost_timeout).delay(gap.retries)
        at = min(now + pause, end) if gap.retries < self.policy.late_retries else end
        self.wake_at = max(at, now)  # the timeout may have passed during a partial listing: a full one decides, at once

    def waits_for(self) -> tuple[OffsetRange, datetime] | None:
        """The missing offsets before a known segment, confirmed by a listing, and since when delivery waits for them.
        None when there are none, or they are given up as lost."""
        gap = self._gap
        if gap is None or gap.lost or not gap.is_confirmed or not self._still_exists(gap):
            return None
        return gap.offsets, gap.since

    def _still_exists(self, gap: _Gap) -> bool:
        """Whether the gap still exists: no known segment covers its first offset, and one lies after it."""
        step = next_step(self.view.segments, gap.offsets.start) if gap.offsets.start == self.next_offset else None
        return isinstance(step, Gap)

    def _give_up(self, gap: _Gap, now: datetime) -> list[Effect]:
        step = next_step(self.view.segments, gap.offsets.start)
        assert isinstance(step, Gap)  # `listed` checked it
        gap.offsets = step.offsets
        if not self.policy.skip_lost:
            gap.lost, self.wake_at, self._backing_off = True, None, False  # from here on only new facts change anything
            return [Lost(gap.offsets, skipped=False)]
        self._gap = None
        self.next_offset = gap.offsets.next_offset
        self.view.applied(self.next_offset)
        return [Lost(gap.offsets, skipped=True), *self._advance(now)]

    def _take(self, next_offset: int | None) -> None:
        """Begin delivery at `next_offset`, if it is known."""
        if next_offset is not None:
            self.next_offset, self._first = next_offset, None
            self.view.applied(next_offset)
            if not self._backing_off:  # else nothing would end the back-off
                self.wake_at = None

    def _choose_start(self, now: datetime) -> list[Effect]:
        start = min((segment.offsets.start for segment in self.view.segments), default=None)
        if start is None:
            self._first, self.wake_at = None, None
            return []
        if start == 0:  # certainly the first segment; others may have a predecessor
            self._take(0)
            return []
        if self._first is None or self._first.offset != start:
            since = self._since(Waiting(start, now, is_beginning=True))
            self._first, self._settled = Waiting(start, since, is_beginning=True), False
        settled_at = self._first.since + self.policy.first_segment_delay
        if now < settled_at:
            self.wake_at = settled_at
            return []
        if not self._settled:
            self._settled = True
            return self._relist(full=True, reason="start")
        if not self._listing:
            self._take(start)
        return []

    def _unsettled(self) -> list[Effect]:
        """The wait for the first segment, confirmed by a listing."""
        return [Waits(self._first)] if self._first is not None and not self._settled else []

    def _relist(self, *, full: bool, reason: str) -> list[Effect]:
        if self._listing:
            return []
        self._listing = True
        self._wanted = Relist(full, reason)
        return [self._wanted]

    def _back_off(self, now: datetime, *, refused: bool) -> None:
        self._backing_off = True
        self.wake_at = now + self.policy.pause(self._failures, refused=refused)
        self._failures += 1
