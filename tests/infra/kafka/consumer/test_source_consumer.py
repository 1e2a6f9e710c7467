from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from formats.errors import BrokerUnavailable, ConfigError, OwnershipLost
from formats.log_point import LogPoint
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, PartitionFailed, Run, SourceConsumer
from infra.kafka.client.epochs import epoch_of
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.decode import Event, Item
from infra.kafka.consumer.fetching import Fetch, Fetching, NativeFetching, PlainFetching, fetching
from infra.kafka.consumer.group_member import Membership
from infra.kafka.consumer.partition_state import PartitionStates
from infra.kafka.consumer.source_consumer import OUT_OF_RANGE_ASKED, KafkaSourceConsumer
from infra.local.broker import Broker
from infra.local.stack import LocalStack
from infra.runtime.lifecycle import Deadline, Stop
from tests.contracts.consumer import PATIENCE, ConsumerContract, Listener, Member, Transaction, World
from tests.contracts.consumer_mix import ConsumerMix
from tests.examples import machine
from tests.fakes.kafka_consumer import FakeBroker, FakeRecord, FakeSourceConsumer
from tests.infra.kafka_wire import WireRecord, produce
from tests.infra.log_files import lose_tails
from tests.infra.lost_client import first_client_of_a_member

IMPATIENT = {"session.timeout.ms": "1500", "heartbeat.interval.ms": "200"}  # soon notified of a rebalance


class FakeWorld(World):
    def __init__(self) -> None:
        self.broker = FakeBroker()
        self._topics = 0

    def topic(self, partitions: int = 1) -> list[TopicPartition]:
        self._topics += 1
        return self.broker.create(f"topic-{self._topics}", partitions=partitions)

    def append(self, partition: TopicPartition, *values: bytes | None) -> None:
        self.broker.append(partition, *values)

    def append_row(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] | None = None,
        timestamp_ms: int = 1,
    ) -> None:
        record = FakeRecord(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms)
        self.broker.append(partition, record)

    def begin(self, partition: TopicPartition, *values: bytes) -> Transaction:
        return self.broker.begin(partition, *values)

    def trim(self, partition: TopicPartition, low: int) -> None:
        self.broker.trim(partition, low)

    def elect(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.broker.elect(partition)

    def truncate(self, ends: Mapping[TopicPartition, int]) -> None:
        for partition, end in ends.items():
            self.broker.truncate(partition, end)

    def member(self, *, group: str = "", **options: Any) -> SourceConsumer:
        options.pop("memory_bytes", None)
        return FakeSourceConsumer(self.broker, group_id=group or "group", **options)

    def rebalance(self, consumer: SourceConsumer) -> None:
        assert isinstance(consumer, FakeSourceConsumer)
        consumer.assign_all()


class ClientTransaction:
    """Ends once its marker is in the log, so that later offsets are known: the client gets its answer before that."""

    def __init__(self, producer: Producer, high: Callable[[], int]) -> None:
        self._producer, self._high = producer, high

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _end(self, call: Callable[[float], None]) -> None:
        before, deadline = self._high(), Deadline(PATIENCE)
        call(30)
        while self._high() == before:
            assert not deadline.expired, "no marker"


@contextmanager
def all_delivered(producer: Producer) -> Iterator[Callable[[KafkaError | None, object], None]]:
    """What is produced in the block with this as its `on_delivery` is in the log behind it."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    yield delivered
    assert producer.flush(30) == 0
    assert refused == [], "the test counts with offsets of records that are not there"


class BrokerWorld(World):
    """A real broker. `protocol` is the group protocol of every member, `fetch_by` how each of them fetches."""

    def __init__(
        self,
        broker: Broker,
        unique: Callable[[str], str],
        *,
        protocol: str = "classic",
        fetch_by: Callable[[Membership], Fetching] = fetching,
    ) -> None:
        self.broker, bootstrap = broker, broker.bootstrap
        self.bootstrap = bootstrap
        self.unique = unique
        self.admin = KafkaAdmin({"bootstrap.servers": bootstrap})
        self._client = AdminClient({"bootstrap.servers": bootstrap})
        self._protocol, self.fetch_by = protocol, fetch_by
        self._producer = self._new_producer()
        self._groups: dict[str, str] = {}

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def close(self) -> None:
        self._producer.flush(10)

    def topic(self, partitions: int = 1, **configs: str) -> list[TopicPartition]:
        name = self.unique("topic")
        wide = str(2**63 - 1)
        configs = {
            "message.timestamp.before.max.ms": wide,
            "message.timestamp.after.max.ms": wide,
            "retention.ms": "-1",
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        assert self.admin.create_topic(name, partitions=partitions, replication_factor=1, configs=configs)
        return [TopicPartition(name, number) for number in range(partitions)]

    def append(self, partition: TopicPartition, *values: bytes | None) -> None:
        with all_delivered(self._producer) as delivered:
            for value in values:
                self._producer.produce(partition.topic, value, partition=partition.partition, on_delivery=delivered)

    def append_row(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] | None = None,
        timestamp_ms: int = 1,
    ) -> None:
        pairs = tuple((name.encode(), data) for name, data in headers or ())
        record = WireRecord(key=key, value=value, headers=pairs, timestamp_ms=timestamp_ms)
        produce(self.bootstrap, partition.topic, partition.partition, record)

    def begin(self, partition: TopicPartition, *values: bytes) -> Transaction:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.unique("tx"), "linger.ms": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        with all_delivered(producer) as delivered:
            for value in values:
                producer.produce(partition.topic, value, partition=partition.partition, on_delivery=delivered)
        return ClientTransaction(producer, lambda: self.admin.watermarks([partition])[partition].high)

    def trim(self, partition: TopicPartition, low: int) -> None:
        asked = self._client.delete_records([ClientPartition(partition.topic, partition.partition, low)])
        for future in asked.values():
            future.result(30)

    def elect(self, *partitions: TopicPartition) -> None:
        """Move the leadership of every partition: the only broker restarts. Shut down, not killed: before 4.0 the
        leader epoch of a killed broker that comes back is the same."""
        self.broker.stop()
        self.broker.start()
        self.admin = KafkaAdmin({"bootstrap.servers": self.bootstrap})  # a broker that shuts down may name none
        # else its offsets are those of the previous leader
        self.admin.describe({partition.topic for partition in partitions})

    def truncate(self, ends: Mapping[TopicPartition, int]) -> None:
        lose_tails(self.broker, ends)
        self._producer = self._new_producer()  # the sequence of the previous producer is broken

    def compact_soon(self) -> None:
        """The log cleaner runs every 15 s by default."""
        backoff = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
        brokers = self._client.list_topics(timeout=30).brokers
        asked = [ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[backoff]) for node in brokers]
        for future in self._client.incremental_alter_configs(asked).values():
            future.result(30)

    def member(self, *, group: str = "", **options: Any) -> KafkaSourceConsumer:
        soon = {"reconnect.backoff.max.ms": "500", "topic.metadata.refresh.interval.ms": "2000"}  # after a restart
        properties = {"bootstrap.servers": self.bootstrap, **soon, **options.pop("properties", {})}
        if self._protocol == "consumer":
            properties["group.protocol"] = "consumer"
        group_id = self._groups.setdefault(group, self.unique("group")) if group else self.unique("group")
        defaults: dict[str, Any] = {"isolation_level": "read_committed", "memory_bytes": 32 << 20, "brokers": 1}
        defaults["fetch_by"] = self.fetch_by
        return KafkaSourceConsumer(properties, group_id=group_id, **(defaults | options))

    def rebalance(self, consumer: SourceConsumer) -> None:
        """The rebalance happens by itself."""


class TestFakeSourceConsumer(ConsumerContract):
    @pytest.fixture
    def world(self) -> World:
        return FakeWorld()

    def test_any_mix_of_pauses_seeks_and_moves(self, world: World) -> None:
        run_state_machine_as_test(
            lambda: ConsumerMix(world),  # type: ignore[arg-type]  # hypothesis takes any factory
            settings=machine(100),
        )


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(params=[NativeFetching, pytest.param(PlainFetching, marks=pytest.mark.long)])
def world(stack: LocalStack, unique: Callable[[str], str], request: pytest.FixtureRequest) -> Iterator[BrokerWorld]:
    world = BrokerWorld(stack.brokers["a"], unique, fetch_by=request.param)
    yield world
    world.close()


@pytest.mark.integration
class TestKafkaSourceConsumer(ConsumerContract):
    """As a process that is fit for it reads: librdkafka's own messages."""

    protocol = "classic"
    fetch_by: type[Fetching] = NativeFetching

    @pytest.fixture
    def world(self, stack: LocalStack, unique: Callable[[str], str]) -> Iterator[BrokerWorld]:
        world = BrokerWorld(stack.brokers["a"], unique, protocol=self.protocol, fetch_by=self.fetch_by)
        yield world
        world.close()

    @pytest.mark.long  # two restarts of the broker
    def test_a_hole_at_the_end_is_not_a_truncation(self, world: World) -> None:
        super().test_a_hole_at_the_end_is_not_a_truncation(world)

    @pytest.mark.parametrize("examples", [2, pytest.param(40, marks=pytest.mark.long)])
    def test_any_mix_of_pauses_seeks_and_moves(self, world: World, examples: int) -> None:
        run_state_machine_as_test(
            lambda: ConsumerMix(world),  # type: ignore[arg-type]  # hypothesis takes any factory
            settings=settings(machine(examples), max_examples=examples),
        )


@pytest.mark.integration
@pytest.mark.long
class TestKafkaSourceConsumerOfTheNewProtocol(TestKafkaSourceConsumer):
    protocol = "consumer"


@pytest.mark.integration
@pytest.mark.long
class TestKafkaSourceConsumerOfMessageObjects(TestKafkaSourceConsumer):
    """The fallback."""

    fetch_by = PlainFetching


@pytest.mark.integration
@pytest.mark.long
class TestKafkaSourceConsumerOfMessageObjectsOfTheNewProtocol(TestKafkaSourceConsumerOfTheNewProtocol):
    fetch_by = PlainFetching


def drive(*members: Member, until: Callable[[], object]) -> None:
    """Poll all members in turn: a rebalance needs every member."""
    deadline = Deadline(PATIENCE)
    while not until():
        assert not deadline.expired, [(m.consumer.assignment(), m.listener.calls) for m in members]
        for member in members:
            member.poll()


@pytest.mark.integration
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_m19_a_second_member_is_assigned_only_the_partitions_that_must_move(
    stack: LocalStack, unique: Callable[[str], str], protocol: str
) -> None:
    world = BrokerWorld(stack.brokers["a"], unique, protocol=protocol)
    partitions = set(world.topic(partitions=4))
    topic = next(iter(partitions)).topic
    for partition in partitions:
        world.append(partition, b"x")
    with ExitStack() as closing:
        members = []
        for _ in range(2):
            consumer = world.member(group="pair", properties=IMPATIENT if protocol == "classic" else {})
            closing.callback(consumer.close, PATIENCE)
            members.append(Member(world, consumer, Listener(consumer)))
        first, second = members
        first.consumer.subscribe([topic], first.listener)
        drive(first, until=lambda: first.consumer.assignment() == partitions)
        # when the client unassigns and assigns a partition locally, the group does not rebalance
        broken = min(partitions)
        first.consumer.start(broken, 99)
        drive(first, until=lambda: first.of(PartitionFailed))
        first.consumer.start(broken, 0)
        drive(first, until=lambda: all(first.ends(p) for p in partitions))
        calls_before = list(first.listener.calls)
        second.consumer.subscribe([topic], second.listener)
        drive(first, second, until=lambda: len(second.consumer.assignment()) == 2 == len(first.consumer.assignment()))
        assert first.consumer.assignment() | second.consumer.assignment() == partitions
        assert calls_before == [("assigned", frozenset(partitions))]
        moved = [partition for what, some in first.listener.calls[1:] for partition in some if what == "revoked"]
        assert sorted(moved) == sorted(second.consumer.assignment())
        drive(first, second, until=lambda: all(second.ends(p) for p in second.consumer.assignment()))
        for partition in second.consumer.assignment():
            assert second.offsets(partition) == [0]
        second.consumer.close(PATIENCE)
        drive(first, until=lambda: first.consumer.assignment() == partitions)
    world.close()


@pytest.mark.integration
@pytest.mark.long
def test_compaction_leaves_holes(world: BrokerWorld) -> None:
    (p,) = world.topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001", max_compaction_lag_ms="1"
    )
    world.compact_soon()
    stamps = count(1, 10_000)  # a log segment rolls by the timestamps of its records
    for number in range(6):
        world.append_row(p, key=b"same", value=b"%d" % number, timestamp_ms=next(stamps))
    deadline = Deadline(timedelta(seconds=40))
    compacted = False
    while not compacted and not deadline.expired:
        # the cleaner skips the active log segment
        world.append_row(p, key=b"roll", value=b"x", timestamp_ms=next(stamps))
        (high,) = (marks.high for marks in world.admin.watermarks([p]).values())
        consumer = world.member()
        member = Member(world, consumer, Listener(consumer))
        consumer.subscribe([p.topic], member.listener)
        member.until_reached(p, high)
        consumer.close(PATIENCE)
        compacted = 4 not in member.offsets(p) and 5 in member.offsets(p)
    assert compacted
    assert member.rows(p)[0]["value"] in (b"5", b"x")
    assert member.ends(p)[-1] == high


@pytest.mark.integration
def test_interleaved_records_make_one_run_per_partition(world: BrokerWorld) -> None:
    partitions = world.topic(partitions=5)
    consumer = world.member()
    member = Member(world, consumer, Listener(consumer, None))
    try:
        consumer.subscribe([partitions[0].topic], member.listener)
        member.until(lambda: consumer.assignment() == set(partitions))
        for p in partitions:
            consumer.start(p, 0)
        for number in range(100):
            world.append(partitions[number % 5], b"%d" % number)
            if number % 10 == 9:
                fetched = consumer.poll(timedelta(milliseconds=50))
                runs = [item.partition for item in fetched if isinstance(item, Run)]
                assert len(runs) == len(set(runs))
                member.fetched += fetched
        for p in partitions:
            member.until_reached(p, 20)
            assert member.offsets(p) == list(range(20))
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_a_poll_lingers_for_more_records(world: BrokerWorld) -> None:
    (p,) = world.topic()
    consumer = world.member(linger=timedelta(seconds=1))
    member = Member(world, consumer, Listener(consumer))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until_reached(p, 0)

        def append() -> None:
            for n in range(100):
                world.append(p, b"%d" % n)

        appending = threading.Thread(target=append)
        appending.start()
        member.until(lambda: len(member.offsets(p)) == 100)
        appending.join()
        assert member.offsets(p) == list(range(100))
        assert len(member.runs(p)) <= 20, "a run for each record or two"
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_few_records_are_fetched_again_after_a_pause(world: BrokerWorld) -> None:
    """The client drops its fetched messages when it pauses; its own statistics count what it fetches again."""
    (p,) = world.topic()
    count, pauses = 40_000, 10
    world.append(p, *[bytes(500)] * count)
    statistics: list[dict[str, Any]] = []
    properties: dict[str, Any] = {
        "statistics.interval.ms": "100",
        "stats_cb": lambda text: statistics.append(json.loads(text)),
    }
    consumer = world.member(memory_bytes=8 << 20, properties=properties)
    member = Member(world, consumer, Listener(consumer))
    try:
        consumer.subscribe([p.topic], member.listener)
        for number in range(1, pauses + 1):
            member.until(lambda: len(member.offsets(p)) >= number * count // (pauses + 2))  # noqa: B023 -- at once
            consumer.pause([p])
            for _ in range(4):
                member.poll()
            consumer.resume([p])
        member.until_reached(p, count)
        assert member.offsets(p) == list(range(count))
        seen = len(statistics)
        member.until(lambda: len(statistics) > seen + 1)
        fetched = statistics[-1]["topics"][p.topic]["partitions"]["0"]["rxmsgs"]
        assert fetched < 2 * count, f"{fetched} records were fetched"  # 3.8 times as many if a pause drops them
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_a_header_that_cannot_be_decoded_stops_the_partition_there(world: BrokerWorld) -> None:
    (p,) = world.topic()
    world.append(p, b"0", b"1")
    bad = WireRecord(value=b"2", headers=((b"good", b"x"), (b"\xff\xfe", b"y")))
    assert produce(world.bootstrap, p.topic, p.partition, bad) == 2
    world.append(p, b"3")
    consumer = world.member()
    member = Member(world, consumer, Listener(consumer))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until(lambda: member.of(PartitionFailed))
        (failed,) = member.of(PartitionFailed)
        assert failed.code == "UNDECODABLE_HEADER"
        assert failed.offset == 2
        assert "offset 2" in failed.reason
        world.append(p, b"4")
        for _ in range(5):
            member.poll()
        assert member.offsets(p) == [0, 1]
        consumer.start(p, 3)
        member.until_reached(p, 5)
        assert member.offsets(p) == [0, 1, 3, 4]
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_records_lost_by_the_clients_own_call_are_read_again(world: BrokerWorld) -> None:
    """A signal's exception is raised by `consume`, and the record that it had taken from the queue is lost."""
    (p,) = world.topic()
    consumer = world.member()
    member = Member(world, consumer, Listener(consumer))

    def planned(*_: object) -> None:
        raise ValueError("planned")

    before = signal.signal(signal.SIGALRM, planned)
    append = threading.Timer(0.3, world.append, (p, b"0"))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until_reached(p, 0)
        append.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert consumer.poll(timedelta(seconds=10)) == [ConsumerDisturbed("ValueError: planned")]
        append.join()
        world.append(p, b"1")
        for _ in range(5):
            assert consumer.poll(timedelta(milliseconds=100)) == []
        consumer.start(p, 0)
        member.until_reached(p, 2)
        assert member.offsets(p) == [0, 1]
    finally:
        signal.signal(signal.SIGALRM, before)
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_a_consumer_whose_client_lost_every_broker_goes_on_with_another(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails in such a client: it would wait for records for ever."""
    loss = first_client_of_a_member(monkeypatch)
    (p,) = world.topic()
    consumer = world.member()
    member = Member(world, consumer, Listener(consumer))
    try:
        world.append(p, b"0")
        consumer.subscribe([p.topic], member.listener)
        member.until_reached(p, 1)
        loss.happened, member.listener.at = True, 1
        member.until(lambda: member.listener.calls[-1:] == [("lost", frozenset({p}))])
        assert consumer.assignment() == frozenset()
        world.append(p, b"1")
        member.until_reached(p, 2)
        assert member.offsets(p) == [0, 1]
        consumer.commit({p: Committed(2, "")}, wait=PATIENCE)
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_an_offset_out_of_range_is_checked_against_the_leader_epoch_a_few_times(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch can reach a log that lost its tail before the client has noticed the new leader."""
    (p,) = world.topic()
    world.append(p, b"0", b"1")
    consumer = world.member()
    member = Member(world, consumer, Listener(consumer))

    def refuse(offset: int) -> None:
        code = KafkaError._AUTO_OFFSET_RESET
        answers = [[Message(p.topic, p.partition, offset, error=KafkaError(code, "planned"))]]
        consume = consumer._member.consume
        monkeypatch.setattr(consumer._member, "consume", lambda *_: answers.pop() if answers else consume(*_))

    try:
        consumer.subscribe([p.topic], member.listener)
        member.until_reached(p, 2)
        refuse(2)
        world.append(p, b"2")
        member.until_reached(p, 3)
        assert (member.offsets(p), member.of(PartitionFailed)) == ([0, 1, 2], [])
        refusals, deadline = 0, Deadline(PATIENCE)
        while not member.of(PartitionFailed):  # an end of the partition in between begins the count anew
            assert not deadline.expired
            refuse(3)
            member.poll()
            refusals += 1
        assert refusals > OUT_OF_RANGE_ASKED
        (failed,) = member.of(PartitionFailed)
        assert (failed.partition, failed.code) == (p, "OFFSET_OUT_OF_RANGE")
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_a_commit_rejected_by_the_broker_is_a_failure_not_an_exception(world: BrokerWorld) -> None:
    (p,) = world.topic()
    consumer = world.member()
    member = Member(world, consumer, Listener(consumer))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until(consumer.assignment)
        too_long = {p: Committed(1, "x" * 5000)}  # offset.metadata.max.bytes is 4096
        consumer.commit(too_long)
        answers: dict[TopicPartition, str] = {}
        member.until(lambda: answers or answers.update(consumer.commit_answers()))
        assert "OFFSET_METADATA_TOO_LARGE" in answers[p]
        assert consumer.commit_answers() == {}
        with pytest.raises(BrokerUnavailable, match=f"commit {p} in group"):
            consumer.commit(too_long, wait=timedelta(milliseconds=300))
        member.until(lambda: "OFFSET_METADATA_TOO_LARGE" in consumer.commit_answers().get(p, ""))
        assert consumer.committed([p]) == {}
        assert member.of(ConsumerDisturbed) == []
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
def test_a_frozen_broker_blocks_no_call(stack: LocalStack, world: BrokerWorld) -> None:
    (p,) = world.topic()
    consumer = world.member()
    short = timedelta(seconds=0.5)

    def commit(partitions: Collection[TopicPartition]) -> None:
        with pytest.raises(BrokerUnavailable, match="not seen within"):
            consumer.commit({partition: Committed(1, "") for partition in partitions}, wait=short)

    member = Member(world, consumer, Listener(consumer, before_revoked=commit))
    consumer.subscribe([p.topic], member.listener)
    member.until(consumer.assignment)
    stack.brokers["a"].freeze()
    try:
        deadline = Deadline(timedelta(seconds=5))
        commit([p])
        consumer.close(2 * short)
        assert not deadline.expired
    finally:
        stack.brokers["a"].thaw()
    assert member.listener.calls[-1] == ("revoked", frozenset({p}))


@pytest.mark.integration
def test_a_replaced_static_member_ends(world: BrokerWorld) -> None:
    (p,) = world.topic()
    static = {"group.instance.id": world.unique("instance")}
    old, new = (world.member(group="static", properties=static) for _ in range(2))
    members = [Member(world, consumer, Listener(consumer)) for consumer in (old, new)]
    try:
        old.subscribe([p.topic], members[0].listener)
        members[0].until(old.assignment)
        new.subscribe([p.topic], members[1].listener)
        members[1].until(new.assignment)
        with pytest.raises(OwnershipLost, match="restart the process"):
            members[0].until(lambda: False)
        assert members[0].listener.calls[-1] == ("lost", frozenset({p}))
        assert old.assignment() == frozenset()
    finally:
        for consumer in (old, new):
            consumer.close(PATIENCE)


@pytest.mark.integration
@pytest.mark.long
def test_lost_partitions_are_reported_as_lost(world: BrokerWorld) -> None:
    (p,) = world.topic()
    consumer = world.member(properties=IMPATIENT | {"max.poll.interval.ms": "1500"})
    member = Member(world, consumer, Listener(consumer, fail_in={"lost"}))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until(consumer.assignment)
        Stop().wait(timedelta(seconds=4))  # longer than a member may go without polling
        member.until(lambda: ("lost", frozenset({p})) in member.listener.calls)
        member.until(lambda: member.of(ConsumerDisturbed))
        member.until(lambda: ("assigned", frozenset({p})) in member.listener.calls[1:])
        world.append(p, b"x")
        member.until_reached(p, 1)
    finally:
        consumer.close(PATIENCE)


@pytest.mark.integration
@pytest.mark.long
def test_a_subscription_changed_after_a_loss_takes_effect(world: BrokerWorld) -> None:
    """The change waits for the group: the client may abort the process if it changes during a rejoin."""
    (p,), (q,) = world.topic(), world.topic()
    consumer = world.member(properties=IMPATIENT | {"max.poll.interval.ms": "1500"})
    member = Member(world, consumer, Listener(consumer))
    try:
        consumer.subscribe([p.topic], member.listener)
        member.until(consumer.assignment)
        Stop().wait(timedelta(seconds=4))  # longer than a member may go without polling
        member.until(lambda: ("lost", frozenset({p})) in member.listener.calls)
        consumer.subscribe([p.topic, q.topic], member.listener)
        member.until(lambda: consumer.assignment() == {p, q})
    finally:
        consumer.close(PATIENCE)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"enable.auto.commit": "true"}, '"enable.auto.commit" = "true": must be "false"'),
        ({"isolation.level": "read_uncommitted"}, 'must be "read_committed"'),
        ({"partition.assignment.strategy": "range"}, 'must be "cooperative-sticky"'),
        ({"group.protocol": "consumer", "session.timeout.ms": "1"}, '"session.timeout.ms": belongs to the broker'),
    ],
)
def test_properties_that_break_a_guarantee_are_rejected(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        KafkaSourceConsumer(properties, group_id="g", isolation_level="read_committed", memory_bytes=1 << 20)


@pytest.mark.parametrize("memory_bytes", [1, 1 << 20, 256 << 20, 1 << 40])
@pytest.mark.parametrize("brokers", [1, 300])
def test_the_client_accepts_any_memory_budget(memory_bytes: int, brokers: int) -> None:
    consumer = KafkaSourceConsumer(
        {}, group_id="g", isolation_level="read_committed", memory_bytes=memory_bytes, brokers=brokers
    )
    consumer.close(timedelta(seconds=5))


class GivenFetching:
    """Fetches what a test gives it."""

    def __init__(self, _: Membership) -> None:
        self.items: list[tuple[TopicPartition, Item]] = []

    @contextmanager
    def fetch(
        self,
        count: int,
        timeout: timedelta = timedelta(),
        linger: timedelta = timedelta(),
    ) -> Iterator[Fetch]:
        items, self.items = self.items, []
        yield Fetch(len(items), iter(items))

    def seeking(self, partition: TopicPartition) -> AbstractContextManager[None]:
        return nullcontext()


def test_a_point_before_a_hole_is_given_up_only_when_it_is_out_of_range_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that lost its tail may answer so once before the client has noticed the new leader. Without the point, what
    the log has behind the hole by then would be read as if it were the archived one."""
    given: list[GivenFetching] = []

    def fetch_by(member: Membership) -> Fetching:
        given.append(GivenFetching(member))
        return given[0]

    consumer = KafkaSourceConsumer(
        {}, group_id="g", isolation_level="read_committed", memory_bytes=1 << 20, fetch_by=fetch_by
    )
    (p, point), sought = (TopicPartition("t", 0), LogPoint(3, 2)), list[tuple[int, int | None]]()
    monkeypatch.setattr(consumer, "_seek", lambda to: sought.append((to.offset, epoch_of(to.leader_epoch))))
    try:
        PartitionStates(Listener(consumer), consumer._states).assigned([p])
        consumer.start(p, 5, point)
        for _ in range(OUT_OF_RANGE_ASKED + 1):
            assert sought[-1] == (3, 2)
            given[0].items = [(p, Event(3, KafkaError(KafkaError._AUTO_OFFSET_RESET, "planned")))]
            assert consumer.poll(timedelta()) == []
        assert sought[-1] == (5, None), "retention took it"
    finally:
        consumer.close(timedelta(seconds=5))


def test_closing_a_member_that_never_reached_a_broker_is_quick(unused_port: int) -> None:
    properties = {"bootstrap.servers": f"127.0.0.1:{unused_port}"}
    consumer = KafkaSourceConsumer(
        properties,
        group_id="g",
        isolation_level="read_committed",
        memory_bytes=1 << 20,
        request_timeout=timedelta(seconds=0.2),
    )
    consumer.subscribe(["topic"], Listener(consumer))
    assert consumer.poll(timedelta(milliseconds=20)) == []
    with pytest.raises(BrokerUnavailable, match="committed offsets of group g"):
        consumer.committed([TopicPartition("topic", 0)])
    started = Deadline(timedelta(seconds=5))
    consumer.close(timedelta(seconds=2))
    assert not started.expired
