"""How fast runs may leave, by a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from formats.records.transform import NO_TRANSFORM, Transform
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.run_reader import SegmentRun
from infra.runtime.lifecycle import Stop
from replicator.restore.throttle import BURST_SECONDS, Throttle, ThrottledReader
from tests.formats.sample_records import batch_of

RATE = 1000  # bytes a second
PIECE = SegmentSlice.rest(Segment(SourcePartition("a", "t", 0), 0, OffsetRange(0, 9)), 0)


class HandTime(Stop):
    """Waiting makes the time pass; so does the test."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.waited = 0.0

    def monotonic(self) -> float:
        return self.at

    def wait(self, timeout: timedelta) -> bool:
        if not self.is_set():
            self.at += timeout.total_seconds()
            self.waited += timeout.total_seconds()
        return self.is_set()


def throttle(time: HandTime) -> Throttle:
    return Throttle(RATE, time, time.monotonic)


def test_paying_takes_the_time_of_its_bytes() -> None:
    time = HandTime()
    paying = throttle(time)
    for n in range(1, 11):
        paying.pay(500)
        assert abs(time.at - n * 0.5) < 1e-3


def test_time_spent_elsewhere_is_not_waited_for_again() -> None:
    time = HandTime()
    paying = throttle(time)
    for n in range(1, 11):
        time.at += 0.3
        paying.pay(500)
        assert abs(time.at - n * 0.5) < 1e-3


def test_unused_rate_is_saved_for_the_burst_only() -> None:
    time = HandTime()
    paying = throttle(time)
    time.at += 3600
    paying.pay(RATE)  # what a second allows: nothing went in the last one
    assert time.waited == 0
    paying.pay(RATE)
    assert abs(time.waited - 1) < 1e-3


@settings(deadline=None)
@given(turns=st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 10)), max_size=30))
def test_the_rate_is_kept_between_any_two_moments_and_not_kept_below(turns: list[tuple[int, float]]) -> None:
    time = HandTime()
    paying = throttle(time)
    left: list[tuple[float, int]] = []  # when how much left
    for size_bytes, pause in turns:
        time.at += pause
        before, asked_at = time.waited, time.at
        paying.pay(size_bytes)
        left.append((time.at, size_bytes))
        if time.waited > before:  # no longer than what left since the last pause, and the burst before it, take
            assert time.at <= asked_at + sum(s for _, s in left) / RATE + 1e-3
    for first in range(len(left)):
        since = left[first][0]
        for last in range(first + 1, len(left)):
            sent = sum(size for _, size in left[first + 1 : last + 1])  # after the first had left
            assert sent <= RATE * (left[last][0] - since + BURST_SECONDS) + 1


def test_stop_ends_every_wait() -> None:
    stop = Stop()
    stop.set()
    Throttle(1, stop).pay(10**12)  # a test that waits for this fails by its time limit


def run_of(number: int) -> SegmentRun:
    """Many small records, whose columns are far larger than the records: a second of the rate."""
    row = {"timestamp": 0, "key": None, "value": bytes(10), "headers": None, "timestamp_type": 0}
    batch = batch_of([{**row, "offset": n} for n in range(RATE // 10)])
    assert batch.nbytes > 2 * RATE
    return SegmentRun((batch,), batch.num_rows, batch.nbytes, number, number == 2)


class Runs:
    """A reader of three runs."""

    def runs(
        self,
        slices: Sequence[SegmentSlice],
        *,
        max_records: int | None = None,
        transform: Transform = NO_TRANSFORM,
        lineage_header: str = "",
    ) -> Generator[SegmentRun, None, None]:
        yield from (run_of(n) for n in range(max_records or 3))


def test_a_throttled_reader_gives_the_same_runs_later() -> None:
    time = HandTime()
    reader = ThrottledReader(Runs(), throttle(time))
    found = [(run, round(time.at, 3)) for run in reader.runs([PIECE], max_records=3)]
    assert [at for _, at in found] == [1, 2, 3]
    assert [run for run, _ in found] == list(Runs().runs([PIECE], max_records=3))
