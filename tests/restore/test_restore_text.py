"""What `replicator restore` prints, of plans and outcomes as they are."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ingress.restored import Outcome
from replicator.commands.restore_text import print_result
from tests.restore.restoring import Restoring, restorable


def test_one_style_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    world = restorable()
    world.put(0, 9)
    outcome = Outcome(
        source="a/t/0", target="copy/0", records=113_420, size_bytes=2048, next_offset=113_420, is_done=True
    )
    print_result(Restoring(world).plan, [outcome, outcome], (), timedelta(seconds=2))
    assert capsys.readouterr().out.splitlines() == [
        "from   to      records  size     next offset  state",
        *["a/t/0  copy/0  113,420  2.0 KiB       113420  done"] * 2,
        "226,840 records, 4.0 KiB in 2.0 s, 2.0 KiB a second",
    ]
