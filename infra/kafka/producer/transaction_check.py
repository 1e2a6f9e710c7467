"""Asks a cluster whether it would take transactions of a principal, before there is any."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from confluent_kafka import KafkaException, Producer

from formats.errors import BrokerUnavailable
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import UNREACHABLE, describe_error, error_of
from infra.kafka.producer.rejections import writer_rejection


def refusal_of_transactions(
    properties: Mapping[str, str], transactional_id: str, transaction_timeout: timedelta, within: timedelta
) -> str:
    """Why the cluster would refuse a transaction of this id and timeout; empty: it would not. Asks for a producer id,
    which fences any other producer of the same transactional id, and which the cluster forgets after a week. Raises
    BrokerUnavailable, and ConfigError when no token can be made."""
    operation = f"begin to write under the transactional id {transactional_id}"
    producer = connect(
        Producer,
        {
            **properties,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(transaction_timeout.total_seconds() * 1000),
        },
        _Unheard(),
    )
    try:
        producer.init_transactions(within.total_seconds())
    except KafkaException as error:
        if error_of(error).code() in UNREACHABLE or error_of(error).retriable():
            raise BrokerUnavailable(f"{operation}: {describe_error(error)}") from error
        return str(writer_rejection(error_of(error), operation) or f"{operation}: {describe_error(error)}")
    finally:
        with suppress(KafkaException):
            producer.flush(0)
    return ""


class _Unheard:
    """The client logs a refusal as fatal, at any log level: here it is the answer."""

    def log(self, level: int, line: str, *arguments: object) -> None:
        pass
