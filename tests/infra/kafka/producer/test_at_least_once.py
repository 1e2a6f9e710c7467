"""At-least-once delivery: the contract, and behaviour that only a real broker has."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable, ConfigError, WriterRefused
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Skipped
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, TargetRun, TargetWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.producer.at_least_once import AtLeastOnceWriter
from tests.contracts.target import STAMP, TargetContract, expected, never, row, run_of
from tests.fakes.kafka_target import Crashed, FakeTarget, TargetRecord
from tests.infra.cluster import Cluster
from tests.infra.target_on_broker import BrokerTargetContract

MIB = 1 << 20


class TestFakeTarget(TargetContract):
    exactly_once = False

    @pytest.fixture
    def target(self) -> FakeTarget:
        self._target = FakeTarget(exactly_once=self.exactly_once)
        return self._target

    @pytest.fixture
    def writer(self, target: FakeTarget) -> TargetWriter:
        return target.writer()

    @pytest.fixture
    def partitions(self) -> Sequence[TopicPartition]:
        return [TopicPartition("orders.copy", n) for n in range(3)]

    def read(self, partition: TopicPartition, count: int) -> list[TargetRecord]:
        return self._target.records(partition)

    def checkpoints(self) -> Mapping[CheckpointKey, Checkpoint]:
        return self._target.checkpoints

    def skipped(self) -> Sequence[Skipped]:
        return self._target.skipped

    def refused(self, run: TargetRun) -> TargetRun:
        self._target.fail_next(run.partition, kind=FailureKind.REJECTED)
        return run

    @contextmanager
    def away(self) -> Iterator[None]:
        self._target.away = True
        yield
        self._target.away = False

    def test_injected_failures(self, target: FakeTarget, partitions: Sequence[TopicPartition]) -> None:
        if self.exactly_once:
            return
        writer, run = target.writer(), run_of(partitions[0], [row(0), row(1), row(2)])
        target.fail_next(partitions[0], code="X", keep=2)
        assert [(f.code, f.kind) for f in writer.deliver([run], should_stop=never)] == [("X", FailureKind.RETRY_LATER)]
        assert [r.source_offset for r in target.records(partitions[0])] == [0, 1]
        target.stop_next(keep=1)
        with pytest.raises(BrokerUnavailable):
            writer.deliver([run], should_stop=never)
        target.crash_next()
        with pytest.raises(Crashed):
            writer.deliver([run], should_stop=never)
        assert [r.source_offset for r in target.records(partitions[0])] == [0, 1, 0, 0, 1, 2]
        assert target.checkpoint_store().read() == {}


class TestFakeTargetWithTransactions(TestFakeTarget):
    exactly_once = True


def test_pinned_properties_cannot_be_overridden() -> None:
    with pytest.raises(ConfigError, match=r'"acks"(.|\n)*|"enable.idempotence"'):
        producer_properties({"acks": "1", "enable.idempotence": False, "linger.ms": 5}, memory_bytes=MIB)
    kept = {"acks": "all", "enable.idempotence": "true", "linger.ms": 5, "message.max.bytes": 1_000_000}
    made = producer_properties(kept, memory_bytes=64 * MIB)
    assert made["linger.ms"] == 5
    assert made["queue.buffering.max.kbytes"] == 64 * 1024


@pytest.mark.parametrize("largest", [100_000_000, 2_000_000, "200000000"])
def test_the_queue_takes_the_largest_record_that_the_client_takes(largest: int | str) -> None:
    """A larger one than the queue would wait for room for ever."""
    given = {} if largest == 100_000_000 else {"message.max.bytes": largest}
    made = producer_properties(given, memory_bytes=16 * MIB)
    assert made["queue.buffering.max.kbytes"] * 1024 >= max(int(largest), 16 * MIB)


def test_a_queue_without_room_for_the_largest_record_is_a_configuration_error() -> None:
    """Such a record would wait for ever."""
    limit, largest = "queue.buffering.max.kbytes", "message.max.bytes"
    with pytest.raises(ConfigError, match=rf'"{limit}": 64 KiB (.|\n)*set it to at least 65, (.|\n)*to at most 65536'):
        producer_properties({limit: 64, largest: 65_537}, memory_bytes=16 * MIB)
    with pytest.raises(ConfigError, match="at least 131072"):
        producer_properties({limit: "0x10000", largest: "0x8000000"}, memory_bytes=16 * MIB)
    for given in ({limit: "64", largest: 65_536}, {limit: 97_657, largest: 100_000_000}):
        assert producer_properties(given, memory_bytes=16 * MIB).items() >= given.items()


@pytest.mark.parametrize(("room", "largest"), [(64, 65_536), ("1", 1024), (1 << 20, 100_000_000)])
def test_a_smaller_queue_alone_lowers_the_largest_record(room: int | str, largest: int) -> None:
    """A larger one is refused then, with a reason, and does not wait."""
    made = producer_properties({"queue.buffering.max.kbytes": room}, memory_bytes=16 * MIB)
    assert made["message.max.bytes"] == largest


def test_an_unknown_property_is_a_configuration_error() -> None:
    writer = AtLeastOnceWriter({"no.such.property": "1"}, checkpoint_topic="c", offset_map_topic="m", memory_bytes=MIB)
    with pytest.raises(ConfigError, match=r"no\.such\.property"):
        writer.deliver([run_of(TopicPartition("t", 0), [row(0)])], should_stop=never)


def test_no_broker_answers() -> None:
    unreachable = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
    writer = AtLeastOnceWriter(unreachable, checkpoint_topic="c", offset_map_topic="m", memory_bytes=MIB)
    turns = iter([False] * 3)
    with pytest.raises(BrokerUnavailable):
        writer.deliver([run_of(TopicPartition("t", 0), [row(0)])], should_stop=lambda: next(turns, True))
    writer.close(timedelta())


@pytest.mark.integration
class TestAtLeastOnceWriter(BrokerTargetContract):
    @pytest.fixture
    def make(
        self, cluster: Cluster, checkpoint_topic: str, offset_map_topic: str
    ) -> Iterator[Callable[..., AtLeastOnceWriter]]:
        made: list[AtLeastOnceWriter] = []

        def make(*, memory_bytes: int = 16 * MIB, **properties: object) -> AtLeastOnceWriter:
            given = cluster.properties | {"log_level": 0} | {k.replace("_", "."): v for k, v in properties.items()}
            given["log_level"] = given.pop("log.level", given.get("log_level", 0))
            made.append(
                AtLeastOnceWriter(
                    given,
                    checkpoint_topic=checkpoint_topic,
                    offset_map_topic=offset_map_topic,
                    memory_bytes=memory_bytes,
                )
            )
            return made[-1]

        yield make
        for writer in made:
            writer.close(timedelta(seconds=1))

    @pytest.fixture
    def writer(self, make: Callable[..., AtLeastOnceWriter]) -> TargetWriter:
        return make()

    @pytest.mark.long
    def test_a_broker_that_comes_back_gets_everything_in_order(
        self, make: Callable[..., AtLeastOnceWriter], partitions: Sequence[TopicPartition], cluster: Cluster
    ) -> None:
        run = run_of(
            partitions[0],
            *[[row(o, b"%08d" % o + bytes(1000)) for o in range(k, k + 500)] for k in range(0, 5000, 500)],
        )
        down = threading.Event()

        def stops_the_broker_once() -> bool:
            if not down.is_set():
                cluster.broker.stop()
                down.set()
                cluster.broker.start()
            return False

        assert make(memory_bytes=MIB).deliver([run], should_stop=stops_the_broker_once) == []
        assert down.is_set()
        assert cluster.records(partitions[0]) == expected(run)

    def test_a_queue_of_few_records_rejects_none_permanently(
        self, make: Callable[..., AtLeastOnceWriter], partitions: Sequence[TopicPartition], cluster: Cluster
    ) -> None:
        run = run_of(partitions[0], [row(o, b"%d" % o, headers=[("h", b"%d" % o)]) for o in range(1000)])
        writer = make(queue_buffering_max_messages=7, linger_ms=0)
        assert writer.deliver([run], should_stop=never) == []
        assert cluster.records(partitions[0]) == expected(run)

    def test_a_small_memory_is_enough_for_a_large_run(
        self, make: Callable[..., AtLeastOnceWriter], partitions: Sequence[TopicPartition], cluster: Cluster
    ) -> None:
        run = run_of(partitions[0], [row(o, os.urandom(20_000)) for o in range(200)])
        assert make(memory_bytes=100_000, linger_ms=0).deliver([run], should_stop=never) == []
        assert cluster.records(partitions[0]) == expected(run)

    def test_a_record_larger_than_the_memory_is_delivered(
        self, make: Callable[..., AtLeastOnceWriter], cluster: Cluster, unique: Callable[[str], str]
    ) -> None:
        large = cluster.create(unique("large"), 1, {"max.message.bytes": "8000000", "retention.ms": "-1"})[0]
        run = run_of(large, [row(0), row(1, os.urandom(5_000_000)), row(2)])
        assert make(memory_bytes=MIB).deliver([run], should_stop=never) == []
        assert cluster.records(large) == expected(run)

    def test_batches_shrink_to_the_limit_of_the_topic(
        self, make: Callable[..., AtLeastOnceWriter], cluster: Cluster, unique: Callable[[str], str]
    ) -> None:
        small = cluster.create(unique("small"), 1, {"max.message.bytes": "3000", "retention.ms": "-1"})[0]
        run = run_of(small, [row(o, os.urandom(1000)) for o in range(200)])
        writer = make()
        tries = [writer.deliver([run], should_stop=never) for _ in range(3)]
        assert [[(f.code, f.kind) for f in failures] for failures in tries] == [
            [("MSG_SIZE_TOO_LARGE", FailureKind.RETRY_NOW)],
            [("MSG_SIZE_TOO_LARGE", FailureKind.RETRY_NOW)],
            [],
        ]
        assert cluster.records(small) == expected(run)

    def test_a_record_too_large_for_the_topic_is_rejected_permanently(
        self, make: Callable[..., AtLeastOnceWriter], cluster: Cluster, unique: Callable[[str], str]
    ) -> None:
        small = cluster.create(unique("small"), 1, {"max.message.bytes": "3000", "retention.ms": "-1"})[0]
        run = run_of(small, [row(0), row(1, os.urandom(5000)), row(2)])
        writer = make()
        tries = [writer.deliver([run], should_stop=never) for _ in range(3)]
        assert [f.kind for failures in tries for f in failures] == [
            FailureKind.RETRY_NOW,
            FailureKind.RETRY_NOW,
            FailureKind.REJECTED,
        ]
        assert "max.message.bytes" in tries[-1][0].reason
        assert [r.value for r in cluster.records(small)] == [b"v"]  # nothing after the rejected record

    def test_a_record_too_large_for_the_client_is_rejected_permanently(
        self, make: Callable[..., AtLeastOnceWriter], partitions: Sequence[TopicPartition], cluster: Cluster
    ) -> None:
        bad = run_of(partitions[0], [row(0), row(1, bytes(60_000)), row(2)])
        good = run_of(partitions[1], [row(0)])
        failures = make(message_max_bytes=50_000).deliver([bad, good], should_stop=never)
        assert [(f.partition, f.code, f.kind) for f in failures] == [
            (partitions[0], "MSG_SIZE_TOO_LARGE", FailureKind.REJECTED)
        ]
        assert [r.value for r in cluster.records(partitions[0])] == [b"v"]
        assert cluster.records(partitions[1]) == expected(good)
        assert self.checkpoints() == {good.key: good.checkpoint}

    def test_an_unknown_topic_may_still_appear(
        self, make: Callable[..., AtLeastOnceWriter], partitions: Sequence[TopicPartition], unique: Callable[[str], str]
    ) -> None:
        absent, good = run_of(TopicPartition(unique("absent"), 0), [row(0)]), run_of(partitions[0], [row(0)])
        failures = make(topic_metadata_propagation_max_ms=100).deliver([absent, good], should_stop=never)
        assert [(f.partition, f.kind) for f in failures] == [(absent.partition, FailureKind.RETRY_LATER)]
        assert "UNKNOWN" in failures[0].code
        assert self.checkpoints() == {good.key: good.checkpoint}

    def test_a_checkpoint_that_cannot_be_written_fails_every_run(
        self,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        unique: Callable[[str], str],
        offset_map_topic: str,
    ) -> None:
        properties = cluster.properties | {"topic.metadata.propagation.max.ms": 100, "log_level": 0}
        writer = AtLeastOnceWriter(
            properties, checkpoint_topic=unique("absent"), offset_map_topic=offset_map_topic, memory_bytes=MIB
        )
        run = run_of(partitions[0], [row(0)])
        for _ in range(2):
            with pytest.raises(WriterRefused, match=r"checkpoint topic absent-\S+ does not exist"):
                writer.deliver([run], should_stop=never)
        assert cluster.records(partitions[0]) == expected(run), "checked before anything was sent again"
        writer.close(timedelta())

    def test_the_broker_sets_timestamps_if_configured_for_the_topic(
        self, make: Callable[..., AtLeastOnceWriter], cluster: Cluster, unique: Callable[[str], str]
    ) -> None:
        stamped = cluster.create(unique("stamped"), 1, {"message.timestamp.type": "LogAppendTime"})[0]
        run = run_of(stamped, [row(0, b"a", stamp=1), row(1, b"b", stamp=STAMP + 10**15)])
        assert make().deliver([run], should_stop=never) == []
        found = cluster.records(stamped)
        assert [r.value for r in found] == [b"a", b"b"]
        assert {r.timestamp_ms for r in found}.isdisjoint({1, STAMP + 10**15})
