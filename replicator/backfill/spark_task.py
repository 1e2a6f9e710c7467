"""Runs a backfill as Spark tasks: one range of one partition each. A task returns only its outcome.

Spark may run a task twice, even at the same time. Both attempts cut the range at the same offsets, so they put the same
keys, and the store takes each once; the later one compares its segment with the stored one. An attempt that begins when
another has stored some segments goes on after them.

A range that fails is an outcome, not an exception: Spark would end the job with it, and the outcomes of the other
ranges would be lost.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from formats.segment import OffsetRange, parse_source
from infra.runtime.lifecycle import Stop
from replicator.backfill.request import RangeOutcome, RangeTask
from replicator.backfill.worker import BackfillWorker, failed
from replicator.config import Config


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """A `SparkTask`. It is pickled together with the configuration, which includes credentials."""

    config: Config

    def row(self, item: RangeTask) -> str:
        return json.dumps(
            asdict(item) | {"source": str(item.source), "offsets": [item.offsets.start, item.offsets.end]}
        )

    def __call__(self, row: str) -> str:
        fields = json.loads(row)
        task = RangeTask(
            **(fields | {"source": parse_source(fields["source"]), "offsets": OffsetRange(*fields["offsets"])})
        )
        with ExitStack() as opened:
            outcome = BackfillWorker.open(self.config, Stop(), opened).attempt(task)
        return json.dumps(asdict(outcome))

    def outcome(self, answer: str) -> RangeOutcome:
        return RangeOutcome(**json.loads(answer))

    def failed(self, item: RangeTask, reason: str) -> RangeOutcome:
        return failed(item, reason)
