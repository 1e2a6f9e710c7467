from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Producer

from formats.errors import BrokerUnavailable, TargetError
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicFacts, TopicPartition, Watermarks
from infra.kafka.cluster.admin import KafkaAdmin, LeaderNotFound
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.infra.kafka_wire import WireRecord, produce

ROOT = Path(__file__).resolve().parent.parent.parent.parent.parent
ONE = {"partitions": 1, "replication_factor": 1}


@pytest.fixture
def admin(stack: LocalStack) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": stack.brokers["a"].bootstrap})


@pytest.fixture
def unreachable() -> KafkaAdmin:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return KafkaAdmin({"bootstrap.servers": f"127.0.0.1:{port}"}, timeout=timedelta(seconds=0.3))


@pytest.mark.integration
def test_a_topic_is_created_once_and_visible(admin: KafkaAdmin, topic_name: str) -> None:
    configs = {"retention.ms": "-1"}
    assert admin.create_topic(topic_name, partitions=3, replication_factor=1, configs=configs)
    assert not admin.create_topic(topic_name, partitions=5, replication_factor=1, configs={})
    facts = admin.describe([topic_name])[topic_name]
    assert facts.partition_count == 3
    assert admin.topics()[topic_name].partition_count == 3
    assert admin.topics()[topic_name].topic_id == ""
    assert admin.configs(topic_name)["retention.ms"] == "-1"
    assert "cleanup.policy" in admin.configs(topic_name)


@pytest.mark.integration
def test_a_creation_that_is_only_checked_creates_nothing(admin: KafkaAdmin, topic_name: str) -> None:
    admin.check_creation(topic_name, partitions=3, replication_factor=1, configs={"retention.ms": "-1"})
    for configs, replicas in (({"retention": "1"}, 1), ({"retention.ms": "much"}, 1), ({}, 3)):
        with pytest.raises(TargetError, match=topic_name):
            admin.check_creation(topic_name, partitions=3, replication_factor=replicas, configs=configs)
    assert topic_name not in admin.topics()


def test_a_broker_that_names_no_live_broker_does_not_end_the_process() -> None:
    """Runs in a process of its own: describe_cluster of librdkafka 2.16 would abort it."""
    command = [sys.executable, "-m", "tests.infra.forged_broker"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "_PARTIAL" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.integration
def test_topic_ids_are_fit_for_keys(admin: KafkaAdmin, unique: Callable[[str], str]) -> None:
    """The client prints topic ids with "+" and "/": about one in five has a slash."""
    names = [unique("topic") for _ in range(15)]
    for name in names:
        admin.create_topic(name, configs={}, **ONE)
    ids = {facts.topic_id for facts in admin.describe(names).values()}
    assert len(ids) == 15
    for topic_id in ids:
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", topic_id)
        SourcePartition("region", "topic", 0, topic_id)


@pytest.mark.integration
def test_changing_a_setting_leaves_the_others(admin: KafkaAdmin, topic_name: str) -> None:
    admin.create_topic(topic_name, configs={"retention.ms": "5000"}, **ONE)
    admin.alter_configs(topic_name, {"cleanup.policy": "compact"})
    admin.alter_configs(topic_name, {})
    # the controller has it; the queried broker may learn of it a moment later
    assert wait_until(lambda: admin.configs(topic_name)["cleanup.policy"] == "compact", timedelta(seconds=20))
    assert admin.configs(topic_name)["retention.ms"] == "5000"


@pytest.mark.integration
def test_watermarks_count_open_transactions(stack: LocalStack, admin: KafkaAdmin, topic_name: str) -> None:
    admin.create_topic(topic_name, partitions=2, replication_factor=1, configs={})
    producer = Producer({"bootstrap.servers": stack.brokers["a"].bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"x", partition=0)
    producer.flush(30)
    p, empty, absent = (TopicPartition(topic_name, number) for number in (0, 1, 2))
    foreign = TopicPartition(f"{topic_name}-absent", 0)
    assert admin.watermarks([p, empty, absent, foreign]) == {p: Watermarks(0, 1), empty: Watermarks(0, 0)}
    assert admin.watermarks([]) == {}
    assert admin.high_watermarks([p, empty, absent, foreign]) == {p: 1, empty: 0}
    producer.abort_transaction(30)


@pytest.mark.integration
def test_offsets_by_time_end_at_the_high_watermark(stack: LocalStack, admin: KafkaAdmin, topic_name: str) -> None:
    wide = {"message.timestamp.before.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    admin.create_topic(topic_name, configs=wide, **ONE)
    p, absent = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    for seconds in (10, 20, 30):
        record = WireRecord(timestamp_ms=seconds * 1000)
        produce(stack.brokers["a"].bootstrap, topic_name, 0, record)

    def at(seconds: float) -> int:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        found = admin.offsets_at([p, absent], moment)
        assert set(found) == {p}
        return found[p]

    assert [at(0), at(10), at(10.001), at(30), at(30.001)] == [0, 0, 1, 2, 3]


@pytest.mark.integration
def test_missing_topics_are_left_out_or_named(admin: KafkaAdmin, topic_name: str) -> None:
    assert admin.describe([topic_name]) == {}
    assert admin.describe([]) == {}
    with pytest.raises(TargetError, match=f"{topic_name}: there is no such topic"):
        admin.configs(topic_name)
    admin.create_topic(there := f"{topic_name}-there", configs={}, **ONE)
    found = admin.configs_of([topic_name, there])
    assert (str(found[topic_name]), "cleanup.policy" in cast("Mapping[str, str]", found[there])) == (
        f"describe the settings of topic {topic_name}: there is no such topic",
        True,
    )
    with pytest.raises(TargetError, match="there is no such topic"):
        admin.alter_configs(topic_name, {"retention.ms": "1"})
    assert admin.cluster_id()


@pytest.mark.integration
def test_a_rejection_has_the_reason(admin: KafkaAdmin, topic_name: str) -> None:
    with pytest.raises(TargetError, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topic(topic_name, partitions=1, replication_factor=9, configs={})
    with pytest.raises(TargetError, match="TOPIC_EXCEPTION"):
        admin.create_topic("not a name", configs={}, **ONE)
    admin.create_topic(topic_name, configs={}, **ONE)
    with pytest.raises(TargetError, match="INVALID_CONFIG"):
        admin.alter_configs(topic_name, {"retention.ms": "soon"})


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        (lambda admin: admin.cluster_id(), "describe the cluster"),
        (lambda admin: admin.topics(), "list the topics"),
        (lambda admin: admin.describe(["orders"]), "describe topic orders"),
        (lambda admin: admin.configs("orders"), "settings of topic orders"),
        (lambda admin: admin.create_topic("orders", configs={}, **ONE), "create topic orders"),
        (lambda admin: admin.watermarks([TopicPartition("orders", 3)]), "list offsets of orders/3"),
    ],
)
def test_calls_without_a_broker_fail(
    unreachable: KafkaAdmin, call: Callable[[KafkaAdmin], object], operation: str
) -> None:
    with pytest.raises(BrokerUnavailable, match=operation):
        call(unreachable)


def test_a_partition_without_a_leader_differs_from_a_cluster_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those who ask about many go on with the others."""
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})

    def without_leader(*_: object) -> None:
        raise LeaderNotFound("_NOENT")

    monkeypatch.setattr(admin, "_list_offsets_of_batch", without_leader)
    monkeypatch.setattr(admin, "describe", lambda _: {"t": TopicFacts("t", "id", 1)})
    with pytest.raises(LeaderNotFound, match="list offsets of t/0: _NOENT"):
        admin.ends([TopicPartition("t", 0)])
    assert admin.ends([TopicPartition("gone", 0)]) == {}
