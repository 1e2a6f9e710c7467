"""Offsets of a partition whose log has forked, delivered to one topic from the path before the fork and the one after.

    source    0 ───────────────── 500 ─── 520                old path; from 500 on the log has other records by now
                                  500 ─────────────── 900    new path
    target    0 ───────────────────────── 520 ─────── 920

1. An offset below the begin of the new path is translated by the old path: its records are there, and nowhere else.
2. Where the old path has records from that begin on, those follow, too, and are no longer in the log: `REPEATED`.
3. Towards the source nothing is beyond the begin of the new path before a record of the new path is reached.

A partition that did not fork has a new path as well, which begins where the old one ends. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ingress.groups.translation import Exactness, PartitionMap, Translation


class OffsetTranslation(Protocol):
    """Of one delivery, as PartitionMap has it."""

    def target_of(self, source: int) -> Translation: ...

    def targets_of(self, sources: Iterable[int]) -> Sequence[Translation]: ...

    def source_of(self, target: int) -> Translation: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedMap:
    """Has the methods of PartitionMap."""

    before: OffsetTranslation  # of the old path, which may begin after a fork, too
    after: PartitionMap
    begin: int  # source offset at which the new path begins
    first_target: int | None  # of the records of the new path; None: none is here yet
    has_contested: bool  # the old path has records here from `begin` on

    def is_after(self, source: int) -> bool:
        """Whether the offset is one of the new path: until that has a record here, all that it has comes later."""
        return self.first_target is not None and source >= self.begin

    def target_of(self, source: int) -> Translation:
        return self.targets_of((source,))[0]

    def targets_of(self, sources: Iterable[int]) -> Sequence[Translation]:
        asked = list(sources)
        after = iter(self.after.targets_of([one for one in asked if self.is_after(one)]))
        before = iter(self.before.targets_of([one for one in asked if not self.is_after(one)]))
        return [next(after) if self.is_after(one) else self._of_old_path(next(before)) for one in asked]

    def source_of(self, target: int) -> Translation:
        if self.first_target is not None and target >= self.first_target:
            return self.after.source_of(target)
        found = self.before.source_of(target)
        if found.offset is None or found.offset <= self.begin:
            return found
        return Translation(self.begin, found.exactness)

    def _of_old_path(self, found: Translation) -> Translation:
        if self.first_target is None:
            return found
        if found.exactness is Exactness.CLAMPED:  # no record lies between its end and the new path's begin
            return self.after.target_of(self.begin)
        if found.exactness is Exactness.EXACT and self.has_contested:
            return Translation(found.offset, Exactness.REPEATED)
        return found
