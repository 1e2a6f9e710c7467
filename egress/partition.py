"""One source partition's egress, without I/O: facts in, effects out.

Rules
  1. Everything that decides what a segment covers, and what may be committed, is in this file.
  2. Ranges tile: a segment starts where the one before it ends, whatever holes the log has.
  3. Only the unbroken run of stored segments is committed: store, then commit.
  4. After a Seek all records are ignored until `started` confirms it: records that the client has still buffered have
     other offsets, *higher* ones too, which would be taken for a legal hole.

    started -> consumed* / reached* -> Seal -> (encode, upload) -> stored -> Commit
                     \\-- disturbed -> Seek                \\-- spool_lost -> Discard, Seek

Record bytes never come here: on `Append`, the controller adds the run's records to the open segment.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from formats.segment import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class SealPolicy:
    """When an open segment is full. The first limit reached seals it."""

    max_messages: int
    max_bytes: int  # raw keys, values and headers; checked once per run, so one run may go over it
    max_age: timedelta  # since the range first grew

    def __post_init__(self) -> None:
        if self.max_messages < 1 or self.max_bytes < 1 or self.max_age <= timedelta():
            raise ValueError(f"limits must be positive: {self}")


class Reason(StrEnum):
    """Why a segment was sealed."""

    MESSAGES = "messages"
    SIZE = "size"
    AGE = "age"
    PRESSURE = "pressure"  # the spool is full of open segments
    MOVED = "moved"  # the partition leaves this process
    STOPPED = "stopped"  # the process ends
    RANGE_END = "range-end"  # a backfill has read its range


@dataclass(frozen=True, slots=True)
class Append:
    """Add the run's records to the open segment."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Close the open segment: it covers `offsets`. Answer with `stored` or `spool_lost`."""

    offsets: OffsetRange
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Commit:
    next_offset: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop the open segment and every sealed one that starts at or after `from_offset`."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class Seek:
    """Read from `next_offset`; answer with `started(epoch)` once the client has dropped its buffered records."""

    next_offset: int
    epoch: int


Decision = Seal | Commit | Discard | Seek
Effect = Append | Decision  # `Append` follows from records only


@dataclass(slots=True)
class EgressPartition:
    """Not thread safe: the poll thread owns it. `now` is passed in, never read."""

    policy: SealPolicy
    next_offset: int  # of the next record wanted
    epoch: int = 0
    _seeking: bool = True
    _start: int = field(init=False)  # of the open range
    _opened_at: datetime | None = None  # when the open range first grew
    _count: int = 0
    _size_bytes: int = 0
    _sealed: deque[OffsetRange] = field(default_factory=deque)  # being stored, in offset order
    _stored: set[OffsetRange] = field(default_factory=set)  # stored ahead of an earlier one

    def __post_init__(self) -> None:
        self._start = self.next_offset

    @property
    def room(self) -> int:
        """Records until the open segment is full; at least 1. A run given to `consumed` holds no more."""
        return self.policy.max_messages - self._count

    @property
    def room_bytes(self) -> int:
        """Bytes at which the open segment is full; at least 1."""
        return self.policy.max_bytes - self._size_bytes

    @property
    def deadline(self) -> datetime | None:
        """When `tick` next matters; None: only other facts change anything."""
        return self._opened_at + self.policy.max_age if self._opened_at and not self._sealed else None

    @property
    def in_flight(self) -> int:
        """Sealed segments whose outcome is not known."""
        return len(self._sealed)

    @property
    def open_start(self) -> int:
        """First offset of the range that is open, or would open next."""
        return self._start

    @property
    def committable(self) -> int:
        """Everything below is stored."""
        return self._sealed[0].start if self._sealed else self._start

    def begin(self) -> list[Decision]:
        """The first call: seek to the start offset."""
        return self._seek(self.next_offset)

    def started(self, epoch: int) -> None:
        """The client is at the offset of the Seek with this epoch, and has no records buffered from before it."""
        if epoch == self.epoch:
            self._seeking = False

    def consumed(self, first_offset: int, last_offset: int, count: int, size_bytes: int, now: datetime) -> list[Effect]:
        """A run of `count` records, the next ones in the log; offsets skipped between are holes."""
        if self._seeking or last_offset < self.next_offset:
            return []  # buffered before a seek
        if count > self.room:
            raise ValueError(f"run of {count} records, room for {self.room}")
        if first_offset < self.next_offset:
            return [*self._seek(self.next_offset)]  # overlaps the records already read: seek again instead of cutting
        self._grow(last_offset + 1, now)
        self._count += count
        self._size_bytes += size_bytes
        effects: list[Effect] = [Append()]
        if self._count >= self.policy.max_messages:
            effects += self._seal(Reason.MESSAGES)
        elif self._size_bytes >= self.policy.max_bytes:
            effects += self._seal(Reason.SIZE)
        return effects

    def reached(self, next_offset: int, now: datetime) -> list[Decision]:
        """The client's position passed to `next_offset` without a record between: those offsets are holes."""
        if not self._seeking and next_offset > self.next_offset:
            self._grow(next_offset, now)
        return []

    def tick(self, now: datetime) -> list[Decision]:
        """Seal by age; also a range without records, or a partition with only aborted transactions would never commit.
        Not while a segment is being stored: nothing after it could be committed, and a store that takes fewer segments
        than there are partitions would get ever more of them instead of larger ones."""
        return self._seal(Reason.AGE) if self.deadline is not None and now >= self.deadline else []

    def seal_early(self) -> list[Decision]:
        """Seal the open segment before it is full, so that its space in the spool is freed."""
        return self._seal(Reason.PRESSURE) if self._opened_at else []

    def limit(self, policy: SealPolicy) -> list[Decision]:
        """Other limits from now on. An open segment that is full by them is sealed."""
        self.policy = policy
        if self._opened_at is not None and self._count >= policy.max_messages:
            return self._seal(Reason.MESSAGES)
        return self._seal(Reason.SIZE) if self._opened_at is not None and self._size_bytes >= policy.max_bytes else []

    def drain(self, reason: Reason) -> list[Decision]:
        """Seal the open segment: no more records will come."""
        self._seeking = True
        return self._seal(reason) if self._opened_at else []

    def stored(self, offsets: OffsetRange) -> list[Decision]:
        if offsets not in self._sealed:
            return []  # given up before it finished; the object is a legal overlap
        self._stored.add(offsets)
        done: OffsetRange | None = None
        while self._sealed and self._sealed[0] in self._stored:
            done = self._sealed.popleft()
            self._stored.remove(done)
        return [Commit(done.next_offset)] if done else []

    def spool_lost(self, start: int) -> list[Decision]:
        """The segment that begins at `start` can no longer be written: read again from there."""
        if start != self._start and all(r.start != start for r in self._sealed):
            return []
        while self._sealed and self._sealed[-1].start >= start:
            self._stored.discard(self._sealed.pop())
        self._reopen(start)
        return [Discard(start), *self._seek(start)]

    def disturbed(self) -> list[Decision]:
        """Fetched records may have been lost in the client: seek to the next offset wanted."""
        return self._seek(self.next_offset)

    def _seek(self, next_offset: int) -> list[Decision]:
        self.epoch += 1
        self._seeking = True
        return [Seek(next_offset, self.epoch)]

    def _grow(self, next_offset: int, now: datetime) -> None:
        self.next_offset = next_offset
        if self._opened_at is None:
            self._opened_at = now

    def _reopen(self, start: int) -> None:
        self._start = self.next_offset = start
        self._opened_at, self._count, self._size_bytes = None, 0, 0

    def _seal(self, reason: Reason) -> list[Decision]:
        offsets, count = OffsetRange(self._start, self.next_offset - 1), self._count
        self._reopen(self.next_offset)
        self._sealed.append(offsets)
        return [Seal(offsets, count, reason)]
