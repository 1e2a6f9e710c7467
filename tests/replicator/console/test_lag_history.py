from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from formats.segment import SourcePartition
from replicator.console.history import LagHistory, LagKey, sums, whole
from replicator.console.state import FlowKind

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ONE: LagKey = (FlowKind.EGRESS, SourcePartition("us", "t", 0), "")
TWO: LagKey = (FlowKind.EGRESS, SourcePartition("us", "t", 1), "")
OTHER: LagKey = (FlowKind.INGRESS, SourcePartition("eu", "t", 0), "t")


def minute(n: int) -> datetime:
    return NOW + timedelta(minutes=n)


def test_partitions_are_summed_and_unknown_lags_are_none() -> None:
    history = LagHistory()
    history.add(minute(0), {ONE: 5, TWO: None, OTHER: 100})
    history.add(minute(1), {ONE: None, TWO: None, OTHER: 101})
    history.add(minute(2), {ONE: 0, TWO: 7, OTHER: 102})
    assert [lag for _, lag in history.read([ONE, TWO])] == [5, None, 7]
    assert [lag for _, lag in history.read([whole(FlowKind.EGRESS)])] == [5, None, 7]
    assert history.read([OTHER]) == [(minute(n), 100 + n) for n in range(3)]
    assert sums({OTHER: None}) == {whole(FlowKind.INGRESS): None}


def test_a_partition_that_appears_later_was_not_known_before() -> None:
    history = LagHistory()
    history.add(minute(0), {ONE: 1})
    history.add(minute(1), {ONE: 2, TWO: 3})
    assert [lag for _, lag in history.read([TWO])] == [None, 3]
    history.add(minute(2), {ONE: 2})
    assert [lag for _, lag in history.read([TWO])] == [None, None, None]


def test_time_goes_forward_only() -> None:
    history = LagHistory()
    history.add(minute(1), {ONE: 1})
    history.add(minute(1), {ONE: 2})
    history.add(minute(0), {ONE: 3})
    assert history.read([ONE]) == [(minute(1), 1)]


@given(count=st.integers(1, 400), most=st.integers(4, 40))
def test_memory_is_bounded_and_the_newest_half_is_whole(count: int, most: int) -> None:
    history = LagHistory(most=most)
    for n in range(count):
        history.add(minute(n), {ONE: n})
    found = history.read([ONE])
    assert len(found) <= most
    assert [minute(lag or 0) for _, lag in found] == [at for at, _ in found]  # each with its own value
    assert found[0] == (minute(0), 0)
    newest = [lag for _, lag in found[-min(most // 4, count) :]]
    assert newest == list(range(count))[-len(newest) :]
    assert [at for at, _ in found] == sorted(at for at, _ in found)
