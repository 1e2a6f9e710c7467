"""What is wrong with the archive of one partition, by its log, its commit and what is stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from formats.coverage import joined
from formats.segment import OffsetRange, SourcePartition
from infra.archive.proofs import Proof
from infra.contracts.cluster import Committed, LogEnds
from replicator.status.egress_partition import NO_END, EgressPartitionStatus, partition_status, settled_below

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)


def judge(
    committed: int | None,
    *,
    low: int = 0,
    stable: int = 100,
    high: int = 100,
    archived: list[OffsetRange] | None = None,
    gaps: list[OffsetRange] | None = None,
    note: str = "start=0 partitions=1",
    open_for: timedelta | None = None,
    settled: int | None = None,
    proof: Proof | None = None,
) -> EgressPartitionStatus:
    return partition_status(
        SOURCE,
        ends=LogEnds(low=low, stable=stable, high=high),
        committed=None if committed is None else Committed(committed, note),
        archived=joined([OffsetRange(0, 49)] if archived is None else archived),
        gaps=gaps or [],
        open_since=None if open_for is None else NOW - open_for,
        now=NOW,
        stuck_after=timedelta(minutes=15),
        settled=settled,
        proof=proof,
    )


HOLED = [OffsetRange(0, 9), OffsetRange(20, 49)]
NOT_WHOLE = Proof(at=NOW, next_offset=50, is_whole=False)


class TestJudged:
    def test_healthy(self) -> None:
        found = judge(50)
        assert (found.problems, found.lag, found.archive_end, found.is_open) == ((), 50, 50, False)

    def test_nothing_committed_is_no_problem(self) -> None:
        assert (judge(None, archived=[]).problems, judge(None, archived=[], low=20).lag) == ((), 80)

    @pytest.mark.parametrize(
        ("found", "wanted"),
        [
            (judge(101), "ends at 100"),
            (judge(50, archived=[OffsetRange(0, 100)]), "but the topic at 100"),
            (judge(60), "ends before 50"),
            (judge(60, archived=[]), "holds nothing"),
            (judge(60, low=60, archived=[]), "holds nothing"),  # Kafka has removed it, too
            (judge(50, low=55), "now begins at 55"),
            (judge(50, low=70, archived=[OffsetRange(0, 49), OffsetRange(60, 79)]), "now begins at 70"),
            (judge(50, stable=70, open_for=timedelta(hours=1)), "holds everything from 70 back"),
            (judge(50, archived=HOLED, settled=50), "offsets [10,19] of the archive are in no segment"),
            (judge(50, proof=NOT_WHOLE), "verify found it not whole at 2026-05-01T12:00:00+00:00"),
        ],
    )
    def test_problems_that_stop_the_archive(self, found: EgressPartitionStatus, wanted: str) -> None:
        (problem,) = found.problems
        assert wanted in problem

    @pytest.mark.parametrize(
        "found",
        [
            judge(50, low=55, gaps=[OffsetRange(50, 54)]),  # written down
            judge(50, low=55, archived=[OffsetRange(0, 59)]),  # stored, and committed soon
            judge(60, archived=[], note="start=60 partitions=1"),  # nothing to be archived yet
            judge(0, archived=[], note=""),  # committed by an operator
            judge(50, stable=70, open_for=timedelta(minutes=1)),
            judge(50, stable=70),  # its record could not be read
            judge(50, archived=HOLED, gaps=[OffsetRange(10, 19)], settled=50),  # written down
            judge(50, proof=replace(NOT_WHOLE, is_whole=True)),
        ],
    )
    def test_states_that_are_no_problem(self, found: EgressPartitionStatus) -> None:
        assert found.problems == ()


@pytest.mark.parametrize(
    ("settled", "found"),
    [
        (None, []),  # possibly being uploaded
        (10, []),
        (15, [OffsetRange(10, 14)]),
        (20, [OffsetRange(10, 19)]),
        (NO_END, [OffsetRange(10, 19)]),
    ],
)
def test_segments_above_the_commit_come_in_any_order(settled: int | None, found: list[OffsetRange]) -> None:
    problems = [p for p in judge(None, archived=HOLED, settled=settled).problems if "no segment" in p]
    assert [p.partition(" of the archive")[0] for p in problems] == [f"offsets {hole}" for hole in found]


def test_the_settled_offset() -> None:
    assert settled_below(Committed(7, "start=0 partitions=1"), is_worked_on=True) == 7
    assert settled_below(None, is_worked_on=True) is None
    assert settled_below(None, is_worked_on=False) == NO_END
