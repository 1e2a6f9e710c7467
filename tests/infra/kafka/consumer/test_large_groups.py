"""Where a group is too large for one record of the broker, as `docs/scale.md` says: by a broker whose limit is a
hundredth of the default, 1 MB."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.deployment import Deployment
from infra.contracts.cluster import TopicPartition
from infra.kafka.consumer.placement import KafkaPlacement
from infra.local.stack import LocalStack
from infra.runtime.lifecycle import Deadline
from tests.infra.kafka.consumer.test_placement import Owner

pytestmark = [pytest.mark.integration, pytest.mark.long]

LIMIT = 10_000  # bytes of a record
TOPICS, EACH = 20, 100
TURN = timedelta(milliseconds=100)
PATIENCE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def stack(run_stack: Callable[..., AbstractContextManager[LocalStack]]) -> Iterator[LocalStack]:
    with run_stack(regions=("a",), broker_config={"message.max.bytes": str(LIMIT)}) as stack:
        yield stack


@pytest.fixture(scope="module")
def partitions(stack: LocalStack) -> set[TopicPartition]:
    names = [f"topic.{number:06d}" for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": stack.brokers["a"].bootstrap})
    for future in admin.create_topics([NewTopic(name, EACH, 1) for name in names]).values():
        future.result(60)
    return {TopicPartition(name, number) for name in names for number in range(EACH)}


def joined(stack: LocalStack, partitions: set[TopicPartition], protocol: str) -> tuple[set[TopicPartition], str]:
    """What a member of a group of its own is assigned, and its problem, whichever comes first."""
    properties = {"bootstrap.servers": stack.brokers["a"].bootstrap, "group.protocol": protocol}
    owner, placement = Owner(), KafkaPlacement(properties, group_id=f"large-{uuid.uuid4().hex}")
    deadline = Deadline(PATIENCE)
    try:
        placement.subscribe({one.topic for one in partitions}, owner)
        while owner.owned != partitions and not placement.problem and not deadline.expired:
            placement.poll(TURN)
        return owner.owned, placement.problem
    finally:
        placement.close(timedelta(seconds=5))


def test_the_record_of_a_classic_group_is_larger_than_the_limit() -> None:
    group = Deployment(partitions=TOPICS * EACH, topics=TOPICS, processes=1, topic_name_bytes=len("topic.000000"))
    assert group.group_record_bytes > LIMIT


def test_a_classic_group_that_is_too_large_says_so(stack: LocalStack, partitions: set[TopicPartition]) -> None:
    owned, problem = joined(stack, partitions, "classic")
    assert not owned
    assert problem


def test_a_group_of_kip_848_is_not(stack: LocalStack, partitions: set[TopicPartition]) -> None:
    assert joined(stack, partitions, "consumer") == (partitions, "")
