"""Compiled code queues records as the plain path does: the same records, the same failures; and nothing of ours is
freed while the client may use it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.kafka.client import produce_native
from infra.kafka.client.delivery_reports import RunReports
from infra.kafka.client.idempotent_producer import IdempotentProducer, producer_properties
from infra.kafka.client.lent_run import LentRun
from infra.kafka.client.librdkafka import is_open
from tests.contracts.target import row, run_of
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of
from tests.infra.kafka.client.mock_cluster import MockCluster, mock_cluster

MIB = 1 << 20
UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
DATA = st.none() | st.binary(max_size=12)
STAMPS = st.integers(-(2**63), 2**63 - 1).filter(bool) | st.sampled_from([-1, 1, -(2**63), 2**63 - 1])
NAMES = st.text(max_size=3).filter(lambda name: "\0" not in name)  # the plain path ends a name there
HEADERS = st.none() | st.lists(st.tuples(NAMES, DATA), max_size=3)
ROWS = st.lists(st.tuples(DATA, DATA, STAMPS, HEADERS), max_size=40)

Producing = IdempotentProducer[TopicPartition]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


def producer_of(properties: dict[str, object], *, native: bool, **more: object) -> Producing:
    given = properties | {name.replace("_", "."): value for name, value in more.items()}
    producer: Producing = IdempotentProducer(producer_properties(given, memory_bytes=16 * MIB))
    assert producer._native is not None, "this machine is not fit for compiled code"
    if not native:
        producer._native = None
    return producer


def wait() -> None: ...


def lent(producer: Producing) -> int:
    assert producer._native is not None
    return producer._native.lent_runs


class Place:
    """A new topic for each use, of one partition."""

    def __init__(self, cluster: MockCluster) -> None:
        self._cluster, self._used = cluster, 0

    def __call__(self) -> TopicPartition:
        self._used += 1
        topic = f"t{os.getpid()}.{id(self)}.{self._used}"
        self._cluster.create_topic(topic, 1)
        return TopicPartition(topic, 0)


@pytest.fixture(scope="module")
def place(cluster: MockCluster) -> Place:
    return Place(cluster)


# --- the same records ---

PATHS = (True, False)  # native, plain
NARROW = 7  # records in a queue that is full all the time


@dataclass(frozen=True, slots=True)
class BothPaths:
    """Producers by path and by the records that their queue has room for; one partition, with its reader, for each
    path."""

    producers: dict[tuple[bool, int], Producing]
    partitions: dict[bool, TopicPartition]
    readers: dict[bool, Callable[[int, int], list[Message]]]

    def produced(self, native: bool, room: int, batches: Sequence[pa.RecordBatch]) -> list[tuple[object, ...]]:
        """What a consumer reads of them, with where each lies from the first on."""
        producer, partition = self.producers[native, room], self.partitions[native]
        run = run_with(partition, batches)
        reports = producer.send(run, partition, memory_bytes=MIB, wait=wait)
        assert isinstance(reports, LentRun) is native
        assert producer.settle(wait=wait, grace=timedelta()) == {}
        assert reports.is_contiguous
        first = reports.first_offset
        return [
            (m.key(), m.value(), m.timestamp()[1], m.headers() or None, cast("int", m.offset()) - first)
            for m in self.readers[native](run.count, first)
        ]


@pytest.fixture(scope="module")
def both(cluster: MockCluster) -> Iterator[BothPaths]:
    cluster.create_topic("both", 2)
    limits = {"compression_type": "none", "linger_ms": 0}
    producers = {
        (native, room): producer_of(cluster.properties, native=native, queue_buffering_max_messages=room, **limits)
        for native in PATHS
        for room in (NARROW, 100_000)
    }
    partitions = {native: TopicPartition("both", n) for n, native in enumerate(PATHS)}
    with ExitStack() as readers:
        by_path = {native: readers.enter_context(cluster.reader(p)) for native, p in partitions.items()}
        yield BothPaths(producers, partitions, by_path)
    for producer in producers.values():
        producer.close(timedelta())


@property_examples()
@given(
    rows=ROWS.filter(bool),
    big=st.none() | st.integers(60_000, 200_000),
    skip=st.integers(0, 3),
    cut=st.integers(0, 40),
    room=st.sampled_from([NARROW, 100_000]),
)
def test_both_paths_produce_the_same(
    both: BothPaths, *, rows: list[tuple[Any, ...]], big: int | None, skip: int, cut: int, room: int
) -> None:
    """Null and empty, duplicate headers, every timestamp, values that the client refers to instead of copying them,
    slices of batches, and a queue that is full all the time."""
    given_rows = [row(0, value, key=key, stamp=stamp, headers=pairs) for key, value, stamp, pairs in rows]
    if big is not None:
        given_rows.insert(len(given_rows) // 2, row(0, os.urandom(big), key=b"big"))
    whole = batch_of(given_rows).slice(min(skip, len(given_rows) - 1))
    batches = [whole.slice(0, cut), whole.slice(cut)]
    native, plain = (both.produced(path, room, batches) for path in PATHS)
    assert native == plain
    assert [(key, value, stamp, pairs or None) for key, value, stamp, pairs, _ in native] == [
        (r["key"], r["value"], r["timestamp"], list(r["headers"]) if r["headers"] else None)
        for r in given_rows[min(skip, len(given_rows) - 1) :]
    ]
    assert [lies for *_, lies in native] == list(range(whole.num_rows))


def test_columns_of_which_nothing_or_everything_is_there(both: BothPaths) -> None:
    """Buffers that are missing, lists whose values are sliced, and a null list that has values below it."""
    rows = [row(n, b"v%d" % n, key=None, headers=[("a", b"%d" % n), ("b", None)] if n % 2 else None) for n in range(20)]
    whole = batch_of(rows)
    headers = whole.column("headers")
    hidden = pa.array([n % 4 < 3 for n in range(20)])
    nulls = pa.ListArray.from_arrays(headers.offsets, headers.values, headers.type, mask=hidden)
    position = whole.schema.get_field_index("headers")
    masked = whole.set_column(position, whole.schema.field("headers"), nulls)
    bare = batch_of([row(n, None, key=b"") for n in range(3)])
    batches = [masked, masked.slice(5, 7), bare, bare.slice(1), whole.slice(3, 0)]
    native, plain = (both.produced(path, NARROW, batches) for path in PATHS)
    assert native == plain
    assert [len(pairs) for *_, pairs, _ in cast("list[Any]", native) if pairs] == [2] * 7


def run_with(partition: TopicPartition, batches: Sequence[pa.RecordBatch]) -> TargetRun:
    count, size_bytes = sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)
    return replace(run_of(partition, [row(0)]), batches=tuple(batches), count=count, size_bytes=size_bytes)


# --- the same failures ---


def failing(
    cluster: MockCluster, partitions: Sequence[TopicPartition], *, native: bool, codes: Sequence[int], **more: object
) -> tuple[object, ...]:
    producer = producer_of(cluster.properties, native=native, **more)
    try:
        cluster.fail_produce(*codes)
        reports = [
            producer.send(run_of(p, [row(n, b"x" * 100) for n in range(3)]), p, memory_bytes=MIB, wait=wait)
            for p in partitions
        ]
        failures = producer.settle(wait=wait, grace=timedelta(seconds=2))
        assert not native or lent(producer) == 0
        return (
            {partitions.index(p): error.code() for p, error in failures.items()},
            None if producer.fatal is None else producer.fatal.code(),
            [(one.first_offset, one.is_contiguous, [e.code() for e in one.errors]) for one in reports],
        )
    finally:
        producer.close(timedelta())


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
    ],
)
def test_a_rejection_by_the_broker_is_attributed_alike(cluster: MockCluster, place: Place, code: int) -> None:
    found = [failing(cluster, [place()], native=native, codes=[code]) for native in (True, False)]
    assert found[0] == found[1]
    assert cast("dict[int, int]", found[0][0]) == {0: code}


def test_an_unknown_error_of_the_broker_keeps_its_report(cluster: MockCluster, place: Place) -> None:
    """On the plain path it gets lost, since no dictionary takes it; here it is the cause."""
    failures, fatal, reports = failing(cluster, [place()], native=True, codes=[-1])
    assert fatal is not None
    assert (failures, reports) == ({0: -1}, [(-1, False, [-1])])


def test_a_retriable_error_loses_and_doubles_nothing(cluster: MockCluster, place: Place) -> None:
    partition = place()
    retriable = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION]
    producer = producer_of(cluster.properties, native=True, compression_type="none", retry_backoff_ms=10)
    cluster.fail_produce(*retriable)
    try:
        values = [os.urandom(100_000) for _ in range(20)]  # referred to by requests, not copied into them
        run = run_of(partition, [row(n, value) for n, value in enumerate(values)])
        reports = producer.send(run, partition, memory_bytes=16 * MIB, wait=wait)
        assert producer.settle(wait=wait, grace=timedelta()) == {}
        assert (reports.first_offset, reports.is_contiguous, lent(producer)) == (0, True, 0)
        assert [message.value() for message in cluster.records(partition, 20)] == values
    finally:
        producer.close(timedelta())


@pytest.mark.parametrize("native", [True, False])
def test_a_record_that_the_client_rejects_ends_the_run_before_it(
    cluster: MockCluster, place: Place, native: bool
) -> None:
    partition = place()
    producer = producer_of(cluster.properties, native=native, message_max_bytes=100_000)
    try:
        run = run_of(partition, [row(0, b"a"), row(1, b"b" * 100_001), row(2, b"c")])
        producer.send(run, partition, memory_bytes=MIB, wait=wait)
        assert producer.rejected_by_client == {partition}
        failures = producer.settle(wait=wait, grace=timedelta())
        assert {p: error.code() for p, error in failures.items()} == {partition: KafkaError.MSG_SIZE_TOO_LARGE}
        assert "Unable to produce message" in failures[partition].str()
        assert [message.value() for message in cluster.records(partition, 1)] == [b"a"]
        assert not native or lent(producer) == 0
    finally:
        producer.close(timedelta())


@pytest.mark.parametrize("native", [True, False])
def test_a_partition_that_does_not_exist(cluster: MockCluster, place: Place, native: bool) -> None:
    """The first run fails later, by its reports; the client then knows the topic, and rejects the records at once."""
    missing = TopicPartition(place().topic, 7)
    producer = producer_of(cluster.properties, native=native)
    codes = []
    try:
        for _ in range(2):
            producer.send(run_of(missing, [row(0), row(1)]), missing, memory_bytes=MIB, wait=wait)
            codes.append([error.code() for error in producer.settle(wait=wait, grace=timedelta()).values()])
        assert codes == [[KafkaError._UNKNOWN_PARTITION]] * 2
        assert not native or lent(producer) == 0
    finally:
        producer.close(timedelta())


# --- what is lent ---


def queued(producer: Producing, rows: Sequence[Row] = (), *, owner: int = 0) -> LentRun:
    partition = TopicPartition("orders", owner)
    run = run_of(partition, list(rows) or [row(n, b"v" * 1000) for n in range(100)])
    reports = producer.send(run, partition, memory_bytes=16 * MIB, wait=wait)
    assert isinstance(reports, LentRun)
    return reports


def test_batches_stay_until_their_records_are_reported() -> None:
    producer = producer_of(UNREACHABLE, native=True)
    try:
        gc.collect()
        before = pa.total_allocated_bytes()
        run = queued(producer)
        gc.collect()
        assert pa.total_allocated_bytes() > before + 100_000, "the client may read the values"
        assert (lent(producer), run.is_back) == (1, False)
        producer._client.purge(in_queue=True, in_flight=True)
        while len(producer):
            producer.serve(timedelta(milliseconds=10))
        assert (lent(producer), run.is_back) == (0, True)
        gc.collect()
        assert pa.total_allocated_bytes() <= before
        assert [error.code() for error in run.errors] == [KafkaError._PURGE_QUEUE], "known for good"
    finally:
        producer.close(timedelta())


def test_closing_takes_everything_back() -> None:
    producer = producer_of(UNREACHABLE, native=True)
    runs = [queued(producer, owner=n) for n in range(3)]
    producer.close(timedelta())
    assert all(run.is_back for run in runs)
    producer.close(timedelta())


def test_an_open_client_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its close failed, or never returned: its threads may read and count."""
    producer = producer_of(UNREACHABLE, native=True)
    assert producer._native is not None
    run = queued(producer)
    producer._native.closed()
    assert is_open(producer._client)
    assert not run.is_back
    producer.close(timedelta())
    assert run.is_back


def test_a_run_that_was_given_up_halfway_comes_back_with_what_was_queued() -> None:
    producer = producer_of(UNREACHABLE, native=True, queue_buffering_max_messages=10)
    partition = TopicPartition("orders", 0)

    def give_up() -> None:
        if len(producer) >= 10:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        producer.send(run_of(partition, [row(n) for n in range(100)]), partition, memory_bytes=MIB, wait=give_up)
    (_, run) = producer._reports[0]
    assert isinstance(run, LentRun)
    assert run.queued == 10
    producer.close(timedelta())
    assert run.is_back


def test_an_interrupt_right_after_the_client_took_records_gives_none_of_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python handles a signal before the call's result is used: the client has the records, and their memory."""
    producer = producer_of(UNREACHABLE, native=True)
    functions = produce_native._functions()
    produce = functions.produce

    def interrupted(*arguments: object) -> int:
        produce(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(functions, "produce", interrupted)
    partition = TopicPartition("orders", 0)
    with pytest.raises(KeyboardInterrupt):
        producer.send(run_of(partition, [row(n) for n in range(100)]), partition, memory_bytes=MIB, wait=wait)
    assert producer._native is not None
    producer._native.take_back()
    (_, run) = producer._reports[0]
    assert isinstance(run, LentRun)
    assert (run.queued, run.is_back) == (100, False)
    producer.close(timedelta())
    assert run.is_back


def test_forgotten_reports_are_still_counted_somewhere() -> None:
    """A transaction that is begun, or aborted, forgets them; the client's threads do not."""
    producer = producer_of(UNREACHABLE, native=True)
    run = queued(producer)
    producer.forget_reports()
    producer.close(timedelta())
    assert (run.is_back, run._reported) == (True, 100)


def test_records_of_both_kinds_share_a_client(cluster: MockCluster, place: Place) -> None:
    partition = place()
    producer = producer_of(cluster.properties, native=True)
    failed: list[KafkaError | None] = []
    try:
        producer.put(partition.topic, key=b"1", value=b"p", owner=partition, wait=wait, partition=0)
        run = producer.send(run_of(partition, [row(0, b"n")]), partition, memory_bytes=MIB, wait=wait)
        producer.produce(partition.topic, b"q", b"2", 0, lambda e, _: failed.append(e), None, 1, None)
        each = producer.send(
            run_of(partition, [row(0, b"e")]), partition, memory_bytes=MIB, wait=wait, each_offset=True
        )
        assert producer.settle(wait=wait, grace=timedelta()) == {}
        assert (run.first_offset, failed, each.each_offset) == (1, [None], pa.array([3]))
        assert [m.value() for m in cluster.records(partition, 4)] == [b"p", b"n", b"q", b"e"]
    finally:
        producer.close(timedelta())


def test_columns_of_other_types_are_refused() -> None:
    """Their buffers would be read as something else."""
    schema = batch_of([row(0)]).schema
    large = schema.set(4, pa.field("value", pa.large_binary()))
    partition = TopicPartition("orders", 0)
    producer = producer_of(UNREACHABLE, native=True)
    with pytest.raises(TypeError, match="large_binary"):
        producer.send(run_with(partition, [batch_of([row(0)]).cast(large)]), partition, memory_bytes=MIB, wait=wait)
    ((_, run),) = producer._reports
    assert isinstance(run, LentRun)
    assert run.queued == 0
    producer.close(timedelta())


def test_what_only_the_plain_path_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfit process, and a client with a plugin of the user."""
    user = producer_properties(UNREACHABLE | {"plugin.library.paths": ""}, memory_bytes=MIB)
    producer: Producing = IdempotentProducer(user)
    assert producer._native is None
    producer.close(timedelta())
    monkeypatch.setattr(produce_native, "is_fit", lambda: False)
    producer = IdempotentProducer(producer_properties(UNREACHABLE, memory_bytes=MIB))
    assert producer._native is None
    assert isinstance(
        producer.send(run_of(TopicPartition("a", 0), [row(0)]), TopicPartition("a", 0), memory_bytes=MIB, wait=wait),
        RunReports,
    )
    producer.close(timedelta())


def _resident_kb() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4


def _churn(cluster: MockCluster, partition: TopicPartition, times: int, check: Callable[[int], None]) -> None:
    """Delivered, purged and rejected runs, by clients that come and go."""
    for n in range(times):
        producer = producer_of(cluster.properties if n % 2 else UNREACHABLE, native=True)
        for owner in range(3):
            at = partition if n % 2 else TopicPartition("orders", owner)
            rows = [row(k, b"v" * 2000, key=b"k", headers=[("h", b"1"), ("h", None)]) for k in range(500)]
            producer.send(run_of(at, rows), at, memory_bytes=16 * MIB, wait=wait)
        if n % 2:
            producer.settle(wait=wait, grace=timedelta())
        producer.close(timedelta())
        check(n)


def _flat(cluster: MockCluster, place: Place, times: int) -> None:
    seen = []
    _churn(cluster, place(), times, lambda n: seen.append(_resident_kb()))
    early, late = max(seen[times // 5 : times // 2]), max(seen[-times // 5 :])
    print(f"RSS of {times} turns: {early / 1024:.1f} MiB at most in the first half, {late / 1024:.1f} MiB at the end")
    # half of it is what the mock cluster stores of it: 5 MiB for a partition, then the oldest goes
    assert late - early < 12 * 1024, f"grew from {early} to {late} kB"
    assert pa.total_allocated_bytes() < 8 * MIB


def test_nothing_is_kept(cluster: MockCluster, place: Place) -> None:
    _flat(cluster, place, 20)


@pytest.mark.long
def test_nothing_is_kept_for_hours(cluster: MockCluster, place: Place) -> None:
    _flat(cluster, place, 1500)
