"""The stack that faults happen on: sessions and transactions of a second or two, so that a case is short."""

from __future__ import annotations

from collections.abc import Mapping

from infra.local.stack import LocalStack

BROKER: Mapping[str, str] = {
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


def fault_stack() -> LocalStack:
    """Not entered."""
    return LocalStack(broker_config=BROKER)
