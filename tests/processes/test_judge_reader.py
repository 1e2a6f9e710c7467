"""The judge's reader on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.infra.kafka_wire import WireRecord, produce
from tests.processes.harness import A
from tests.processes.judge import Reader
from tests.processes.traffic import create_topic

PATIENCE = timedelta(seconds=60)


@pytest.mark.integration
def test_a_beginning_that_moves_before_anything_is_read(stack: LocalStack, unique: Callable[[str], str]) -> None:
    """Ingress deletes the records of a filled hole: the reader may know the beginning from before."""
    topic, bootstrap = unique("moves"), stack.brokers[A].bootstrap
    create_topic(bootstrap, topic, 1)
    for value in (b"gone", b"gone", b"kept"):
        produce(bootstrap, topic, 0, WireRecord(key=None, value=value, headers=(), timestamp_ms=1))
    admin = AdminClient({"bootstrap.servers": bootstrap})  # which answers only as long as it is kept
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(30)
    with closing(Reader(bootstrap, topic, 1, isolation="read_committed")) as reader:
        reader._consumer.assign([TopicPartition(topic, 0, 0)])  # where it began when the reader asked

        def has_read() -> bool:
            reader.read()
            return reader.count() == 1

        assert wait_until(has_read, PATIENCE)
