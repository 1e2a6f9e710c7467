"""Names of the users that have SCRAM credentials at a cluster. Credentials are in no bucket: they do not cross."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # its stubs hide what it documents

from formats.errors import TargetError
from infra.kafka.client.errors import translate
from infra.kafka.cluster.admin_connection import AdminConnection

OPERATION, NEEDS = "list the SCRAM users", "DESCRIBE on the cluster"


def may_describe_cluster(connection: AdminConnection) -> bool:
    """False when it is not known. Ask seldom, and after a request that a broker has answered: librdkafka 2.16 ends the
    process when the answer names no live broker."""
    future = connection.client.describe_cluster(
        include_authorized_operations=True, request_timeout=connection.timeout.total_seconds()
    )
    try:
        found = connection.wait(future, "ask for the operations that are allowed on the cluster")
    except KafkaException:
        return False
    return AclOperation.DESCRIBE in (found.authorized_operations or ())


def scram_users(connection: AdminConnection) -> frozenset[str]:
    """For a command, not for a service: librdkafka 2.16 corrupts its memory when the cluster refuses this request
    (seen: `munmap_chunk(): invalid pointer`), so it is made only right after the cluster has named it as allowed.
    Raises BrokerUnavailable, and TargetError without the right."""
    timeout = connection.timeout.total_seconds()
    try:
        connection.wait_for(lambda: connection.client.list_topics(timeout=timeout), OPERATION)
        if not may_describe_cluster(connection):
            raise TargetError(f"{OPERATION}: not authorised; allow {NEEDS} to the principal of this client")
        future: Any = connection.client.describe_user_scram_credentials(request_timeout=timeout)  # one, of all users
        return frozenset(connection.wait(future, OPERATION))
    except KafkaException as error:
        raise translate(error, OPERATION, needs=NEEDS) from error
