"""The checkpoint store: the contract, and behaviour that only a real topic has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.delivery_checkpoint import (
    Checkpoint,
    CheckpointKey,
    Parked,
    Skipped,
    Waiting,
    encode,
    encode_key,
    encode_parked,
    encode_parked_key,
)
from formats.messages.group_claim import GroupClaim
from formats.segment import OffsetRange
from infra.contracts.internal_topics import CheckpointStore
from infra.kafka.internal_topics.checkpoint_editor import KafkaCheckpointEditor
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.contracts.checkpoints import AT, CheckpointContract, checkpoint, key
from tests.fakes.kafka_target import FakeTarget
from tests.infra.cluster import Cluster
from tests.infra.principal import DESCRIBE, READ, TOPIC, Principal

PARKED = Parked(7, "too large", AT)
WAITING = Waiting(7, AT, is_beginning=True)
CLAIMS = [GroupClaim(id=str(n), number=n % 2 + 1, group_id=f"group-{n}", over="earlier", at=AT) for n in range(3)]
SKIPPED = Skipped(key=key(0), offsets=OffsetRange(7, 8), reason="poison", at=AT)


class TestFakeCheckpointStore(CheckpointContract):
    @pytest.fixture
    def store(self) -> CheckpointStore:
        self._target = FakeTarget()
        return self._target.checkpoint_store()

    def put(self, key: CheckpointKey, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            del self._target.checkpoints[key]
        else:
            self._target.put_checkpoint(key, checkpoint)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._target.away = True
        yield
        self._target.away = False


@pytest.mark.integration
class TestKafkaCheckpointStore(CheckpointContract):
    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        self._cluster = Cluster(stack.brokers["b"])
        return self._cluster

    @pytest.fixture
    def topic(self, cluster: Cluster, unique: Callable[[str], str]) -> str:
        self._topic = unique("checkpoint")
        # delete: so that tests may delete records
        cluster.create(self._topic, configs={"cleanup.policy": "compact,delete"})
        return self._topic

    @pytest.fixture
    def store(self, cluster: Cluster, topic: str) -> Iterator[KafkaCheckpointStore]:
        store = KafkaCheckpointStore(
            cluster.properties | {"log_level": 0, "fetch.wait.max.ms": 50},
            topic,
            read_within=timedelta(seconds=2),
            answer_within=timedelta(seconds=2),
        )
        yield store
        store.close()

    @pytest.fixture
    def patient(self, cluster: Cluster, topic: str) -> Iterator[KafkaCheckpointStore]:
        properties = cluster.properties | {"log_level": 0, "fetch.wait.max.ms": 50}
        with closing(KafkaCheckpointStore(properties, topic)) as store:
            yield store

    def put(self, key: CheckpointKey, checkpoint: Checkpoint | None) -> None:
        self._cluster.put(self._topic, encode_key(key), None if checkpoint is None else encode(checkpoint))

    def away(self) -> AbstractContextManager[None]:
        return self._cluster.frozen()

    def test_foreign_records_are_skipped(self, store: KafkaCheckpointStore, cluster: Cluster, topic: str) -> None:
        self.put(key(0), checkpoint(1))
        for foreign_key, value in ((b"", b"x"), (b"x", b"y"), (b"x", None), (encode_key(key(0)), b"x")):
            cluster.put(topic, foreign_key, value)
        self.put(key(1), checkpoint(2))
        assert store.read() == {key(0): checkpoint(1), key(1): checkpoint(2)}

    def test_the_editor_writes_what_the_store_reads(
        self, store: KafkaCheckpointStore, cluster: Cluster, topic: str
    ) -> None:
        editor = KafkaCheckpointEditor(cluster.properties | {"log_level": 0}, topic)
        self.put(key(0), checkpoint(1))
        editor.park(key(0), PARKED)
        editor.park(key(1), PARKED)
        editor.seed(key(1), checkpoint(4))
        editor.skip(SKIPPED)
        editor.skip(SKIPPED)
        editor.park(key(1), None)
        editor.wait(key(0), WAITING)
        editor.wait(key(1), WAITING)
        editor.wait(key(1), None)
        for claim in CLAIMS:
            editor.claim(claim)
        assert (store.parked(), store.skipped(), store.waiting(), store.claims()) == ({}, [], {}, [])
        assert store.read() == {key(0): checkpoint(1), key(1): checkpoint(4)}
        assert (store.parked(), store.skipped()) == ({key(0): PARKED}, [SKIPPED])
        assert (store.waiting(), store.claims()) == ({key(0): WAITING}, CLAIMS)
        editor.park(key(0), None)
        editor.withdraw(CLAIMS[0])
        store.read()
        assert (store.parked(), store.claims()) == ({}, CLAIMS[1:])
        editor.close()

    def test_notes_are_read_again_with_the_log(self, store: KafkaCheckpointStore, cluster: Cluster, topic: str) -> None:
        cluster.put(topic, encode_parked_key(key(0)), encode_parked(PARKED))
        store.read()
        assert store.parked() == {key(0): PARKED}
        cluster.cut(topic)
        store.read()
        assert store.parked() == {}

    def test_an_incomplete_read_does_not_change_the_notes(
        self, store: KafkaCheckpointStore, cluster: Cluster, topic: str, unique: Callable[[str], str]
    ) -> None:
        cluster.put(topic, encode_parked_key(key(0)), encode_parked(PARKED))
        store.read()
        cluster.cut(topic)  # so that the whole log is read again
        with cluster.producer(**{"transactional.id": unique("tx")}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce(topic, b"anything", b"anything", 0)
            producer.flush()
            with pytest.raises(BrokerUnavailable, match="a transaction is open"):
                store.read()
            assert store.parked() == {key(0): PARKED}
            producer.abort_transaction()
        store.read()
        assert store.parked() == {}

    def test_notes_are_known_while_a_read_waits_for_a_transaction(
        self, patient: KafkaCheckpointStore, cluster: Cluster, topic: str, unique: Callable[[str], str]
    ) -> None:
        """A loop asks for them while a read runs on a pool, which waits for as long as a transaction may be open."""
        store = patient
        cluster.put(topic, encode_parked_key(key(0)), encode_parked(PARKED))
        store.read()
        with cluster.producer(**{"transactional.id": unique("tx")}) as producer, ThreadPoolExecutor(1) as pool:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce(topic, b"anything", b"anything", 0)
            producer.flush()
            reading = pool.submit(store.read)
            assert wait_until(store._lock.locked, timedelta(seconds=10))
            assert store.parked() == {key(0): PARKED}
            assert (store.waiting(), store.claims(), store.owner("x"), store.cut()) == ({}, [], None, None)
            assert len(store.skipped()) == 0
            assert not reading.done(), "the read still waits"
            producer.abort_transaction()
            wait([reading])

    def test_only_committed_transactions_count(
        self, store: KafkaCheckpointStore, cluster: Cluster, topic: str, unique: Callable[[str], str]
    ) -> None:
        self.put(key(0), checkpoint(1))
        with cluster.producer(**{"transactional.id": unique("tx")}) as producer:
            producer.init_transactions()
            for next_offset, end in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
                producer.begin_transaction()
                producer.produce(topic, encode(checkpoint(next_offset)), encode_key(key(0)), 0)
                producer.flush()
                end()
            assert store.read() == {key(0): checkpoint(7)}
            producer.begin_transaction()
            producer.produce(topic, encode(checkpoint(9)), encode_key(key(0)), 0)
            producer.flush()
            producer.abort_transaction()
        assert store.read() == {key(0): checkpoint(7)}  # the log ends with a transaction marker

    def test_a_read_waits_for_a_commit_after_an_open_transaction(
        self, store: KafkaCheckpointStore, cluster: Cluster, topic: str, unique: Callable[[str], str]
    ) -> None:
        with (
            cluster.producer(**{"transactional.id": unique("open")}) as opened,
            cluster.producer(**{"transactional.id": unique("done")}) as done,
        ):
            opened.init_transactions()
            done.init_transactions()
            opened.begin_transaction()
            opened.produce(topic, encode(checkpoint(1)), encode_key(key(1)), 0)
            opened.flush()
            done.begin_transaction()
            done.produce(topic, encode(checkpoint(2)), encode_key(key(2)), 0)
            done.commit_transaction()
            with pytest.raises(BrokerUnavailable, match="transaction"):
                store.read()
            opened.abort_transaction()
            assert store.read() == {key(2): checkpoint(2)}

    def test_a_truncated_log_is_read_again(self, store: KafkaCheckpointStore, cluster: Cluster, topic: str) -> None:
        self.put(key(0), checkpoint(1))
        assert store.read() == {key(0): checkpoint(1)}
        self.put(key(1), checkpoint(2))
        cluster.cut(topic)
        self.put(key(2), checkpoint(3))
        assert store.read() == {key(2): checkpoint(3)}

    def test_another_incarnation_of_the_topic_is_read_again(
        self, store: KafkaCheckpointStore, cluster: Cluster, topic: str
    ) -> None:
        self.put(key(0), checkpoint(1))
        assert store.read() == {key(0): checkpoint(1)}
        cluster.delete(topic)
        cluster.create(topic, configs={"cleanup.policy": "compact"})
        self.put(key(1), checkpoint(5))
        self.put(key(1), checkpoint(6))
        assert store.read() == {key(1): checkpoint(6)}

    def test_only_one_partition_is_read(self, store: KafkaCheckpointStore, cluster: Cluster, topic: str) -> None:
        self.put(key(0), checkpoint(1))
        assert store.read() == {key(0): checkpoint(1)}
        cluster.add_partition(topic, 3)
        with cluster.producer() as producer:
            for n in range(3):
                producer.produce(topic, encode(checkpoint(n + 5)), encode_key(key(n)), n)
        assert store.read() == {key(0): checkpoint(5)}


@pytest.mark.integration
def test_a_topic_without_permission_is_a_target_error(
    stack: LocalStack, unique: Callable[[str], str], topic_name: str
) -> None:
    """Waiting does not help, so it does not count as an unreachable broker."""
    broker = stack.brokers["b"]
    principal = Principal(broker, unique("worker"))
    store = KafkaCheckpointStore({**principal.properties, "log_level": 0}, topic_name)
    principal.allow(TOPIC, topic_name, DESCRIBE)
    with closing(store):
        with pytest.raises(TargetError, match="UNKNOWN_TOPIC_OR_PART"):
            store.read()
        Cluster(broker).create(topic_name, configs={"cleanup.policy": "compact"})
        Cluster(broker).put(topic_name, encode_key(key(0)), encode(checkpoint(7)))
        with pytest.raises(TargetError, match=r"TOPIC_AUTHORIZATION_FAILED.*allow READ on the topic"):
            store.read()
        principal.allow(TOPIC, topic_name, READ)
        assert store.read() == {key(0): checkpoint(7)}


def test_a_write_without_a_reachable_broker_raises() -> None:
    editor = KafkaCheckpointEditor(
        {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}, "topic", write_within=timedelta(milliseconds=300)
    )
    with pytest.raises(BrokerUnavailable, match="write to topic"):
        editor.park(key(0), None)
    editor.close()


def test_an_unreachable_broker_is_no_answer() -> None:
    store = KafkaCheckpointStore(
        {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}, "topic", answer_within=timedelta(milliseconds=200)
    )
    with pytest.raises(BrokerUnavailable, match="topic"):
        store.read()
    store.close()
