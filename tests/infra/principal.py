"""A principal of a secured broker: it has only the permissions that a test grants.

worker = Principal(stack.brokers["b"], unique("worker"))
worker.allow(GROUP, "g", READ)
Consumer({**worker.properties, "group.id": "g"})
worker.forbid(GROUP, "g", READ)      # revokes the permission
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.local.broker import Broker
from infra.local.waiting import wait_until

PATIENCE = timedelta(seconds=30)
ASK_SECONDS = 10.0
ITERATIONS = 4096  # Kafka's minimum

T = TypeVar("T")

TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE
DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS


class Principal:
    """`name` is both its user name and its password."""

    def __init__(self, broker: Broker, name: str) -> None:
        """Create the principal; it can log in when this returns."""
        self.name = name
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
        made = self._admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(name, credential, name.encode())], request_timeout=ASK_SECONDS
        )
        made[name].result(ASK_SECONDS)
        assert wait_until(self._can_log_in, PATIENCE), f"{name} cannot log in"

    @property
    def properties(self) -> Mapping[str, str]:
        return {
            "bootstrap.servers": self._broker.secured_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": self.name,
            "sasl.password": self.name,
        }

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        """Grant permissions, in effect when this returns. `prefixed`: for all resources with `name` as prefix."""
        bindings = [self._acl(AclBinding, kind, name, operation, prefixed=prefixed) for operation in operations]
        for future in self._admin.create_acls(bindings, request_timeout=ASK_SECONDS).values():
            future.result(ASK_SECONDS)
        for operation in operations:
            wanted = self._acl(AclBindingFilter, kind, name, operation, prefixed=prefixed)
            assert wait_until(partial(self._has, wanted), PATIENCE)

    def forbid(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        """Revoke permissions granted with the same arguments."""
        filters = [self._acl(AclBindingFilter, kind, name, operation, prefixed=prefixed) for operation in operations]
        for future in self._admin.delete_acls(filters, request_timeout=ASK_SECONDS).values():
            assert future.result(ASK_SECONDS), f"{self.name} had no such permission: {kind} {name} {operations}"
        for each in filters:
            assert wait_until(partial(self._lacks, each), PATIENCE)

    def _acl(
        self, make: Callable[..., T], kind: ResourceType, name: str, operation: AclOperation, *, prefixed: bool
    ) -> T:
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        return make(kind, name, pattern, f"User:{self.name}", "*", operation, AclPermissionType.ALLOW)

    def _has(self, wanted: AclBindingFilter) -> bool:
        return bool(self._admin.describe_acls(wanted, request_timeout=ASK_SECONDS).result(ASK_SECONDS))

    def _lacks(self, wanted: AclBindingFilter) -> bool:
        return not self._has(wanted)

    def _can_log_in(self) -> bool:
        """The broker knows a new principal shortly after the controller does."""
        try:
            AdminClient({**self.properties, "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        return True
