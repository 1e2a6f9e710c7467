"""Delivery that keeps the source's offsets, on a client in memory: thousands of interruptions at any place, and others
that write. What a real broker does is in test_preserving.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import RecordBatch

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import POSITION, Author, Checkpoint, Filled, Skipped, decode, kind_of
from formats.messages.offset_map import decode_page
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.kafka.client import idempotent_producer
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.producer import hole_filler, preserved_log, transactional_producer
from infra.kafka.producer.departure_log import DepartureLog
from infra.kafka.producer.hole_filler import HoleFiller, NotAsExpected
from infra.kafka.producer.preserved_log import TargetLogs
from infra.kafka.producer.preserving import PreserveLimits, PreservingWriter
from infra.runtime.crash_points import Step, observe
from tests.contracts.target import AT, never, row, run_to
from tests.fakes.kafka_client import Entry, MemoryCluster, ProcessEnds
from tests.formats.sample_records import batch_of

HERE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
CHECKPOINTS, MAP = TopicPartition("checkpoints", 0), TopicPartition("map", 0)
MIB = 1 << 20
RETRIED = {"TAKEN_OVER", "UNFINISHED", "MOVED"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with on_memory() as made:
        yield made


class on_memory:  # noqa: N801 -- a context manager
    """A cluster that the producers of this process are connected to."""

    def __enter__(self) -> MemoryCluster:
        self._patch = pytest.MonkeyPatch()
        made = MemoryCluster()

        def there(
            _: object, partition: TopicPartition, start: int, next_offset: int, **__: object
        ) -> Iterator[RecordBatch]:
            found = {at: one for at, one in made.log(partition).visible.items() if start <= at < next_offset}
            if found:
                yield batch_of([row(at, one.value, key=one.key) for at, one in found.items()])

        self._patch.setattr(idempotent_producer, "open_producer", lambda given, _: (made.producer(given), None))
        self._patch.setattr(preserved_log, "read_partition", there)
        self._patch.setattr(hole_filler, "MARKED_WITHIN", timedelta(milliseconds=2))
        self._patch.setattr(hole_filler, "REGISTERED_AFTER", timedelta(microseconds=200))
        return made

    def __exit__(self, *_: object) -> None:
        observe(None)
        self._patch.undo()


def logs(cluster: MemoryCluster) -> TargetLogs:
    return TargetLogs(cast("KafkaAdmin", cluster), {})


def writer_of(
    cluster: MemoryCluster,
    *,
    owns: Callable[[], bool] = lambda: True,
    wait: timedelta = timedelta(),
    hole_limit: int = 10**6,
    monotonic: Callable[[], float] | None = None,
    handover: DepartureLog | None = None,
) -> PreservingWriter:
    target = logs(cluster)
    if monotonic is not None:
        target.monotonic = monotonic
    return PreservingWriter(
        {},
        transactional_id="ids",
        logs=target,
        owns=owns,
        limits=PreserveLimits(
            transaction_timeout=timedelta(seconds=10),
            take_over_wait=wait,
            expires_after=timedelta(seconds=10),
            hole_limit=hole_limit,
            holes_per_second=10**6,
        ),
        checkpoint_topic=CHECKPOINTS.topic,
        offset_map_topic=MAP.topic,
        memory_bytes=MIB,
        handover=handover,
    )


class NothingLeft:
    """In place of a checkpoint store: no earlier owner has left anything."""

    def read(self) -> Mapping[object, object]:
        return {}

    def left_at(self, transactional_id: str) -> int | None:
        return None


def run_here(offsets: Sequence[int], *, position: int, next_offset: int, partition: TopicPartition = HERE) -> TargetRun:
    return run_to(partition, offsets, position=position, next_offset=next_offset)


def deliver(writer: PreservingWriter, *runs: TargetRun) -> Sequence[RunFailed]:
    for _ in range(1000):
        failures = writer.deliver(runs, should_stop=never)
        if not {failure.code for failure in failures} & RETRIED:
            return failures
    raise AssertionError(failures)


def found(cluster: MemoryCluster, partition: TopicPartition = HERE) -> Mapping[int, bytes | None]:
    return {at: one.value for at, one in cluster.log(partition).visible.items()}


def positions(cluster: MemoryCluster) -> list[int]:
    return [
        decode(one.value or b"").next_offset
        for one in cluster.log(CHECKPOINTS).visible.values()
        if kind_of(one.key or b"") == POSITION
    ]


def mapped(cluster: MemoryCluster) -> list[int]:
    """Offsets in the map, which are the same on both sides."""
    pages = {one.key: one.value for one in cluster.log(MAP).visible.values()}
    rows = {
        (source + n, target + n)
        for key, value in pages.items()
        for source, target, count in decode_page(key or b"", value or b"").runs.rows()
        for n in range(count)
    }
    assert all(source == target for source, target in rows)
    return sorted(source for source, _ in rows)


def values(offsets: Sequence[int]) -> Mapping[int, bytes]:
    return {offset: b"%d" % offset for offset in offsets}


@dataclass
class Interruptions:
    """At the nth durable step from the begin of each process: it ends, or something is done."""

    ends_at: Sequence[int] = ()  # of one process after the other
    acts: Mapping[int, Callable[[], None]] = field(default_factory=dict)  # by the number of the step, over all
    steps: int = 0
    _in_process: int = 0
    _processes: int = 0

    def __call__(self, step: Step, moment: str) -> None:
        if (act := self.acts.get(self.steps)) is not None:
            act()
        self.steps += 1
        self._in_process += 1
        if self._processes < len(self.ends_at) and self._in_process > self.ends_at[self._processes]:
            self._in_process, self._processes = 0, self._processes + 1
            raise ProcessEnds(f"{moment} {step}")


def delivered(
    cluster: MemoryCluster, runs: Sequence[TargetRun], interruptions: Interruptions, dies_after: Sequence[int] = ()
) -> Sequence[RunFailed]:
    """By one process after the other, until one comes to the end."""
    observe(interruptions)
    deaths = iter(dies_after)
    while True:
        cluster.dies_after = next(deaths, None)
        try:
            return deliver(writer_of(cluster), *runs)
        except ProcessEnds:
            continue


gaps = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 9]), min_size=1, max_size=12)


def source_of(before: Sequence[int], after: int, cuts: Sequence[float]) -> tuple[list[int], int, list[TargetRun]]:
    """Offsets of the records, the end of the log, and the runs in which they arrive."""
    offsets = list(itertools.accumulate((gap + 1 for gap in before), initial=-1))[1:]
    end = offsets[-1] + 1 + after
    edges = sorted({0, end, *(int(cut * end) for cut in cuts)})
    runs = [
        run_here([one for one in offsets if start <= one < until], position=start, next_offset=until)
        for start, until in itertools.pairwise(edges)
    ]
    return offsets, end, runs


@given(
    before=gaps,
    after=st.sampled_from([0, 0, 1, 4]),
    cuts=st.lists(st.floats(0, 1), max_size=3),
    ends_at=st.lists(st.integers(0, 30), max_size=6),
    dies_after=st.lists(st.integers(0, 12), max_size=3),
    late=st.sampled_from([0, 0, 1, 3]),
    unregistered=st.sampled_from([0, 0, 1, 2]),
)
@example(before=[9, 0], after=1, cuts=[], ends_at=list(range(25)), dies_after=[], late=1, unregistered=0)
@example(before=[1, 1, 3], after=4, cuts=[0.5], ends_at=[], dies_after=list(range(9)), late=0, unregistered=1)
def test_the_same_records_at_the_same_offsets_wherever_processes_end(
    *,
    before: list[int],
    after: int,
    cuts: list[float],
    ends_at: list[int],
    dies_after: list[int],
    late: int,
    unregistered: int,
) -> None:
    offsets, end, runs = source_of(before, after, cuts)
    with on_memory() as cluster:
        cluster.late, cluster.unregistered = late, unregistered
        assert delivered(cluster, runs, Interruptions(ends_at), dies_after) == []
        assert found(cluster) == values(offsets)
        assert (cluster.log(HERE).end, cluster.log(HERE).stable) == (end, end)
        assert positions(cluster)[-1] == end
        assert sorted(positions(cluster)) == positions(cluster)
        assert mapped(cluster) == offsets


@example(before=[0], after=4, cuts=[0.5], ends_at=[], at=3, aborts=True, late=0)  # in the last hole
@given(
    before=gaps,
    after=st.sampled_from([0, 1, 4]),
    cuts=st.lists(st.floats(0, 1), max_size=3),
    ends_at=st.lists(st.integers(0, 30), max_size=3),
    at=st.integers(0, 40),
    aborts=st.booleans(),
    late=st.sampled_from([0, 1]),
)
def test_others_that_write_are_noticed_or_make_no_difference(
    *, before: list[int], after: int, cuts: list[float], ends_at: list[int], at: int, aborts: bool, late: int
) -> None:
    """Up to the first difference everything is as at the source, and no checkpoint is beyond it."""
    offsets, end, runs = source_of(before, after, cuts)
    with on_memory() as cluster:
        cluster.late = late
        write = Interruptions(ends_at, {at: lambda: cluster.write(HERE, b"foreign", aborts=aborts)})
        failures = delivered(cluster, runs, write)
        if not failures:
            there = {at: value for at, value in found(cluster).items() if at < end}
            assert there == values(offsets)
            return
        [failed] = failures
        assert (failed.code, failed.kind) == ("PRESERVE_BROKEN", FailureKind.DENIED)
        broken = int(failed.reason.removeprefix("preserve broken at ").partition(":")[0])
        assert {at: value for at, value in found(cluster).items() if at < broken} == values(
            [one for one in offsets if one < broken]
        )
        assert max(positions(cluster), default=0) <= broken
        assert mapped(cluster) == [one for one in mapped(cluster) if one in offsets and one < broken]
        observe(None)
        before_again = found(cluster)
        # a new owner finds it with the next record at the latest, beyond its runs it has nothing to compare; or what is
        # foreign was aborted in a hole, which is filled behind it
        runs.append(run_here([end], position=end, next_offset=end + 1))
        if again := deliver(writer_of(cluster), *runs):
            assert [one.code for one in again] == ["PRESERVE_BROKEN"]
            assert found(cluster) == before_again, "nothing is sent after it was noticed"
        else:
            assert found(cluster) == values([*offsets, end])


class TestHoleFiller:
    def filler(self, cluster: MemoryCluster, timeout_ms: int = 10_000) -> HoleFiller:
        return HoleFiller(
            {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms},
            transactional_id="ids.orders.0",
            sample=run_here([0], position=0, next_offset=1),
            stable_end=lambda: logs(cluster).stable_end(HERE),
            memory_bytes=MIB,
        )

    @pytest.mark.parametrize("count", [1, 2, 3, 10])
    def test_a_hole_of_any_size_ends_where_it_is_to_end(self, cluster: MemoryCluster, count: int) -> None:
        assert self.filler(cluster).fill(0, count, never, most=1000) == count
        assert (cluster.log(HERE).end, cluster.log(HERE).visible) == (count, {})
        assert cluster.log(HERE).entries[-1].is_record is False
        assert {one.key for one in cluster.log(HERE).entries if one.is_record} <= {b""}

    def test_so_many_offsets_at_once_as_are_asked_for(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("formats.holes.MOST_FILLERS", 3)
        filler = self.filler(cluster)
        assert filler.fill(0, 20, never, most=4) == 4
        assert filler.fill(4, 20, never, most=5) == 12
        assert filler.fill(12, 20, never, most=1) == 16
        assert cluster.log(HERE).end == 16

    def test_a_partition_that_is_not_registered_in_time_is_tried_again(self, cluster: MemoryCluster) -> None:
        cluster.unregistered = 3
        assert self.filler(cluster).fill(0, 1, never, most=1) == 1
        assert (cluster.log(HERE).end, cluster.unregistered) == (1, 0)

    @pytest.mark.parametrize("frozen_ms", [0, 6_000, 9_900, 60_000])
    def test_a_process_that_stands_still_sends_no_record_of_a_marker(
        self, cluster: MemoryCluster, frozen_ms: int
    ) -> None:
        cluster.frozen_ms = frozen_ms
        assert self.filler(cluster).fill(0, 1, never, most=1) == 1
        assert cluster.log(HERE).end == 1

    def test_any_timeout_of_transactions_will_do(self, cluster: MemoryCluster) -> None:
        assert self.filler(cluster, timeout_ms=1_000).fill(0, 4, never, most=1000) == 4

    def test_a_log_that_is_further_is_not_filled(self, cluster: MemoryCluster) -> None:
        with pytest.raises(NotAsExpected, match="it ends at 8, and 7 is expected"):
            self.filler(cluster).fill(8, 7, never, most=1)
        assert cluster.log(HERE).end == 0

    @pytest.mark.parametrize(("hole", "others"), [(9, 1), (9, 3), (4, 2)])
    def test_room_for_others_is_used(self, cluster: MemoryCluster, hole: int, others: int) -> None:
        """The filler knows that they were there."""
        filler = self.filler(cluster)
        for _ in range(others):
            cluster.write(HERE, b"aborted", aborts=False)
        assert filler.fill(0, hole, never, most=1) == others + 2
        assert filler.has_met_others
        if others + 2 < hole:
            assert filler.fill(others + 2, hole, never, most=100) == hole
            assert not filler.has_met_others

    @pytest.mark.parametrize(("hole", "others"), [(9, 9), (9, 8), (2, 1), (1, 1), (3, 2)])
    def test_without_room_it_is_refused(self, cluster: MemoryCluster, hole: int, others: int) -> None:
        for _ in range(others):
            cluster.write(HERE, b"foreign")
        with pytest.raises(NotAsExpected):
            self.filler(cluster).fill(0, hole, never, most=1)

    def test_a_partition_that_is_never_registered_ends_with_the_stop(self, cluster: MemoryCluster) -> None:
        cluster.unregistered = 10**9
        turns = iter([False] * 3)
        with pytest.raises(BrokerUnavailable, match="stopped"):
            self.filler(cluster).fill(0, 1, lambda: next(turns, True), most=1)

    def test_what_is_stopped_is_no_result(self, cluster: MemoryCluster) -> None:
        cluster.late = 10**9
        with pytest.raises(BrokerUnavailable, match="ends at 0"):
            self.filler(cluster).fill(0, 5, lambda: bool(cluster.ending), most=1)


class TestWriter:
    def test_two_partitions_in_one_call(self, cluster: MemoryCluster) -> None:
        first = run_here([0, 1, 4], position=0, next_offset=6)
        second = run_here([0, 3], position=0, next_offset=4, partition=OTHER)
        assert deliver(writer_of(cluster), first, second) == []
        assert found(cluster) == values([0, 1, 4])
        assert found(cluster, OTHER) == values([0, 3])
        assert (cluster.log(HERE).end, cluster.log(OTHER).end) == (6, 4)

    def test_a_broken_one_does_not_hold_up_the_other(self, cluster: MemoryCluster) -> None:
        cluster.write(OTHER, b"foreign")
        runs = run_here([0, 2], position=0, next_offset=3), run_here([0], position=0, next_offset=1, partition=OTHER)
        [failed] = deliver(writer_of(cluster), *runs)
        assert (failed.partition, failed.code) == (OTHER, "PRESERVE_BROKEN")
        assert found(cluster) == values([0, 2])
        assert positions(cluster) == [3]

    def test_what_is_dropped_beside_a_refused_record_is_no_tail_that_was_lost(self, cluster: MemoryCluster) -> None:
        writer = writer_of(cluster)
        first = run_here([0, 1], position=0, next_offset=2, partition=OTHER)
        assert deliver(writer, first) == []
        runs = run_here([0, 1], position=0, next_offset=2), run_here([2], position=2, next_offset=3, partition=OTHER)
        cluster.refuses = {b"1"}
        failures = {failed.partition: failed.kind for failed in writer.deliver(runs, should_stop=never)}
        assert failures == {HERE: FailureKind.RETRY_NOW, OTHER: FailureKind.RETRY_NOW}
        cluster.refuses = set()
        assert deliver(writer, *runs) == []
        assert found(cluster) == values([0, 1])
        assert found(cluster, OTHER) == values([0, 1, 2])

    def test_a_refused_record_is_not_taken_for_one_of_our_own_topic(self, cluster: MemoryCluster) -> None:
        """The next partition is taken in the same call: the note of that is acknowledged beside the record."""
        writer = writer_of(cluster, handover=DepartureLog(cast("KafkaCheckpointStore", NothingLeft())))
        runs = run_here([0, 1], position=0, next_offset=2), run_here([0], position=0, next_offset=1, partition=OTHER)
        cluster.refuses = {b"1"}
        failures = {failed.partition: failed for failed in writer.deliver(runs, should_stop=never)}
        assert failures.keys() == {HERE}
        assert "MSG_SIZE_TOO_LARGE" in failures[HERE].code
        assert found(cluster, OTHER) == values([0])
        assert positions(cluster) == [1]

    def test_a_log_that_may_not_be_read_stops_its_own_partition(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without the right, or with a record of another program that the client cannot decode, it is not compared."""
        cluster.write(OTHER, b"0")

        def refused(*_: object, **__: object) -> Iterator[RecordBatch]:
            raise TargetError("read orders/1 from offset 0: allow READ on the topic")

        monkeypatch.setattr(preserved_log, "read_partition", refused)
        runs = run_here([0, 2], position=0, next_offset=3), run_here([0], position=0, next_offset=1, partition=OTHER)
        [failed] = deliver(writer_of(cluster), *runs)
        assert (failed.partition, failed.kind) == (OTHER, FailureKind.DENIED)
        assert failed.reason == "read orders/1 from offset 0: allow READ on the topic"
        assert found(cluster) == values([0, 2])
        assert positions(cluster) == [3]

    @pytest.mark.parametrize("from_the_begin", [True, False])
    def test_one_without_a_leader_does_not_hold_up_the_other(
        self, cluster: MemoryCluster, *, from_the_begin: bool
    ) -> None:
        writer = writer_of(cluster)
        if not from_the_begin:
            assert deliver(writer, run_here([0], position=0, next_offset=1, partition=OTHER)) == []
        cluster.leaderless = {OTHER}
        runs = run_here([1], position=1, next_offset=2, partition=OTHER), run_here([0, 2], position=0, next_offset=3)
        [failed] = deliver(writer, *runs)
        assert (failed.partition, failed.code, failed.kind) == (OTHER, "STALLED", FailureKind.STALLED)
        assert found(cluster) == values([0, 2])
        cluster.leaderless = set()
        if not from_the_begin:
            assert deliver(writer, runs[0]) == []
            assert found(cluster, OTHER) == values([0, 1])

    def test_one_whose_records_expire_gets_calls_of_its_own(self, cluster: MemoryCluster) -> None:
        """Each of its attempts lasts until they do."""
        cluster.stuck = {OTHER}
        runs = run_here([0, 2], position=0, next_offset=3), run_here([0], position=0, next_offset=1, partition=OTHER)
        [failed] = deliver(writer_of(cluster), *runs)
        assert (failed.partition, failed.code, failed.kind) == (OTHER, "STALLED", FailureKind.STALLED)
        assert "_MSG_TIMED_OUT" in failed.reason
        assert found(cluster) == values([0, 2])

    def test_one_whose_hole_is_not_acknowledged_does_not_hold_up_the_other(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transactional_producer, "STALLED_AFTER", timedelta(milliseconds=20))
        cluster.stuck = {OTHER}
        first = run_here([4], position=0, next_offset=5, partition=OTHER)
        [failed] = deliver(writer_of(cluster), first, run_here([0, 2], position=0, next_offset=3))
        assert (failed.partition, failed.code, failed.kind) == (OTHER, "STALLED", FailureKind.STALLED)
        assert "min.insync.replicas" in failed.reason
        assert found(cluster) == values([0, 2])
        cluster.stuck = set()
        assert deliver(writer_of(cluster), first) == []
        assert found(cluster, OTHER) == values([4])

    @pytest.mark.parametrize("hole", [1, 4])
    def test_one_with_a_hole_that_may_not_be_filled_stops_alone(self, cluster: MemoryCluster, hole: int) -> None:
        cluster.denied = {OTHER}
        first = run_here([hole], position=0, next_offset=hole + 1, partition=OTHER)
        [failed] = deliver(writer_of(cluster), first, run_here([0, 2], position=0, next_offset=3))
        assert (failed.partition, failed.kind) == (OTHER, FailureKind.DENIED)
        assert "TOPIC_AUTHORIZATION_FAILED" in failed.code
        assert "allow WRITE" in failed.reason
        assert found(cluster) == values([0, 2])
        cluster.denied = set()
        assert deliver(writer_of(cluster), first) == []
        assert found(cluster, OTHER) == values([hole])

    def test_a_hole_of_the_limit_is_filled_and_a_larger_one_is_not(self, cluster: MemoryCluster) -> None:
        writer = writer_of(cluster, hole_limit=10)
        assert deliver(writer, run_here([10], position=0, next_offset=11)) == []
        [failed] = deliver(writer, run_here([22], position=11, next_offset=23))
        assert (failed.code, cluster.log(HERE).end) == ("LONG_HOLE", 11)

    def test_below_the_begin_of_the_source_nothing_stays(self, cluster: MemoryCluster) -> None:
        run = run_here([7, 8], position=7, next_offset=9)
        run = replace(run, checkpoint=replace(run.checkpoint, begun_at=7))
        assert deliver(writer_of(cluster), run) == []
        assert (cluster.log(HERE).low, found(cluster)) == (7, values([7, 8]))

    @pytest.mark.parametrize("begun_at", [None, 0, 3])
    def test_records_are_never_removed(self, cluster: MemoryCluster, begun_at: int | None) -> None:
        """The begin may be known only later, and the log may begin there already."""
        cluster.log(HERE).low = 3 if begun_at == 3 else 0
        run = run_here([3, 4], position=3, next_offset=5)
        run = replace(run, checkpoint=replace(run.checkpoint, begun_at=begun_at))
        assert deliver(writer_of(cluster), run) == []
        assert cluster.log(HERE).low == (3 if begun_at == 3 else 0)
        assert found(cluster) == values([3, 4])

    def test_a_tail_that_was_lost_is_noticed_by_a_new_owner_and_by_the_one_that_runs(
        self, cluster: MemoryCluster
    ) -> None:
        writer = writer_of(cluster)
        assert deliver(writer, run_here([0, 1, 2], position=0, next_offset=3)) == []
        del cluster.log(HERE).entries[2:]
        following = replace(run_here([3], position=3, next_offset=4), filled=Filled(3))
        for each in (writer, writer_of(cluster)):
            [failed] = deliver(each, following)
            assert failed.reason.startswith("preserve broken at 2: the target has lost its records up to offset 3")
        assert cluster.log(HERE).end == 2

    def test_a_log_that_map_mode_has_filled_is_refused_though_its_end_is_the_sources(
        self, cluster: MemoryCluster
    ) -> None:
        for value in [*range(10), *range(11, 20)]:  # the source has a marker at 10, and this log one at its end
            cluster.log(HERE).entries.append(Entry(value=b"%d" % value, key=b"k"))
        cluster.log(HERE).entries.append(Entry(is_record=False))
        run = replace(run_here([20, 21], position=20, next_offset=22), filled=Filled(20, is_mapped=True))
        [failed] = deliver(writer_of(cluster), run)
        assert failed.code == "PRESERVE_BROKEN"
        assert failed.reason.startswith(
            "preserve broken at 0: what lies there up to the source's offset 20 was delivered at other offsets"
        )
        assert cluster.log(HERE).end == 20, "nothing follows it"

    def test_nor_is_one_emptied_whose_last_record_an_operator_skipped(self, cluster: MemoryCluster) -> None:
        """Its position is an operator's then, but below it lies what map mode has delivered."""
        for value in range(10, 15):
            cluster.log(HERE).entries.append(Entry(value=b"%d" % value, key=b"k"))
        skip = Checkpoint(16, "id", AT, Author.SEED, given_at=15, begun_at=10)
        run = run_here([16], position=16, next_offset=17)
        run = replace(run, checkpoint=replace(run.checkpoint, begun_at=10), filled=Filled.by(skip))
        [failed] = deliver(writer_of(cluster), run)
        assert failed.code == "PRESERVE_BROKEN"
        assert list(found(cluster).values()) == [b"%d" % value for value in range(10, 15)]

    def test_an_owner_waits_until_the_end_stands_still(self, cluster: MemoryCluster) -> None:
        now = 100.0
        writer = writer_of(cluster, wait=timedelta(seconds=10), monotonic=lambda: now)
        run = run_here([0], position=0, next_offset=1)

        def codes() -> list[str]:
            return [failure.code for failure in writer.deliver([run], should_stop=never)]

        assert codes() == ["TAKEN_OVER"]
        now = 109.0
        assert codes() == ["TAKEN_OVER"]
        cluster.write(HERE, b"0")  # of an earlier owner, and the same record
        now = 110.0
        assert codes() == ["TAKEN_OVER"]
        now = 119.0
        assert codes() == ["TAKEN_OVER"]
        now = 120.0
        assert codes() == []
        assert found(cluster) == values([0])

    def test_nothing_is_sent_without_ownership(self, cluster: MemoryCluster) -> None:
        with pytest.raises(BrokerUnavailable, match="frozen"):
            writer_of(cluster, owns=lambda: False).deliver(
                [run_here([0], position=0, next_offset=1)], should_stop=never
            )
        assert cluster.log(HERE).end == 0

    def test_what_was_skipped_is_noted_with_the_checkpoint(self, cluster: MemoryCluster) -> None:
        run = run_here([0], position=0, next_offset=3)
        skipped = Skipped(key=run.key, offsets=OffsetRange(1, 2), reason="why", at=AT)
        assert deliver(writer_of(cluster), replace(run, skipped=[skipped])) == []
        notes = CheckpointNotes()
        for one in cluster.log(CHECKPOINTS).visible.values():
            notes.put(one.key or b"", one.value)
        assert list(notes.skipped) == [skipped]


def test_the_client_in_memory_leaves_offsets_as_kafka_does(cluster: MemoryCluster) -> None:
    """An aborted transaction takes an offset for each record and one for its marker, which is late."""
    cluster.late = 1
    producer: Any = cluster.producer({"transactional.id": "t"})
    producer.init_transactions(1)
    producer.begin_transaction()
    producer.produce("orders", b"x", b"", 0)
    producer.flush(1)
    assert (cluster.log(HERE).stable, cluster.log(HERE).end) == (0, 1)
    producer.abort_transaction(1)
    assert [cluster.stable_offsets([HERE])[HERE] for _ in range(3)] == [0, 2, 2]
