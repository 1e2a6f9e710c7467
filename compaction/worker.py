"""Executes one plan, in any process, and returns its outcome. A failed plan does not affect others."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from compaction.delete_merged import Cleaner
from compaction.merge import BadSegment, Merger
from compaction.planner import CleanPlan, CompactionPlan, MergePlan
from compaction.task_rows import PlanOutcome
from formats.errors import CorruptSegment, ReplicatorError, SegmentNotFound
from infra.runtime import log_fields

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    merger: Merger
    cleaner: Cleaner

    def execute(self, plan: CompactionPlan) -> PlanOutcome:
        """May be called twice for one plan, even at the same time: every step is idempotent."""
        began = time.monotonic()
        name = str(plan.output if isinstance(plan, MergePlan) else plan.keeper)
        try:
            outcome = self._merge(plan) if isinstance(plan, MergePlan) else self._clean(plan)
        except BadSegment as error:
            outcome = PlanOutcome(
                segment=name, error=f"{error.segment}: {error}", bad={str(error.segment): error.reason}
            )
        except CorruptSegment as error:
            # a keeper is quarantined; a merge that fails before its put has stored nothing, and fails the run
            bad = {name: error.what} if isinstance(plan, CleanPlan) else {}
            outcome = PlanOutcome(segment=name, error=error.what, bad=bad)
        except SegmentNotFound as error:
            why = f"{error}: merged or removed since it was listed; planned again with the next listing"
            outcome = PlanOutcome(segment=name, error=why)
        except (ReplicatorError, OSError) as error:
            outcome = PlanOutcome(segment=name, error=str(error))
        except Exception as error:
            # probably a bug, but it must not stop the other plans
            log.exception("plan_failed", extra={log_fields.SEGMENT: name})
            outcome = PlanOutcome(segment=name, error=f"unexpected: {error!r}")
        return replace(outcome, seconds=time.monotonic() - began)

    def _merge(self, plan: MergePlan) -> PlanOutcome:
        merged = self.merger.merge(plan)
        return PlanOutcome(
            segment=str(plan.output),
            merged=len(plan.inputs),
            records=merged.footer.count,
            raw_bytes=merged.footer.raw_bytes,
            read_bytes=plan.size_bytes,
            stored_bytes=merged.stored_bytes,
        )

    def _clean(self, plan: CleanPlan) -> PlanOutcome:
        cleaned = self.cleaner.clean(plan)
        return PlanOutcome(
            segment=str(plan.keeper),
            deleted=len(cleaned.deleted),
            deleted_records=cleaned.deleted_records,
            freed_bytes=sum(plan.inside[segment] for segment in cleaned.deleted),
            kept={str(segment): why for segment, why in cleaned.kept.items()},
            bad={str(segment): why for segment, why in cleaned.corrupt.items()},
        )
