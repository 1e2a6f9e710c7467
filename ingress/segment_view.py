"""The known stored segments of one source partition, from events and listings that arrive in any order.

Rules
  1. Events arrive in the order of the event log. A removal beats the creation of that key, also one in a listing that
     was under way when the removal came.
  2. A listing shows the store at some moment after the listing began, so it beats every event that arrived before.
  3. An entry leaves when it was applied (or removed), never by age.
  4. Read-ahead is capped: the entries furthest ahead are dropped first, and `truncated` means "list again".
  5. Recorded gaps come with listings, and each listing replaces those of the one before. The begin of the archive comes
     with one listing, and never changes.
  6. A listing during which a removal event arrived is `disturbed`: it proves no absence, since the segment that the
     removed one was merged into may be missing in it, and its event may arrive later.
  7. The view is `doubtful` from the removal of a segment that was not applied to the next listing that is not
     disturbed: what it was merged into may not be known.
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
    recorded: Sequence[OffsetRange] = ()  # gaps that egress recorded, as of the last listing
    begin: int | None = None  # recorded begin of the archive; None: none is known
    disturbed: bool = False  # whether the last listing was
    was_listed: bool = False  # at least once; until then it has only what events brought
    _known: dict[Segment, SegmentInfo] = field(default_factory=dict)
    _removed_until: int = 0  # next offset of the removed segments that no listing has followed yet
    _tokens: int = 0
    _listing: int | None = None  # token of the listing in flight
    _created: dict[Segment, SegmentInfo] = field(default_factory=dict)  # events since it began
    _removed: set[Segment] = field(default_factory=set)

    @property
    def segments(self) -> Iterable[Segment]:
        return self._known.keys()

    @property
    def infos(self) -> Iterable[SegmentInfo]:
        return self._known.values()

    @property
    def doubtful(self) -> bool:
        """Whether more may be stored from the position on than is known, by rule 7."""
        return self._removed_until > self.next_offset

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._known

    def __len__(self) -> int:
        return len(self._known)

    def created(self, info: SegmentInfo) -> bool:
        """True when the segment was not known."""
        if self._listing is not None:
            if info.segment in self._removed:
                # the log keeps the order of one key's events: a creation after a removal is a late duplicate
                return False
            self._created[info.segment] = info
        if info.segment.offsets.end < self.next_offset or info.segment in self._known:
            return False
        self._known[info.segment] = info
        self._cap()
        return info.segment in self._known

    def removed(self, segment: Segment) -> bool:
        """True when the segment was known."""
        if self._listing is not None:
            self._removed.add(segment)
            self._created.pop(segment, None)
        if self._known.pop(segment, None) is None:
            return False
        self._removed_until = max(self._removed_until, segment.offsets.next_offset)
        return True

    def listing_begun(self) -> int:
        """Call before the store is listed; pass the token to `listed`. The answer of a listing in flight is dropped."""
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
        """The listing's answer; False when it is not the one in flight. A complete listing replaces the entries known
        before it began; an incomplete one (from the position on, as far as it got) only adds. `is_cut`: the store has
        more segments further ahead. `recorded` was read before the segments, so that segments stored when a gap was
        recorded are among `infos`."""
        if token != self._listing:
            return False
        self.was_listed, self.disturbed = True, bool(self._removed)
        self.recorded = [r for r in recorded if r.end >= self.next_offset]
        self.begin = begin if begin is not None else self.begin
        listed = {i.segment: i for i in infos}
        found = {segment: info for segment, info in listed.items() if segment not in self._removed}
        if self.disturbed:
            gone = (segment.offsets.next_offset for segment in listed.keys() - found.keys())
            self._removed_until = max(self._removed_until, *gone, 0)
        else:
            self._removed_until = 0
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
        # a tenth at a time, so that a long backlog is not sorted again with every event
        if len(self._known) <= self.limit + self.limit // 10:
            return
        nearest = sorted(self._known, key=lambda s: (s.offsets.start, -s.offsets.end))[: self.limit]
        self._known = {s: self._known[s] for s in nearest}
        self.truncated = True
