from __future__ import annotations

import pytest

from ingress.restore_plan import RestorePlan
from replicator.commands import restore_progress
from replicator.commands.restore_progress import Standing, progress
from tests.restore.restoring import Restoring, restorable


def running() -> tuple[Restoring, RestorePlan]:
    world = restorable()
    world.put(0, 39)
    world.put(0, 39, partition=1)
    restoring = Restoring(world, records=10)
    return restoring, restoring.plan


def test_where_it_stands() -> None:
    restoring, plan = running()
    sizes = {partition.key: 100 for partition in plan.partitions}
    seen: list[str] = []
    standing = Standing(sizes, False, lambda now: seen.append(now.text()))
    standing.told(list(restoring.partitions.values()))
    restoring.turn(3)
    standing.told(list(restoring.partitions.values()))
    restoring.finish()
    standing.told(list(restoring.partitions.values()))
    assert seen[0] == "0 records, 0 B restored, 0 %, 0 of 2 partitions are over"
    assert seen[1].startswith("40 records, ")
    assert seen[1].endswith("50 %, 0 of 2 partitions are over")
    assert seen[2].startswith("80 records, ")
    assert seen[2].endswith("100 %, 2 of 2 partitions are over")
    assert standing.standing().endswith("; the same command goes on where this one stands")


def test_on_spark_only_whole_partitions_are_known() -> None:
    _, plan = running()
    sizes = {partition.key: 100 for partition in plan.partitions}
    standing = Standing(sizes, False, lambda _: None)
    standing.told_on_spark(1, 2)
    assert standing.text() == "1 of 2 partitions are over"


@pytest.mark.parametrize("follow", [False, True])
def test_lines_where_no_terminal_is(
    follow: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_progress, "LINE_EVERY", 0)
    restoring, plan = running()
    with progress(plan, follow=follow, quiet=False) as shown:
        for _ in range(3):
            shown.told(list(restoring.partitions.values()))
        restoring.turn(3)
        shown.told(list(restoring.partitions.values()))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2, "one for each piece of news"
    assert lines[1].startswith("40 records")
    assert ("following 2 partitions" in lines[1]) == follow
    with progress(plan, follow=follow, quiet=True) as shown:
        shown.told(list(restoring.partitions.values()))
    assert capsys.readouterr().err == ""
