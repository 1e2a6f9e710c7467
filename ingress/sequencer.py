"""Orders one source partition's segments for delivery, without I/O: facts in, effects out.

Rules
  1. What is delivered next, and when to wait, re-list or give up, is decided here and nowhere else.
  2. One delivery at a time, of pieces that adjoin; pieces follow each other without a gap or a repeat, except where a
     gap was given up.
  3. A gap is given up only after a full listing made after its timeout still shows it. An error is not a listing.
  4. A recorded gap is passed over as soon as a full listing brings it and shows no segment there: the segment wins.
  5. How long something is waited for counts from when it was first noticed here, by any process: `Waits` says what to
     keep for the next one. A segment's own time says nothing, since a replica has that of its original.
  6. Delivery begins where the archive's record of its begin says, and what is missing there is a gap like any other.
     Without that record it begins with the first segment known, once nothing came before it for a while.
  7. Nothing is delivered before a first checkpoint says where delivery began: `Begin`.

    view changed ──> Deliver ──> progressed* ──> delivered ──> Finished*, Deliver …
                 │           └─> failed (wait, again) / vanished (another segment that covers it, or Relist)
                 └─> gap: Relist at once ──> recorded: Relist in full ──> Passed ──> on behind it
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

# delivered together at most: small segments make large runs, and large ones do not keep others from their turn for long
CHAIN_PIECES, CHAIN_BYTES = 1_000, 16 << 20  # as stored


@dataclass(frozen=True, slots=True)
class Deliver:
    """Produce the pieces, which adjoin; answer `progressed` as it goes and then `delivered`, or else `failed`,
    `vanished` or `corrupt` of the one at fault."""

    pieces: tuple[SegmentSlice, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Write the first checkpoint, at `offset`, in which delivery begins; answer `delivered`, or `failed`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The piece is in the target, and so is the checkpoint that says so."""

    piece: SegmentSlice


@dataclass(frozen=True, slots=True)
class Relist:
    """List this partition, and its recorded gaps before it, into the view; then `listed` or `listing_failed`. Not
    `full`: what can be found from the position on without looking at every key will do."""

    full: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """A later segment is known, these offsets are neither stored nor recorded as a gap. Told once per gap."""

    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class Waits:
    """A listing confirmed that this is waited for. The partition's next owner should know since when."""

    waiting: Waiting


@dataclass(frozen=True, slots=True)
class Passed:
    """The egress recorded that no segment will ever have these offsets; delivery goes on behind them. No checkpoint
    says so: the next run's does, and who starts before it passes over them again."""

    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class Lost:
    """No segment with these offsets appeared within the timeout. Told once per gap."""

    offsets: OffsetRange
    skipped: bool  # delivery goes on behind them; else it waits for them or for an operator


Effect = Deliver | Begin | Finished | Relist | Late | Waits | Passed | Lost


FAILED = Backoff(timedelta(seconds=0.5), timedelta(seconds=10))
REFUSED = Backoff(timedelta(seconds=30), timedelta(minutes=5))  # time alone seldom mends it


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePolicy:
    first_segment_delay: timedelta  # settle time before delivery begins with the first segment known
    late_retries: int
    lost_timeout: timedelta
    skip_lost: bool
    late_delay: timedelta = timedelta(seconds=1)  # before the first re-list; doubles
    after_failure: Backoff = FAILED  # of a delivery or a listing
    after_refusal: Backoff = REFUSED  # the data or the target says no, not the network

    def pause(self, failures: int, *, refused: bool) -> timedelta:
        """Before it is tried again, after so many failures in a row before this one."""
        return (self.after_refusal if refused else self.after_failure).delay(failures)


@dataclass(slots=True)
class _Gap:
    offsets: OffsetRange
    since: datetime  # for the timeout
    noticed_at: datetime
    looked: bool = False  # a listing begun since it was noticed shows it
    retries: int = 0
    lost: bool = False


@dataclass(slots=True)
class Sequencer:
    """Not thread safe. The caller feeds `view` and then calls `changed`."""

    policy: LatePolicy
    view: SegmentView
    next_offset: int | None  # of the next record to deliver; None until the first segment is chosen
    is_begun: bool = True  # a checkpoint says where delivery began
    waited: Waiting | None = None  # what an owner before this one waited for
    delivering: tuple[SegmentSlice, ...] = ()  # those that are not finished
    beginning: bool = False  # the first checkpoint is being written
    listed_at: datetime | None = None  # when the last listing was begun that shows all there was
    wake_at: datetime | None = None  # call `tick` then; None: only news can change anything
    _gap: _Gap | None = None
    _told: int | None = None  # where the last gap begins that was told to be late
    _failures: int = 0
    _backing_off: bool = False
    _wanted: Relist | None = None  # a listing asked for and not answered
    _listing: bool = False  # it is under way
    _vanished: Segment | None = None  # the last one that a listing showed and the store did not have
    _first: Waiting | None = None  # the first segment known, while it is not certain that delivery begins there
    _settled: bool = False  # the listing that the choice of the first segment waits for was asked for

    def __post_init__(self) -> None:
        if self.next_offset is not None:
            self.view.applied(self.next_offset)

    @property
    def gap(self) -> OffsetRange | None:
        """What delivery waits for."""
        return self._gap.offsets if self._gap else None

    @property
    def stopped(self) -> bool:
        """A lost gap holds this partition until the segment appears or an operator decides."""
        return self._gap is not None and self._gap.lost

    @property
    def exhausted(self) -> bool:
        """Nothing that is known is left to deliver, and nothing is asked or waited for. O(n)."""
        if self.is_busy or self._gap is not None or self._listing or self._backing_off:
            return False
        if self.next_offset is None or self.view.truncated:
            return not len(self.view) and not self.view.truncated
        return next_step(self.view.segments, self.next_offset) is None

    @property
    def is_busy(self) -> bool:
        """The target works on something, and the position may move."""
        return bool(self.delivering) or self.beginning

    def changed(self, now: datetime) -> list[Effect]:
        """The view knows more or less than before."""
        return self._advance(now)

    def progressed(self, next_offset: int) -> list[Effect]:
        """Records below `next_offset` are in the target, and so is the checkpoint that says so."""
        self.next_offset = next_offset
        self.view.applied(next_offset)
        self._failures, self._vanished = 0, None
        done = len(self.delivering) - len(remaining(self.delivering, next_offset))
        finished, self.delivering = self.delivering[:done], self.delivering[done:]
        return [Finished(piece) for piece in finished]

    def delivered(self, now: datetime) -> list[Effect]:
        if self.beginning:
            self._failures, self.beginning, self.is_begun = 0, False, True
            return self._advance(now)
        assert self.delivering
        return [*self.progressed(self.delivering[-1].offsets.next_offset), *self._advance(now)]

    def failed(self, now: datetime) -> list[Effect]:
        """The rest is not in the target; time may mend that."""
        self.delivering, self.beginning = (), False
        self._back_off(now, refused=False)
        return []

    def vanished(self, segment: Segment, now: datetime) -> list[Effect]:
        """The store holds no such object (a plain 404): merged away, or removed."""
        self.delivering = ()
        self.view.removed(segment)
        if self.next_offset is not None and isinstance(next_step(self.view.segments, self.next_offset), SegmentSlice):
            return self._advance(now)
        if segment == self._vanished:  # listed, but not there, again: a store at odds with itself is given time
            self._wanted = Relist(False, "missing")
            self._back_off(now, refused=False)
            return []
        self._vanished = segment
        return self._relist(full=False, reason="missing")

    def corrupt(self, segment: Segment, now: datetime) -> list[Effect]:
        """The object is not what its key says. Another segment may cover its offsets; else it is looked at again after
        a listing, in case it was replaced."""
        self.delivering = ()
        self.view.removed(segment)
        if self.next_offset is not None and isinstance(next_step(self.view.segments, self.next_offset), SegmentSlice):
            return self._advance(now)
        self._wanted = Relist(False, "corrupt")
        self._back_off(now, refused=True)
        return []

    def listed(self, now: datetime, *, full: bool, begun_at: datetime) -> list[Effect]:
        """The answer of a `Relist`, or of any other listing, is in the view; the store was asked at `begun_at`."""
        self._listing = False
        self._wanted = None
        if not self.is_busy and not self._backing_off:
            self._failures = 0
        if self.view.disturbed:  # it proves no absence
            full, self._settled = False, False
        if full:
            self.listed_at = begun_at
        if self.next_offset is None:
            self._take(self.view.begin)
        if self.next_offset is None:
            # any listing shows the first segments for certain: nothing lies before its position
            return [*self._advance(now), *([] if self.view.disturbed else self._unsettled())]
        if full and (passed := self._pass_recorded()):
            return [*passed, *self._advance(now)]
        gap = self._gap
        if gap is None or not self._still(gap):
            return self._advance(now)
        if not full and self._is_recorded(gap.offsets):
            return self._relist(full=True, reason="gap")
        if gap.lost:
            return self._advance(now)
        if full and begun_at >= gap.since + self.policy.lost_timeout:
            late = [] if gap.looked else self._late(gap)  # every look before this one failed
            return [*late, *self._give_up(gap, now)]
        if not gap.looked:
            if begun_at < gap.noticed_at:
                return self._relist(full=False, reason="gap")
            gap.looked = True
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
        if self._gap is not None and not self._gap.lost and self._still(self._gap):
            final = now >= self._gap.since + self.policy.lost_timeout
            # now and then in full: other segments of its level may hide the one that is missing
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
                return self._relist(full=False, reason="truncated") if self.view.truncated else []

    def _chain(self, next_offset: int) -> tuple[SegmentSlice, ...]:
        """What lies at the position, and what adjoins that as long as it is small."""
        sizes = {info.segment: info.size_bytes for info in self.view.infos}
        chain: list[SegmentSlice] = []
        left = CHAIN_BYTES
        for step in steps(self.view.segments, next_offset):
            if isinstance(step, Gap) or len(chain) == CHAIN_PIECES:
                break
            left -= sizes[step.segment]
            if chain and left < 0:
                break
            chain.append(step)
        return tuple(chain)

    def _notice(self, offsets: OffsetRange, now: datetime) -> list[Effect]:
        if self._gap is not None and self._gap.offsets.start == offsets.start:
            self._gap.offsets = offsets
            return []  # waiting already; where it ends does not matter
        # the same for every owner, however often the partition moves: since one of them noticed it
        self._gap = _Gap(offsets, self._since(Waiting(offsets.start, now)), now)
        self._wait_for_gap(self._gap, now)
        # at once: a recorded gap is not waited for, and a notification that was overtaken or lost need not be
        return self._relist(full=self._is_recorded(offsets), reason="gap")

    def _is_recorded(self, offsets: OffsetRange) -> bool:
        """As far as is known, at least its beginning."""
        return explained_until(self.view.recorded, offsets.start) > offsets.start

    def _pass_recorded(self) -> list[Effect]:
        """Only on the word of a full listing, right after it: news that come one by one (a removal before the merged
        segment it made way for) let a gap appear where there is none."""
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
        """A notification of a segment that is gone hides the gap for a while: it is the same one when it is back."""
        before, self._told = self._told, gap.offsets.start
        late = [Late(gap.offsets)] if before != gap.offsets.start else []
        return [*late, Waits(Waiting(gap.offsets.start, gap.since))]

    def _since(self, waiting: Waiting) -> datetime:
        """Since when this is waited for, `waiting.since` if nobody did before."""
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
        """Offsets before a known segment that no segment holds, confirmed by a listing, and since when delivery waits
        for them; None when there are none, or they are given up as lost."""
        gap = self._gap
        if gap is None or gap.lost or not gap.looked or not self._still(gap):
            return None
        return gap.offsets, gap.since

    def _still(self, gap: _Gap) -> bool:
        """The gap is as it was: nothing known covers its first offset, something known lies behind it."""
        step = next_step(self.view.segments, gap.offsets.start) if gap.offsets.start == self.next_offset else None
        return isinstance(step, Gap)

    def _give_up(self, gap: _Gap, now: datetime) -> list[Effect]:
        step = next_step(self.view.segments, gap.offsets.start)
        assert isinstance(step, Gap)  # `listed` looked
        gap.offsets = step.offsets
        if not self.policy.skip_lost:
            gap.lost, self.wake_at, self._backing_off = True, None, False  # from here on only news changes anything
            return [Lost(gap.offsets, skipped=False)]
        self._gap = None
        self.next_offset = gap.offsets.next_offset
        self.view.applied(self.next_offset)
        return [Lost(gap.offsets, skipped=True), *self._advance(now)]

    def _take(self, next_offset: int | None) -> None:
        """Delivery begins there, if it is known where."""
        if next_offset is not None:
            self.next_offset, self._first = next_offset, None
            self.view.applied(next_offset)
            if not self._backing_off:  # else nothing would end that
                self.wake_at = None

    def _choose_start(self, now: datetime) -> list[Effect]:
        start = min((segment.offsets.start for segment in self.view.segments), default=None)
        if start is None:
            self._first, self.wake_at = None, None
            return []
        if start == 0:  # the beginning for certain; others may have a predecessor
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
        """What a listing confirmed of the beginning, while it is waited for."""
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
