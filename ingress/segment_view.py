"""What is known to be stored for one source partition, from events and listings that arrive in any order.

Rules
  1. Events arrive in the order of the event log. A removal beats the creation of that key, also one in a listing that
     was under way when the removal came.
  2. A listing shows the store at some moment after it was begun, so it beats every event that arrived before that.
  3. An entry leaves when it was applied (or removed), never by age.
  4. Look-ahead is capped: what lies furthest ahead is forgotten first, and `truncated` says "list again".
  5. Recorded gaps come with listings, each listing's in place of the one before; where the archive begins comes with
     one of them, and never changes.
  6. A listing during which a removal was told is `disturbed`: it proves no absence, since what the removed segment was
     merged into may be missing in it, and be told of later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from formats.segment import OffsetRange, Segment, SegmentInfo


@dataclass(slots=True)
class SegmentView:
    """Not thread safe."""

    limit: int = 10_000  # entries kept; about 0.5 kB each
    next_offset: int = 0  # everything below is applied
    truncated: bool = False  # the store holds more than is known here
    recorded: Sequence[OffsetRange] = ()  # gaps that the egress wrote down, as of the last listing
    begin: int | None = (
        None  # where the egress wrote down that the archive begins; None: nothing says so, as far as known
    )
    disturbed: bool = False  # so was the last listing
    _known: dict[Segment, SegmentInfo] = field(default_factory=dict)
    _tokens: int = 0
    _listing: int | None = None  # token of the listing under way
    _created: dict[Segment, SegmentInfo] = field(default_factory=dict)  # events since it was begun
    _removed: set[Segment] = field(default_factory=set)

    @property
    def segments(self) -> Iterable[Segment]:
        return self._known.keys()

    @property
    def infos(self) -> Iterable[SegmentInfo]:
        return self._known.values()

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._known

    def __len__(self) -> int:
        return len(self._known)

    def created(self, info: SegmentInfo) -> bool:
        """True when it is news."""
        if self._listing is not None:
            if info.segment in self._removed:
                return (
                    False  # the log tells one key's story in order: created again after a removal is a late duplicate
                )
            self._created[info.segment] = info
        if info.segment.offsets.end < self.next_offset or info.segment in self._known:
            return False
        self._known[info.segment] = info
        self._cap()
        return info.segment in self._known

    def removed(self, segment: Segment) -> bool:
        """True when it was known."""
        if self._listing is not None:
            self._removed.add(segment)
            self._created.pop(segment, None)
        return self._known.pop(segment, None) is not None

    def listing_begun(self) -> int:
        """Call before the store is asked; give the token to `listed`. A listing under way is forgotten."""
        self._tokens += 1
        self._listing = self._tokens
        self._created, self._removed = {}, set()
        return self._tokens

    def listed(
        self,
        token: int,
        infos: Iterable[SegmentInfo],
        recorded: Iterable[OffsetRange] = (),
        *,
        begin: int | None = None,
        complete: bool = True,
        is_cut: bool = False,
    ) -> bool:
        """The listing's answer; False when it is not the one under way. A complete one replaces what was known before
        it was begun; an incomplete one (from the position on, as far as could be seen) only adds. `is_cut`: the store
        has more, further ahead. `recorded` was looked up before the segments: what was stored when a gap was written
        down is then among `infos`."""
        if token != self._listing:
            return False
        self.disturbed = bool(self._removed)
        self.recorded = [r for r in recorded if r.end >= self.next_offset]
        self.begin = begin if begin is not None else self.begin
        found = {i.segment: i for i in infos if i.segment not in self._removed}
        kept = {} if complete else self._known
        merged = {**kept, **found, **self._created}
        self._known = {s: i for s, i in merged.items() if s.offsets.end >= self.next_offset}
        self._listing = None
        self._created, self._removed = {}, set()
        self.truncated = is_cut
        self._cap()
        return True

    def listing_failed(self, token: int) -> None:
        if token == self._listing:
            self._listing = None
            self._created, self._removed = {}, set()

    def applied(self, next_offset: int) -> None:
        """Everything below `next_offset` is in the target."""
        self.next_offset = next_offset
        for segment in [s for s in self._known if s.offsets.end < next_offset]:
            del self._known[segment]

    def _cap(self) -> None:
        # a tenth at a time, so that a long backlog is not sorted anew with every event
        if len(self._known) <= self.limit + self.limit // 10:
            return
        nearest = sorted(self._known, key=lambda s: (s.offsets.start, -s.offsets.end))[: self.limit]
        self._known = {s: self._known[s] for s in nearest}
        self.truncated = True
