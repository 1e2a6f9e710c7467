"""Carries out one plan, wherever it runs, and says what came of it. A plan that fails harms no other."""

from __future__ import annotations

import time
from dataclasses import dataclass

from compaction.clean import Cleaner
from compaction.merge import BadSegment, Merger
from compaction.planner import CleanPlan, MergePlan, Plan
from compaction.rows import Outcome
from replicator.errors import CorruptSegment, DataError, SegmentNotFound, StoreUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    merger: Merger
    cleaner: Cleaner

    def carry_out(self, plan: Plan) -> Outcome:
        """May be called twice for one plan, also at the same time: every step of it can be repeated."""
        began = time.monotonic()
        match plan:
            case MergePlan():
                return self._merge(plan, began)
            case CleanPlan():
                return self._clean(plan, began)

    def _merge(self, plan: MergePlan, began: float) -> Outcome:
        name = str(plan.output)
        try:
            merged = self.merger.merge(plan)
        except BadSegment as error:
            bad = {str(error.segment): error.reason}
            return Outcome(segment=name, error=error.reason, bad=bad, seconds=time.monotonic() - began)
        except SegmentNotFound as error:
            why = f"{error}: merged or removed since it was listed; planned again with the next listing"
            return Outcome(segment=name, error=why, seconds=time.monotonic() - began)
        except (DataError, StoreUnavailable, OSError) as error:
            return Outcome(segment=name, error=str(error), seconds=time.monotonic() - began)
        return Outcome(
            segment=name,
            merged=len(plan.inputs),
            records=merged.footer.count,
            raw_bytes=merged.footer.raw_bytes,
            read_bytes=plan.size_bytes,
            stored_bytes=merged.stored_bytes,
            seconds=time.monotonic() - began,
        )

    def _clean(self, plan: CleanPlan, began: float) -> Outcome:
        name = str(plan.keeper)
        try:
            cleaned = self.cleaner.clean(plan)
        except CorruptSegment as error:
            bad = {name: str(error)}
            return Outcome(segment=name, error=str(error), bad=bad, seconds=time.monotonic() - began)
        except (DataError, StoreUnavailable) as error:
            return Outcome(segment=name, error=str(error), seconds=time.monotonic() - began)
        return Outcome(
            segment=name,
            deleted=len(cleaned.deleted),
            freed_bytes=sum(plan.inside[segment] for segment in cleaned.deleted),
            kept={str(segment): why for segment, why in cleaned.kept.items()},
            bad={str(segment): why for segment, why in cleaned.corrupt.items()},
            seconds=time.monotonic() - began,
        )
