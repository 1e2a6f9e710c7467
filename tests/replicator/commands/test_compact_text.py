"""The output of `replicator compact` for given outcomes."""

from __future__ import annotations

import pytest

from compaction.run import CompactionReport
from compaction.task_rows import PlanOutcome
from replicator.commands.compact import print_report
from tests.formats.sample_records import segment


def printed(capsys: pytest.CaptureFixture[str], *outcomes: PlanOutcome) -> list[str]:
    print_report(CompactionReport("nightly", outcomes=list(outcomes)), dry_run=False)
    return [line.strip() for line in capsys.readouterr().out.splitlines()[1:]]


def test_where_every_plan_failed_there_was_something_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    failed = PlanOutcome(segment=str(segment(0, 9, level=1)), error="the bucket answers 500")
    assert printed(capsys, failed) == [f"not done: {failed.segment}: the bucket answers 500"]
    assert printed(capsys) == ["nothing to do"]
