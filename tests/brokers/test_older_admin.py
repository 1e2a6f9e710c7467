"""Topics of older brokers: made with settings that they know by another name, and told apart by their ids."""

from __future__ import annotations

import pytest

from infra.kafka.client.topic_configs import AFTER, BEFORE, limits_ms
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.stack import LocalStack
from tests.infra.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_limits_of_timestamps_arrive_by_any_name(
    stack: LocalStack, topic_name: str, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["stack"] == "3.0.2":
        pytest.skip("this preview of KRaft takes any name of a setting, and does nothing with it")
    admin = KafkaAdmin({"bootstrap.servers": stack.brokers["b"].bootstrap})
    limits = {BEFORE: "5000", AFTER: "5000"}
    assert admin.create_topic(topic_name, partitions=1, replication_factor=1, configs=limits)
    assert limits_ms(admin.configs(topic_name)) == (5000, 5000)
    assert not admin.create_topic(topic_name, partitions=1, replication_factor=1, configs=limits)


def test_a_topic_created_again_has_another_id(stack: LocalStack, topic_name: str) -> None:
    cluster = Cluster(stack.brokers["a"])
    admin = KafkaAdmin({"bootstrap.servers": stack.brokers["a"].bootstrap})
    cluster.create(topic_name)
    first = admin.describe([topic_name])[topic_name].topic_id
    cluster.delete(topic_name)
    cluster.create(topic_name)
    second = admin.describe([topic_name])[topic_name].topic_id
    assert first
    assert second
    assert first != second
