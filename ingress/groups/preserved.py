"""Offsets of a partition that keeps those of the source: they translate to themselves, in both directions.

1. What is applied here has its own offset, so no map is needed. The limit is what the checkpoint says: beyond a
   difference, where preserving has broken off, nothing is applied.
2. `TRIMMED`: below the log start here, where records were. Where delivery began no lower, none ever was: those are
   offsets that the source had deleted itself, and the log start is exact. `CLAMPED`: beyond what is applied, or beyond
   the log's end.
3. Towards the source an offset below the log start here stays what it is: the source may have its records still.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingress.groups.translation import DeliveredRange, Exactness, Translation, check_offset


@dataclass(frozen=True, slots=True)
class PreservedOffsets:
    """Has the methods of PartitionMap."""

    delivered: DeliveredRange

    def target_of(self, source: int) -> Translation:
        return self._same(source)

    def targets_of(self, sources: Iterable[int]) -> Sequence[Translation]:
        return [self._same(one) for one in sources]

    def source_of(self, target: int) -> Translation:
        found = self._same(target)
        return Translation(target, Exactness.EXACT) if found.exactness is Exactness.TRIMMED else found

    def _same(self, offset: int) -> Translation:
        check_offset(offset)
        here = self.delivered
        end = max(min(here.log_end, here.applied), here.log_start)
        if offset < here.log_start:
            never_delivered = here.begun_at is not None and here.begun_at >= here.log_start
            return Translation(here.log_start, Exactness.EXACT if never_delivered else Exactness.TRIMMED)
        return Translation(offset, Exactness.EXACT) if offset <= end else Translation(end, Exactness.CLAMPED)
