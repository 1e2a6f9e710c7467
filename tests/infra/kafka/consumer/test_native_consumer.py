"""The two ways to fetch, on a broker: the same records, and nothing is kept of what was read."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from formats.errors import TargetError
from formats.records.schema import SCHEMA
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, PartitionFailed, Reached, Run
from infra.contracts.producer import FailureKind
from infra.kafka.client.encode import CUT_NAME
from infra.kafka.client.idempotent_producer import IdempotentProducer, producer_properties
from infra.kafka.consumer import decode, decode_native, partition_reader
from infra.kafka.consumer.decode import UNDECODABLE_HEADER, Records
from infra.kafka.consumer.fetching import Fetching, NativeFetching, PlainFetching
from infra.kafka.producer.rejections import run_failed
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Deadline
from tests.contracts.consumer import PATIENCE, TIMESTAMPS, Listener, Member
from tests.contracts.target import row, run_of
from tests.fakes.surroundings import CountedMetrics
from tests.infra.cluster import Cluster
from tests.infra.kafka.consumer.test_source_consumer import BrokerWorld, ClientTransaction
from tests.infra.kafka_wire import WireRecord, produce

pytestmark = pytest.mark.integration

DATA = st.none() | st.binary(max_size=30) | st.integers(0, 60_000).map(bytes)
NAMES = st.text(max_size=5).map(lambda text: text.encode("utf-8", "replace")) | st.just(b"\xff\xfe") | st.just(b"a\0b")
RECORDS = st.builds(
    WireRecord,
    key=DATA,
    value=DATA,
    headers=st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=4).map(tuple),
    timestamp_ms=st.sampled_from(TIMESTAMPS) | st.integers(1, 2**40),
)
EDGES = (
    WireRecord(value=b"", key=b"", headers=((b"", b""), (b"a", None), (b"a", b"1"))),
    (False, [b"aborted"]),
    WireRecord(headers=((b"good", b"x"), (b"\xff\xfe", b"y"))),
    (True, [b"committed", b""]),
    WireRecord(value=b"NUL", headers=((b"a\0b", b"x"), (b"\0", None), (b"", None))),
)
WRITES = st.lists(
    RECORDS | st.tuples(st.booleans(), st.lists(st.binary(max_size=10), min_size=1, max_size=4)), max_size=6
)


@pytest.fixture
def world(stack: LocalStack, unique: Callable[[str], str]) -> Iterator[BrokerWorld]:
    world = BrokerWorld(stack.brokers["a"], unique)
    yield world
    world.close()


@contextmanager
def closed(member: Member) -> Iterator[None]:
    try:
        yield
    finally:
        member.consumer.close(PATIENCE)


class Writer:
    """What is written into one partition, one after the other."""

    def __init__(self, world: BrokerWorld, partition: TopicPartition) -> None:
        self._world, self._partition = world, partition
        self._producer = Producer(
            {
                "bootstrap.servers": world.bootstrap,
                "transactional.id": world.unique("tx"),
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)

    @property
    def end(self) -> int:
        return self._world.admin.watermarks([self._partition])[self._partition].high

    def write(self, writes: Sequence[WireRecord | tuple[bool, list[bytes]]]) -> None:
        p = self._partition
        for one in writes:
            if isinstance(one, WireRecord):
                produce(self._world.bootstrap, p.topic, p.partition, one)
                continue
            commits, values = one
            self._producer.begin_transaction()
            for value in values:
                self._producer.produce(p.topic, value, partition=p.partition)
            assert self._producer.flush(30) == 0
            transaction = ClientTransaction(self._producer, lambda: self.end)
            (transaction.commit if commits else transaction.abort)()


class Reader:
    """One of the two ways, which reads the same partition again and again."""

    def __init__(self, world: BrokerWorld, partition: TopicPartition, fetch_by: type[Fetching]) -> None:
        quick = {"fetch.wait.max.ms": "10"}  # a start waits for the answer to the request before it
        consumer = world.member(fetch_by=fetch_by, properties=quick)
        self._partition, self.member = partition, Member(world, consumer, Listener(consumer))
        consumer.subscribe([partition.topic], self.member.listener)
        self.member.until(lambda: consumer.assignment() == {partition})

    def read(self, start: int, end: int) -> tuple[pa.Table, list[object]]:
        """Everything from `start` up to `end`, starting again behind a record that cannot be decoded; and what was no
        record."""
        member, p = self.member, self._partition
        events: list[object] = []
        runs: list[Run] = []
        member.fetched.clear()
        member.consumer.start(p, start)
        deadline = Deadline(PATIENCE)
        while Reached(p, end) not in member.fetched:
            assert not deadline.expired, member.fetched[-3:]
            member.fetched.clear()
            member.poll()
            runs += member.runs(p)
            for failed in member.of(PartitionFailed):
                events.append((failed.partition, failed.code, failed.offset))
                member.consumer.start(p, failed.offset + 1)
        return pa.Table.from_batches([run.batch for run in runs], SCHEMA).combine_chunks(), events


def test_both_ways_read_the_same(world: BrokerWorld) -> None:
    """Any records, transactions that commit and abort, and records that the client cannot deliver."""
    (p,) = world.topic()
    writer = Writer(world, p)
    readers = [Reader(world, p, way) for way in (NativeFetching, PlainFetching)]
    names = set[str]()
    with closed(readers[0].member), closed(readers[1].member):

        @settings(max_examples=100, deadline=None)  # in `make test-long`, too: a transaction takes a broker its time
        @given(WRITES)
        @example(EDGES)
        def check(writes: Sequence[WireRecord | tuple[bool, list[bytes]]]) -> None:
            start = writer.end
            writer.write(writes)
            end = writer.end
            (ours, our_events), (reference, events) = (reader.read(start, end) for reader in readers)
            names.update(names_of(ours))
            assert our_events == events
            assert cut(ours).equals(reference, check_metadata=True), "the client's objects end a name at its first NUL"

        check()
    assert "a\0b" in names, "compiled code reads a header name as it is"


def test_a_header_name_with_nul_arrives_whole_or_is_refused(world: BrokerWorld) -> None:
    """Produced and read by compiled code; the client's own call would cut it, so the record is not queued."""
    (p,) = world.topic()
    run = run_of(p, [row(0, b"v", headers=[("a\0b", b"x"), ("\0", None)])])
    for native in (True, False):
        producer: IdempotentProducer[TopicPartition] = IdempotentProducer(
            producer_properties({"bootstrap.servers": world.bootstrap}, memory_bytes=1 << 20)
        )
        if not native:
            producer._native = None
        producer.send(run, p, memory_bytes=1 << 20, wait=lambda: None)
        failures = producer.settle(wait=lambda: None, grace=PATIENCE)
        producer.close(PATIENCE)
        assert [error.code() for error in failures.values()] == ([] if native else [CUT_NAME])
    reader = Reader(world, p, NativeFetching)
    with closed(reader.member):
        ours, _ = reader.read(0, 1)
    assert ours.column("headers").to_pylist() == [[{"key": "a\0b", "value": b"x"}, {"key": "\0", "value": None}]]
    failed = run_failed(p, failures[p])
    assert failed.kind is FailureKind.REJECTED
    assert "source offset 0 contains a NUL byte" in failed.reason


@pytest.mark.parametrize("native", [True, False])
def test_what_lies_behind_a_range_does_not_end_its_reading(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """The records of a range arrive together with others, here with one that cannot be decoded."""
    (p,) = world.topic()
    bad = WireRecord(headers=((b"\xff\xfe", b"x"),))
    Writer(world, p).write([*[WireRecord(value=b"%d" % n) for n in range(7)], bad])
    monkeypatch.setattr(partition_reader, "is_fit", lambda: native)
    properties = {"bootstrap.servers": world.bootstrap}
    runs = partition_reader.read_runs(properties, p, 2, 7)
    assert [at for run in runs for at in run.batch.column("offset").to_pylist()] == [2, 3, 4, 5, 6]
    with pytest.raises(TargetError, match="offset 7"):
        list(partition_reader.read_runs(properties, p, 2, 8))


def test_headers_that_the_client_cannot_read_are_not_read_as_none(world: BrokerWorld) -> None:
    """It reads 100,000 of a record, and calls more of them malformed. Its own objects show no difference to a record
    without headers, so this is of compiled code alone."""
    (p,) = world.topic()
    producer = Producer({"bootstrap.servers": world.bootstrap})
    for count in (100_000, 100_001):
        producer.produce(p.topic, b"v", partition=p.partition, headers=[("", b"")] * count)
    assert producer.flush(PATIENCE.total_seconds()) == 0
    consumer = world.member(fetch_by=NativeFetching)
    member = Member(world, consumer, Listener(consumer))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until(lambda: member.of(PartitionFailed))
        (run,) = member.runs(p)
        (failed,) = member.of(PartitionFailed)
    finally:
        consumer.close(PATIENCE)
    assert [len(run.batch.column("headers")[0]), run.last_offset] == [100_000, 0]
    assert (failed.code, failed.offset) == (UNDECODABLE_HEADER, 1)
    assert "more than 100,000" in failed.reason


@pytest.mark.parametrize("way", [NativeFetching, PlainFetching])
def test_a_partition_that_is_gone_from_its_topic_is_an_error_and_ends_no_process(
    world: BrokerWorld, way: type[Fetching]
) -> None:
    """The client calls its error callback for it, from the queue that the partition's records come from."""
    first, second = world.topic(2)
    for p in (first, second):
        world.append(p, b"before")
    metrics = CountedMetrics()
    often = {"topic.metadata.refresh.interval.ms": "1000"}  # so that the client never sees that there is no topic
    consumer = world.member(fetch_by=way, properties=often, metrics=metrics)
    member = Member(world, consumer, Listener(consumer))
    with closed(member):
        consumer.subscribe([first.topic], member.listener)
        member.until(lambda: member.runs(first) and member.runs(second))
        Cluster(world.broker).delete(first.topic)
        wait_until(lambda: created(world, first.topic), PATIENCE)
        member.until(lambda: metrics.counts["broker_errors"])


def created(world: BrokerWorld, topic: str) -> bool:
    """Not while it is being deleted."""
    return world.admin.create_topic(topic, partitions=1, replication_factor=1, configs={})


def names_of(table: pa.Table) -> list[str]:
    names: list[str] = table.column("headers").combine_chunks().flatten().field("key").to_pylist()
    return names


def cut(table: pa.Table) -> pa.Table:
    """With header names that end at their first NUL."""
    lists = table.column("headers").to_pylist()
    for header in itertools.chain.from_iterable(pairs or () for pairs in lists):
        header["key"] = header["key"].partition("\0")[0]
    index = table.schema.get_field_index("headers")
    column = pa.array(lists, table.schema.field(index).type)
    return table.set_column(index, table.schema.field(index), column)


def rss_mib() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pa.default_memory_pool().release_unused()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Churn:
    """A member that is moved, sought, paused, and fails; beside it members that are closed in the middle."""

    RECORDS, SIZE = 4000, 500

    def __init__(self, world: BrokerWorld) -> None:
        self.world, self.random, self.read_bytes = world, random.Random(1), 0
        self.topics = [p for _ in range(3) for p in world.topic()]
        for p in self.topics:
            world.append(p, *[bytes([p.partition]) * self.SIZE] * self.RECORDS)
        consumer = world.member(fetch_by=NativeFetching)
        self.member = Member(world, consumer, Listener(consumer))
        self.move(self.topics)

    def move(self, partitions: list[TopicPartition]) -> None:
        consumer = self.member.consumer
        consumer.subscribe([p.topic for p in partitions], self.member.listener)
        self.member.until(lambda: consumer.assignment() == set(partitions))

    def turn(self, number: int) -> None:
        member, consumer = self.member, self.member.consumer
        some = self.random.sample(self.topics, 2)
        for p in some:
            consumer.start(p, self.random.randrange(self.RECORDS + 2))  # the last one is out of range
        member.poll()
        consumer.pause(some[:1])
        member.poll()
        consumer.resume(some[:1])
        member.poll()
        if number % 3 == 0:
            member.listener.fail_in |= {"revoked"} if number % 2 else set()
            self.move(self.topics[:2])  # with messages of the third in every queue
            member.poll()
            self.move(self.topics)
            for p in self.topics:
                consumer.start(p, 0)  # after the disturbance
        if number % 6 == 0:
            self.close_in_the_middle()
        self.read_bytes += sum(run.size_bytes for run in member.of(Run))
        member.fetched.clear()
        member.listener.calls.clear()

    def close_in_the_middle(self) -> None:
        consumer = self.world.member(fetch_by=NativeFetching)
        member = Member(self.world, consumer, Listener(consumer))
        consumer.subscribe([p.topic for p in self.topics], member.listener)
        member.until(lambda: member.of(Run))
        began = time.monotonic()
        consumer.close(PATIENCE)
        assert time.monotonic() - began < 2, "something still holds the client"


@pytest.mark.long
def test_nothing_is_kept_of_what_was_read(world: BrokerWorld) -> None:
    """As many rebalances, seeks, pauses, failures and closes as a bad hour has. Fewer turns say nothing: the arenas of
    new threads are more than what could leak in them."""
    with churning(world) as churn:
        for number in range(100):  # caches, pools and the arenas of threads fill
            churn.turn(number)
        before, churn.read_bytes = rss_mib(), 0
        for number in range(600):
            churn.turn(number)
        kept, limit = (rss_mib() - before) * 2**20, max(churn.read_bytes / 20, 24 << 20)
        print(f"{kept / 2**20:.1f} MiB more than {rss_mib():.0f}, {churn.read_bytes / 2**20:.0f} MiB were read")
        assert kept < limit, f"{kept} bytes are kept of {churn.read_bytes} that were read"


def test_no_descriptor_and_no_thread_is_kept(world: BrokerWorld) -> None:
    with churning(world) as churn:
        for number in range(4):
            churn.turn(number)
        descriptors, threads = count_descriptors(), threading.active_count()
        for number in range(7):
            churn.turn(number)
        assert count_descriptors() <= descriptors + 2
        assert threading.active_count() <= threads + 1


@contextmanager
def churning(world: BrokerWorld) -> Iterator[Churn]:
    churn = Churn(world)
    try:
        yield churn
    finally:
        churn.member.consumer.close(PATIENCE)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_member_that_was_never_closed_ends_with_its_object(world: BrokerWorld) -> None:
    (p,) = world.topic()
    world.append(p, *[b"x" * 100] * 3000)

    def forgotten() -> None:
        consumer = world.member(fetch_by=NativeFetching)
        member = Member(world, consumer, Listener(consumer))
        consumer.subscribe([p.topic], member.listener)
        member.until(lambda: member.runs(p))

    before = count_descriptors()
    forgotten()
    descriptors, began = count_descriptors(), time.monotonic()
    assert descriptors > before
    gc.collect()
    assert time.monotonic() - began < 5
    assert count_descriptors() <= before + 2  # of the lookup client, which closes later


@pytest.mark.parametrize(
    ("way", "breaks"), [(NativeFetching, decode_native.NativeRecords), (PlainFetching, decode.MessageRecords)]
)
def test_a_failure_in_the_middle_of_a_poll_loses_nothing(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, way: type[Fetching], breaks: type[Records]
) -> None:
    """Whatever fails once messages are taken from the queue: nothing is read until every partition is started again."""
    (p,) = world.topic()
    world.append(p, *[b"x" * 100] * 3000)
    consumer = world.member(fetch_by=way)
    member = Member(world, consumer, Listener(consumer))
    runs = breaks.runs

    def fail(_: Records) -> tuple[Run, ...]:
        raise MemoryError("planned")

    try:
        consumer.subscribe([p.topic], member.listener)
        member.until(lambda: member.runs(p))
        monkeypatch.setattr(breaks, "runs", fail)
        with pytest.raises(MemoryError):
            member.until(lambda: False)
        monkeypatch.setattr(breaks, "runs", runs)
        at = len(member.offsets(p))
        member.poll()
        (disturbed,) = member.of(ConsumerDisturbed)
        assert disturbed.reason == "_Interrupted: MemoryError: planned"
        for _ in range(3):
            member.poll()
        assert len(member.offsets(p)) == at
        consumer.start(p, at)
        member.until_reached(p, 3000)
        assert member.offsets(p) == list(range(3000))
    finally:
        consumer.close(PATIENCE)
