"""Exactly-once delivery on a real broker: the contract, and each step that the guarantee needs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place

from formats.errors import BrokerUnavailable, ConfigError, OwnershipLost
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import GroupListener
from infra.contracts.producer import FailureKind, TargetRun, TargetWriter
from infra.kafka.client.idempotent_producer import transactional_properties
from infra.kafka.consumer.group_metadata import NO_GENERATION
from infra.kafka.consumer.placement import KafkaPlacement
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.producer.ownership import Owner as ClaimedId
from infra.kafka.producer.transactional import TransactionalWriter
from infra.runtime.lifecycle import Deadline
from tests.contracts.target import expected, never, row, run_of
from tests.infra.cluster import Cluster
from tests.infra.target_on_broker import BrokerTargetContract

MIB = 1 << 20
PATIENCE = timedelta(seconds=40)


class Owner:
    """A listener that only tracks its partitions."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.on_revoked: Callable[[], None] = lambda: None

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.owned |= set(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.on_revoked()
        self.owned -= set(partitions)

    lost = revoked


@pytest.mark.integration
class TestTransactionalWriter(BrokerTargetContract):
    @pytest.fixture
    def make(
        self, cluster: Cluster, checkpoint_topic: str, offset_map_topic: str, unique: Callable[[str], str]
    ) -> Iterator[Callable[..., TransactionalWriter]]:
        made: list[TransactionalWriter] = []

        def make(
            *,
            name: str = "",
            exclusive: bool = True,
            timeout: float = 10,
            memory_bytes: int = 16 * MIB,
            **properties: object,
        ) -> TransactionalWriter:
            given = cluster.properties | {"log_level": 0} | {k.replace("_", "."): v for k, v in properties.items()}
            made.append(
                TransactionalWriter(
                    given,
                    transactional_id=name or unique("worker"),
                    exclusive=exclusive,
                    transaction_timeout=timedelta(seconds=timeout),
                    checkpoint_topic=checkpoint_topic,
                    offset_map_topic=offset_map_topic,
                    memory_bytes=memory_bytes,
                )
            )
            return made[-1]

        yield make
        for writer in made:
            writer.close(timedelta(seconds=2))

    @pytest.fixture
    def writer(self, make: Callable[..., TransactionalWriter]) -> TargetWriter:
        return make()

    @pytest.fixture
    def join(
        self, cluster: Cluster, partitions: Sequence[TopicPartition], unique: Callable[[str], str]
    ) -> Iterator[Callable[..., tuple[KafkaPlacement, Owner]]]:
        """Another member of the group on the partitions' topic."""
        group, made = unique("group"), list[KafkaPlacement]()

        def join(**properties: str) -> tuple[KafkaPlacement, Owner]:
            given = {str(k): str(v) for k, v in cluster.properties.items()} | {
                k.replace("_", "."): v for k, v in properties.items()
            }
            made.append(KafkaPlacement(given, group_id=group))
            owner = Owner()
            listener: GroupListener = owner
            made[-1].subscribe([partitions[0].topic], listener)
            return made[-1], owner

        yield join
        for placement in made:
            placement.close(timedelta(seconds=2))

    # --- what a transaction adds ---

    def test_a_rejected_run_aborts_the_others_which_are_retried(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        bad, good = self.refused(run_of(partitions[0], [row(0)])), run_of(partitions[1], [row(0)])
        failures = {f.partition: f.kind for f in writer.deliver([good, bad], should_stop=never)}
        assert failures == {partitions[0]: FailureKind.REJECTED, partitions[1]: FailureKind.RETRY_NOW}
        assert (self.read(partitions[1], 0), self.checkpoints()) == ([], {})

    def test_a_transaction_is_invisible_before_its_end(
        self, make: Callable[..., TransactionalWriter], partitions: Sequence[TopicPartition]
    ) -> None:
        run = run_of(partitions[0], [row(0), row(1)])

        def runs() -> Iterator[TargetRun]:
            yield run
            raise ZeroDivisionError

        writer = make()
        with pytest.raises(ZeroDivisionError):
            writer.deliver(runs(), should_stop=never)
        assert (self.read(partitions[0], 0), self.checkpoints()) == ([], {})
        assert writer.deliver([run], should_stop=never) == []
        assert self.read(partitions[0], 2) == expected(run)

    def test_a_round_that_is_given_up_once_everything_has_arrived_is_aborted(
        self,
        make: Callable[..., TransactionalWriter],
        partitions: Sequence[TopicPartition],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Nothing waits any more that would notice it; a commit would come after the partitions have begun anew."""
        writer, stopped = make(), False
        checkpoint = writer._checkpoint

        def then_stop(*arguments: Any) -> None:
            nonlocal stopped
            checkpoint(*arguments)
            stopped = True

        monkeypatch.setattr(writer, "_checkpoint", then_stop)
        with pytest.raises(BrokerUnavailable, match="stopped"):
            writer.deliver([run_of(partitions[0], [row(0)])], should_stop=lambda: stopped)
        assert (self.read(partitions[0], 0), self.checkpoints()) == ([], {})

    def test_a_second_process_with_the_same_id_fences_the_first(
        self, make: Callable[..., TransactionalWriter], partitions: Sequence[TopicPartition]
    ) -> None:
        older, younger = (make(name="same" + partitions[0].topic, exclusive=False) for _ in range(2))
        first, second = run_of(partitions[0], [row(0)]), run_of(partitions[0], [row(1)])
        assert older.deliver([first], should_stop=never) == []
        assert younger.deliver([second], should_stop=never) == []
        zombie = run_of(partitions[0], [row(2)])
        with pytest.raises(OwnershipLost, match=r"group\.instance\.id"):
            older.deliver([zombie], should_stop=never)
        third = run_of(partitions[0], [row(3)])
        assert younger.deliver([third], should_stop=never) == []
        assert self.read(partitions[0], 3) == expected(first, second, third)

    @pytest.mark.long
    def test_a_replaced_process_cannot_take_the_id_back(
        self,
        make: Callable[..., TransactionalWriter],
        partitions: Sequence[TopicPartition],
        cluster: Cluster,
        checkpoint_topic: str,
        unique: Callable[[str], str],
    ) -> None:
        """Without a group: for example, a frozen process whose producer failed, and whose new one has the id again."""
        name = unique("restore")
        with ExitStack() as around:

            def begun() -> TransactionalWriter:
                writer = make(name=name, exclusive=False)
                store = around.enter_context(closing(KafkaCheckpointStore(cluster.properties, checkpoint_topic)))
                writer.take_over(PATIENCE, ClaimedId(name, store))
                return writer

            older, first = begun(), run_of(partitions[0], [row(0)])
            assert older.deliver([first], should_stop=never) == []
            younger, second = begun(), run_of(partitions[0], [row(1)])
            assert younger.deliver([second], should_stop=never) == []
            older.close(timedelta())
            zombie, third = run_of(partitions[0], [row(2)]), run_of(partitions[0], [row(3)])
            with pytest.raises(OwnershipLost, match="another process has started"):
                older.deliver([zombie], should_stop=never)
            # this has fenced the younger process's producer, but not the process
            deadline = Deadline(PATIENCE)
            while self.checkpoints()[third.key] != third.checkpoint and not deadline.expired:
                with suppress(BrokerUnavailable):
                    younger.deliver([third], should_stop=never)
            assert self.read(partitions[0], 3) == expected(first, second, third)

    def test_an_abandoned_transaction_ends_by_its_timeout(
        self,
        make: Callable[..., TransactionalWriter],
        partitions: Sequence[TopicPartition],
        cluster: Cluster,
        checkpoint_topic: str,
    ) -> None:
        """Read up to the checkpoint topic's end, which waits until no transaction is pending."""
        done = run_of(partitions[0], [row(0)])
        assert make().deliver([done], should_stop=never) == []
        left = Producer(
            cluster.properties
            | {"transactional.id": partitions[0].topic, "transaction.timeout.ms": 3000, "log_level": 0}
        )
        left.init_transactions(20)
        left.begin_transaction()
        left.produce(checkpoint_topic, b"{}", b"left open")
        left.flush(20)
        store = KafkaCheckpointStore(
            {k: str(v) for k, v in cluster.properties.items()}, checkpoint_topic, read_within=PATIENCE
        )
        with closing(store):
            assert store.read() == {done.key: done.checkpoint}

    def test_batches_shrink_to_the_limit_of_the_topic(
        self, make: Callable[..., TransactionalWriter], cluster: Cluster, unique: Callable[[str], str]
    ) -> None:
        small = cluster.create(unique("small"), 1, {"max.message.bytes": "3000", "retention.ms": "-1"})[0]
        run = run_of(small, [row(o, os.urandom(1000)) for o in range(50)])
        writer = make()
        tries = [writer.deliver([run], should_stop=never) for _ in range(3)]
        assert [[f.kind for f in failures] for failures in tries] == [
            [FailureKind.RETRY_NOW],
            [FailureKind.RETRY_NOW],
            [],
        ]
        assert cluster.records(small) == expected(run)

    # --- the fence ---

    def drive(self, *placements: KafkaPlacement, until: Callable[[], bool]) -> None:
        deadline = Deadline(PATIENCE)
        while not until():
            assert not deadline.expired
            for placement in placements:
                placement.poll(timedelta(seconds=0.05))

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_member_that_lost_a_partition_cannot_write_it(
        self,
        make: Callable[..., TransactionalWriter],
        join: Callable[..., tuple[KafkaPlacement, Owner]],
        partitions: Sequence[TopicPartition],
        protocol: str,
    ) -> None:
        """A fence from the time of the ownership check is rejected; a new one would be accepted."""
        first, mine = join(group_protocol=protocol)
        self.drive(first, until=lambda: mine.owned == set(partitions))
        snapshot = first.fence()
        writer = make()
        assert writer.deliver([run_of(partitions[0], [row(0)])], should_stop=never, fence=snapshot) == []
        second, theirs = join(group_protocol=protocol)
        self.drive(first, second, until=lambda: bool(theirs.owned) and not (mine.owned & theirs.owned))
        gone = next(iter(theirs.owned))
        late = run_of(gone, [row(7, b"late")])
        [failure] = writer.deliver([late], should_stop=never, fence=snapshot)
        assert failure.kind is FailureKind.RETRY_LATER
        assert "GENERATION" in failure.reason.upper() or "EPOCH" in failure.reason.upper()
        assert expected(late)[0] not in self.read(gone, 0)
        # therefore a fence must not be newer than the ownership check
        self.drive(first, second, until=lambda: writer.deliver([late], should_stop=never, fence=first.fence()) == [])

    def test_a_fence_without_a_generation_would_not_fence(
        self,
        make: Callable[..., TransactionalWriter],
        join: Callable[..., tuple[KafkaPlacement, Owner]],
        partitions: Sequence[TopicPartition],
    ) -> None:
        """The premise of `KafkaPlacement.fence`: a broker accepts such a fence while another member owns the partition.
        It rejects a member id without a generation, and a generation without a member id."""
        owning, owner = join()
        self.drive(owning, until=lambda: owner.owned == set(partitions))
        outside, _ = join()
        metadata = outside._member.client.consumer_group_metadata()
        assert make().deliver([run_of(partitions[0], [row(0)])], should_stop=never, fence=metadata) == []
        assert outside.fence() is None
        mine: bytes = owning.fence()  # type: ignore[assignment]
        member_id = str(owning._member.client.memberid()).encode()
        for made_up in (
            mine.replace(mine[: len(NO_GENERATION)], NO_GENERATION),
            mine.replace(member_id, b""),
        ):
            assert made_up != mine
            [failure] = make().deliver([run_of(partitions[0], [row(1)])], should_stop=never, fence=made_up)
            assert failure.kind is FailureKind.RETRY_LATER

    def test_a_call_that_never_returns_is_abandoned(
        self,
        make: Callable[..., TransactionalWriter],
        join: Callable[..., tuple[KafkaPlacement, Owner]],
        partitions: Sequence[TopicPartition],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """After losing the connection to the group's coordinator, the client never answers."""
        placement, owner = join()
        self.drive(placement, until=lambda: owner.owned == set(partitions))
        never_comes = threading.Event()

        class Deaf(Producer):
            def send_offsets_to_transaction(self, *_: object) -> None:
                never_comes.wait()

        writer, run = make(), run_of(partitions[0], [row(0), row(1)])
        monkeypatch.setattr("infra.kafka.producer.transactional_producer.FENCED_WITHIN", timedelta(seconds=1))
        with monkeypatch.context() as deaf:
            deaf.setattr("infra.kafka.client.produce_native.Producer", Deaf)
            failures = writer.deliver([run], should_stop=never, fence=placement.fence())
            assert [failure.kind for failure in failures] == [FailureKind.RETRY_LATER]
            assert (self.read(partitions[0], 0), self.checkpoints()) == ([], {})
        writer.close(timedelta(seconds=2))
        assert writer.deliver([run], should_stop=never, fence=placement.fence()) == []
        assert self.read(partitions[0], 2) == expected(run)
        never_comes.set()

    def test_the_next_owner_waits_for_pending_transactions(
        self,
        join: Callable[..., tuple[KafkaPlacement, Owner]],
        partitions: Sequence[TopicPartition],
        cluster: Cluster,
    ) -> None:
        """No answer while another transaction has a pending offset; under read_uncommitted there would be one."""
        placement, owner = join()
        self.drive(placement, until=lambda: owner.owned == set(partitions))
        with cluster.producer(**{"transactional.id": partitions[0].topic}) as producer:
            producer.init_transactions(20)
            producer.begin_transaction()
            producer.send_offsets_to_transaction([Place(partitions[0].topic, 0, 5)], placement.fence(), 20)
            answered = threading.Event()

            def ask() -> None:
                placement.wait_until_settled(partitions)
                answered.set()

            asking = threading.Thread(target=ask)
            asking.start()
            assert not answered.wait(0.5)  # takes milliseconds without a pending transaction
            producer.commit_transaction(20)
            asking.join(PATIENCE.total_seconds())
            assert answered.is_set()

    def test_no_broker_answers(self) -> None:
        unreachable = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
        writer = TransactionalWriter(
            unreachable,
            transactional_id="w",
            transaction_timeout=timedelta(seconds=10),
            checkpoint_topic="c",
            offset_map_topic="m",
            memory_bytes=MIB,
        )
        turns = iter([False] * 2)
        with pytest.raises(BrokerUnavailable):
            writer.deliver([run_of(TopicPartition("t", 0), [row(0)])], should_stop=lambda: next(turns, True))
        writer.close(timedelta())


def test_pinned_properties_cannot_be_overridden() -> None:
    with pytest.raises(ConfigError, match=r'"enable.idempotence"'):
        transactional_properties(
            {"enable.idempotence": False}, memory_bytes=MIB, transaction_timeout=timedelta(seconds=30)
        )
