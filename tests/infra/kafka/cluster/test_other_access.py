"""A cluster of Amazon MSK with IAM: ACLs of Kafka are neither read nor changed, without a request."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.policies.acls import AclBinding
from infra.contracts.catalog import OtherAccessControl
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.settings.kafka import KafkaSettings

BINDING = AclBinding(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> KafkaCatalogAdmin:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    base = {"bootstrap.servers": "127.0.0.1:1"}  # where no broker answers
    settings = KafkaSettings(base=base, auth="aws-msk-iam", auth_region="eu-west-1")
    return KafkaCatalogAdmin(AdminConnection(settings.properties("admin"), timeout=timedelta(seconds=60)))


def test_nothing_is_asked_and_the_reason_is_given(admin: KafkaCatalogAdmin) -> None:
    why = 'access to this cluster is controlled by AWS IAM \\(auth = "aws-msk-iam"\\), and not by ACLs of Kafka'
    with pytest.raises(OtherAccessControl, match=f"^describe the ACLs: {why}"):
        admin.acls()
    with pytest.raises(OtherAccessControl, match=f"^create ACLs: {why}"):
        admin.create_acls([BINDING])
    with pytest.raises(OtherAccessControl, match=f"^delete ACLs: {why}"):
        admin.delete_acls([BINDING])
    assert not admin.sees_all_acls()
    assert admin.create_acls([]) == {}
