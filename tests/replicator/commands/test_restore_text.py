"""The output of `replicator restore` for given plans and outcomes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.control.gap import RecordedGap
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from replicator.commands.restore_output import print_plan, print_result
from replicator.restore.progress import RestoreOutcome
from tests.ingress.world import REGION
from tests.replicator.restore.restoring import Restoring, restorable


def test_one_style_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    world = restorable()
    world.put(0, 9)
    outcome = RestoreOutcome(
        source="a/t/0", target="copy/0", records=113_420, size_bytes=2048, next_offset=113_420, is_done=True
    )
    print_result(Restoring(world).plan, [outcome, outcome], (), timedelta(seconds=2))
    assert capsys.readouterr().out.splitlines() == [
        "from   to      records  size     next offset  state",
        *["a/t/0  copy/0  113,420  2.0 KiB       113420  done"] * 2,
        "226,840 records, 4.0 KiB in 2.0 s, 2.0 KiB a second",
    ]


def test_missing_is_counted_in_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    world = restorable()
    for start, end in ((0, 9), (2000, 2009), (3108, 3117)):
        world.put(start, end)
    for offsets in (OffsetRange(10, 19), OffsetRange(15, 1999)):  # retention joins them while it is planned
        gap = RecordedGap(
            source=SourcePartition(REGION, "t", 0),
            offsets=offsets,
            reason="retention",
            low=0,
            high=0,
            recorded_at=world.clock.now(),
        )
        ControlStore(world.objects, "data").record_gap(gap)
    print_plan(Restoring(world).plan, None)
    head, row = capsys.readouterr().out.splitlines()[1:3]
    assert head.endswith("  in recorded gaps  missing")
    assert row.split()[-2:] == ["1,990", "1,098"]
