"""Shows which segments are in quarantine now: after a restart, too, and not once they are repaired between runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction.settings import CompactionJob
from formats.errors import ReplicatorError
from infra.archive.quarantine import QuarantineStore
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedSegments:
    jobs: Sequence[CompactionJob]
    region: str  # of a job that names none
    quarantine: QuarantineStore
    metrics: Metrics
    health: Health

    def show(self) -> None:
        """Set the gauge and the health of each job: one listing for each region while nothing is in quarantine. What
        was shown before stays while the store does not answer."""
        for region in sorted({job.region or self.region for job in self.jobs}):
            try:
                found = {str(segment): one.reason for segment, one in self.quarantine.all(region).items()}
            except ReplicatorError as error:
                log.warning("quarantine_not_read", extra={log_fields.REGION: region, log_fields.ERROR: str(error)})
                continue
            for job in self.jobs:
                if (job.region or self.region) == region:
                    self.metrics.gauge("quarantined_segments", len(found), compaction_job=job.name)
                    self.health.stopped(quarantine_subject(job), quarantine_reason(found))


def quarantine_subject(job: CompactionJob) -> str:
    """In health."""
    return f"quarantine of compaction job {job.name}"


def quarantine_reason(quarantined: Mapping[str, str]) -> str:
    """`quarantined`: by segment, why. Empty when there is none."""
    if not quarantined:
        return ""
    return f"{len(quarantined)} segments are not what they say, first {next(iter(quarantined.items()))}"
