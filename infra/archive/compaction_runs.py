"""The last whole run of each compaction job; read by `status`, and by `compact` for its metrics.

    {prefix}/{region}/_control/v1/compaction-runs/{number:020d}

`region` is that of the configuration file given to `compact`, which owns the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from formats.codec import VERSION, dump, load, malformed, parse_time
from formats.control.keys import compaction_runs_prefix
from formats.control.lease import SKEW
from infra.archive.snapshots import Numbered
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedRun:
    """A run over everything that its job selects, which came to its end."""

    began_at: datetime  # UTC, as `ended_at`: by the clock of the process
    ended_at: datetime
    failed_plans: int  # tried again by the next run
    quarantined: int  # segments in quarantine at its end


@dataclass(frozen=True, slots=True)
class CompletedRuns:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str
    region: str

    def record(self, job: str, run: CompletedRun) -> None:
        """The run that began last is kept; but not one that ended after `run`, which has just ended: its clock was
        ahead, and it would hide every later run until then."""

        def change(before: bytes | None) -> bytes:
            known = {} if before is None else dict(decode(before))
            last = known.get(job, run)
            is_later = last.began_at > run.began_at and last.ended_at <= run.ended_at + SKEW
            return encode({**known, job: last if is_later else run})

        with durable(Step.RECORD_RUN):
            self._numbered.replace(change)

    def all(self) -> Mapping[str, CompletedRun]:
        """By job. A job of which no whole run is recorded is left out."""
        return self._numbered.decoded(decode) or {}

    @property
    def _numbered(self) -> Numbered:
        return Numbered(self.objects, compaction_runs_prefix(self.prefix, self.region))


def encode(runs: Mapping[str, CompletedRun]) -> bytes:
    jobs = {
        job: {
            "began_at": run.began_at.isoformat(),
            "ended_at": run.ended_at.isoformat(),
            "failed_plans": run.failed_plans,
            "quarantined": run.quarantined,
        }
        for job, run in runs.items()
    }
    return dump({"jobs": jobs, "v": VERSION})


def decode(data: bytes) -> Mapping[str, CompletedRun]:
    """Raises MalformedEvent, also for a newer version."""
    with malformed("runs of compaction jobs", data):
        return {str(job): _decoded(one) for job, one in load(data)["jobs"].items()}


def _decoded(one: Mapping[str, Any]) -> CompletedRun:
    return CompletedRun(
        began_at=parse_time(one["began_at"]),
        ended_at=parse_time(one["ended_at"]),
        failed_plans=int(one["failed_plans"]),
        quarantined=int(one["quarantined"]),
    )
