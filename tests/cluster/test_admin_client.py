"""Questions to a cluster of which one broker is gone: another one answers them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.topic_log import TopicLog
from tests.processes.traffic import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.local.cluster import BrokerCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

TIMEOUT = timedelta(seconds=20)
ANSWER = timedelta(seconds=10)  # as the checkpoint store has it
PROMPT_SECONDS = 10.0  # half of it: an answer, not the end of a wait
QUESTIONS = 3
NEW_TOPICS = 20


def test_another_broker_answers_when_the_one_asked_is_gone(cluster: BrokerCluster, topic_name: str) -> None:
    create_topic(cluster.bootstrap, topic_name, 2)
    cluster.wait_until_in_sync(cluster.brokers, [topic_name])
    admin = KafkaAdmin({"bootstrap.servers": cluster.bootstrap}, timeout=TIMEOUT)
    admin.describe([topic_name])
    kill_the_one_asked(cluster, admin)
    for _ in range(QUESTIONS):
        began, worked = time.monotonic(), time.process_time()
        assert admin.describe([topic_name])[topic_name].partition_count == 2
        assert time.monotonic() - began < PROMPT_SECONDS
        assert time.process_time() - worked < (time.monotonic() - began) / 4 + 0.1, "it is busy with waiting"


def test_a_topic_made_by_another_client_has_settings_at_once(
    cluster: BrokerCluster, unique: Callable[[str], str]
) -> None:
    """As ingress processes find them that are started together: each broker hears of a new topic by itself."""
    one, *others = [KafkaAdmin({"bootstrap.servers": cluster.bootstrap}, timeout=TIMEOUT) for _ in range(4)]
    for _ in range(NEW_TOPICS):
        name = unique("new")
        one.create_topic(name, partitions=1, replication_factor=-1, configs={"retention.ms": "1234567"})
        for other in others:
            assert other.configs(name)["retention.ms"] == "1234567"


def test_a_log_is_described_when_the_broker_asked_is_gone(cluster: BrokerCluster, topic_name: str) -> None:
    create_topic(cluster.bootstrap, topic_name, 1)
    cluster.wait_until_in_sync(cluster.brokers, [topic_name])
    properties = {"bootstrap.servers": cluster.bootstrap}
    log = TopicLog(properties, topic_name, answer_within=ANSWER, check_every=timedelta(seconds=1))
    try:
        facts = log.facts()
        kill_the_one_asked(cluster, log)
        assert log.facts().topic_id == facts.topic_id  # else BrokerUnavailable, until the broker is back
    finally:
        log.close()


def kill_the_one_asked(cluster: BrokerCluster, asking: KafkaAdmin | TopicLog) -> None:
    """The broker that the client takes for the controller: KRaft names any."""
    client = asking.connection.client if isinstance(asking, KafkaAdmin) else asking._admin
    controller = client.list_topics(timeout=TIMEOUT.total_seconds()).controller_id
    cluster.brokers[controller].kill()
