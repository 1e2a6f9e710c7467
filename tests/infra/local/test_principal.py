"""The secured listener: a principal has only the permissions that ACLs give; the other listener requires none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from formats.errors import TargetError
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.stack import LocalStack
from tests.infra.cluster import Cluster
from tests.infra.principal import DESCRIBE, TOPIC, Principal

pytestmark = pytest.mark.integration


def test_a_permission_is_granted_and_revoked(stack: LocalStack, unique: Callable[[str], str], topic_name: str) -> None:
    broker = stack.brokers["b"]
    Cluster(broker).create(topic_name)
    principal = Principal(broker, unique("worker"))
    admin = KafkaAdmin(principal.properties)
    with pytest.raises(TargetError, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.describe([topic_name])
    principal.allow(TOPIC, topic_name, DESCRIBE)
    assert admin.describe([topic_name])[topic_name].partition_count == 1
    principal.forbid(TOPIC, topic_name, DESCRIBE)
    principal.allow(TOPIC, topic_name[:8], DESCRIBE, prefixed=True)
    assert topic_name in admin.describe([topic_name])


def test_an_unknown_principal_cannot_log_in(stack: LocalStack, unique: Callable[[str], str]) -> None:
    principal = Principal(stack.brokers["b"], unique("worker"))
    admin = KafkaAdmin({**principal.properties, "sasl.password": "another"})
    with pytest.raises(KafkaException) as caught:
        admin.connection.client.list_topics(timeout=2)
    assert caught.value.args[0].code() in (KafkaError._AUTHENTICATION, KafkaError._TRANSPORT)
