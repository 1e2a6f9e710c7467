"""Translates the Kafka client's errors to those of `formats.errors`, which say who has to act, with a remedy.

The only place that decides, for every adapter of this package, whether an operation is worth retrying.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from formats.errors import BrokerUnavailable, OwnershipLost, ReplicatorError, TargetError

PARTITION_EOF = KafkaError._PARTITION_EOF


UNAUTHORISED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
    }
)
"""Another member, or a newer instance of this one, has taken over."""

REFUSED = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
"""Permanent: a retry gives the same answer."""

UNREACHABLE = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._SSL}
)
"""No broker answered, or none that uses the configured protocol."""


def error_of(error: KafkaException | KafkaError) -> KafkaError:
    """The KafkaError inside: the client raises a KafkaException around it."""
    return error.args[0] if isinstance(error, KafkaException) else error


def describe_error(error: KafkaException | KafkaError) -> str:
    """`NAME (text)`, for a log line or the end of a message."""
    inner = error_of(error)
    return f"{inner.name()} ({inner.str()})"


CREDENTIALS = "correct the credentials in [kafka], or restore the principal's password"
_RESOURCES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
_INCLUDING = {"topic": "READ and WRITE include", "group": "READ includes"}


def remedy(error: KafkaError, needs: str) -> str:
    """What to do about an error of UNAUTHORISED; empty for any other. `needs`: the operation that was denied."""
    if error.code() not in UNAUTHORISED:
        return ""
    resource = _RESOURCES.get(error.code())
    if needs == "DESCRIBE" and resource in _INCLUDING:
        needs = f"DESCRIBE, which {_INCLUDING[resource]},"  # the operation needed next, the one in docs/rights.md
    return f"allow {needs} on the {resource} to the principal of [kafka]" if resource else CREDENTIALS


def translate(error: KafkaException | KafkaError, operation: str, needs: str = "DESCRIBE") -> ReplicatorError:
    """Our error for the client's. `operation`: what was tried and where, as in `list offsets of orders/3`. `needs`: the
    operation that an ACL must allow for it, on the topic or group that the error is about."""
    inner = error_of(error)
    message = f"{operation}: {describe_error(inner)}"
    if inner.code() in UNAUTHORISED:
        return TargetError(f"{message}; {remedy(inner, needs)}")
    if inner.code() in FENCED:
        return OwnershipLost(f"{message}. Another member took over; this one must join again")
    if inner.code() in REFUSED:
        return TargetError(message)
    if inner.code() in UNREACHABLE:
        return BrokerUnavailable(f"{message}. No broker answered: check bootstrap.servers and security.protocol")
    return BrokerUnavailable(message)
