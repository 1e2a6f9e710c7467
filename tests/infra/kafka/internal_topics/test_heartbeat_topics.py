"""Topics of heartbeats: in memory, and on a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta

import pytest

from formats.errors import TargetError
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import HeartbeatWriter
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.heartbeats import KafkaHeartbeatWriter, OwnHeartbeats
from infra.kafka.internal_topics.whole_topic import read_whole
from infra.local.stack import LocalStack
from tests.contracts.heartbeats import GOLDEN, HeartbeatContract, beat
from tests.fakes.heartbeats import FakeHeartbeats
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.surroundings import T0
from tests.infra.cluster import Cluster
from tests.infra.principal import TOPIC, WRITE, Principal


class TestFakeHeartbeats(HeartbeatContract):
    @pytest.fixture
    def topic(self) -> str:
        return "t"

    @pytest.fixture
    def writer(self, topic: str) -> HeartbeatWriter:
        broker = FakeBroker()
        broker.create(topic)
        self.fake = FakeHeartbeats(broker)
        return self.fake

    def stored(self, topic: str) -> Sequence[tuple[bytes | None, bytes | None]]:
        return [(key, value) for name, key, value in self.fake.records if name == topic]


@pytest.mark.integration
class TestKafkaHeartbeatWriter(HeartbeatContract):
    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        self.cluster_ = Cluster(stack.brokers["b"])
        return self.cluster_

    @pytest.fixture
    def topic(self, cluster: Cluster, unique: Callable[[str], str]) -> str:
        name = unique("beats")
        cluster.create(name, partitions=3)
        return name

    @pytest.fixture
    def writer(self, cluster: Cluster, topic: str) -> Iterator[HeartbeatWriter]:
        with closing(KafkaHeartbeatWriter(cluster.properties, within=timedelta(seconds=30))) as patient:
            patient.write(topic, beat())  # the first producer of a cluster waits for its transaction log
        with closing(KafkaHeartbeatWriter(cluster.properties, within=timedelta(seconds=3))) as writer:
            yield writer

    def stored(self, topic: str) -> Sequence[tuple[bytes | None, bytes | None]]:
        found = self.cluster_.records(TopicPartition(topic, 0))
        assert len(read_whole(self.cluster_.properties, topic)) == len(found), "in the first partition alone"
        return [(one.key, one.value) for one in found][1:]  # without that of the patient one


@pytest.mark.integration
def test_a_principal_that_may_not_write_reads_what_to_allow(stack: LocalStack, unique: Callable[[str], str]) -> None:
    cluster, name = Cluster(stack.brokers["b"]), unique("beats")
    cluster.create(name)
    who = Principal(stack.brokers["b"], name)
    with closing(KafkaHeartbeatWriter(who.properties, within=timedelta(seconds=5))) as writer:
        with pytest.raises(TargetError, match="allow WRITE on the topic"):
            writer.write(name, beat())
        with pytest.raises(TargetError, match=r"allow .* on the topic"):
            OwnHeartbeats(KafkaAdmin(who.properties), writer, "a").write(T0)
        who.allow(TOPIC, name, WRITE)
        writer.write(name, beat())
    assert read_whole(cluster.properties, name) == [GOLDEN]
