"""The properties of MirrorMaker 2's MirrorClient, as the client here takes them."""

from __future__ import annotations

import pytest

from formats.policies.names import DefaultReplicationPolicy, IdentityReplicationPolicy
from replicator.config.client_properties import mirror_client_properties

TEXT = r"""
bootstrap.servers = kafka.eu:9092
security.protocol = SASL_PLAINTEXT
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="me" password="hunter2";
max.poll.records = 5
ssl.ca.location = /etc/ca.pem
replication.policy.separator = __
"""


def test_of_the_java_client_and_of_librdkafka() -> None:
    found = mirror_client_properties(TEXT)
    assert found.client == {
        "bootstrap.servers": "kafka.eu:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "ssl.ca.location": "/etc/ca.pem",
    }
    assert found.policy == DefaultReplicationPolicy("__")


def test_nothing_is_required_here() -> None:
    found = mirror_client_properties("")
    assert (found.client, found.policy) == ({}, DefaultReplicationPolicy())


def test_the_identity_policy_knows_one_cluster() -> None:
    text = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    assert mirror_client_properties(f"{text}source.cluster.alias = us").policy == IdentityReplicationPolicy("us")


def test_everything_that_is_refused_is_named() -> None:
    with pytest.raises(ValueError, match="is no replication policy") as caught:
        mirror_client_properties(
            "ssl.truststore.location = a.jks\nreplication.policy.class = com.acme.Ours\n"
            "sasl.jaas.config = com.acme.Login required;\nreplication.policy.separator = _\n"
            "replication.policy.internal.topic.separator.enabled = false"
        )
    for word in ("ssl.ca.location", "com.acme.Ours", "ScramLoginModule", "internal.topic.separator.enabled"):
        assert word in str(caught.value)
