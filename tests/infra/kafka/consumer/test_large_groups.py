"""Where a group is too large for one write of its coordinator, by a real broker: the figures of `bench.deployment`,
which `docs/scale.md` shows. The limit is lowered, instead of a group with a hundred thousand partitions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.deployment import Deployment
from formats.errors import OwnershipLost
from infra.contracts.cluster import TopicPartition
from infra.kafka.consumer.placement import KafkaPlacement
from infra.local.stack import LocalStack
from infra.runtime.lifecycle import Deadline
from tests.infra.kafka.consumer.test_placement import Owner

pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPICS, EACH = 20, 100
NAMES = [f"topic.{number:06d}" for number in range(TOPICS)]
PARTITIONS = {TopicPartition(name, number) for name in NAMES for number in range(EACH)}
TURN = timedelta(milliseconds=50)
PATIENCE = timedelta(seconds=60)
IN_VAIN = timedelta(seconds=20)  # three times what the larger groups here take


def group(processes: int) -> Deployment:
    return Deployment(partitions=TOPICS * EACH, topics=TOPICS, processes=processes, topic_name_bytes=len(NAMES[0]))


class Coordinator:
    """A broker whose groups may write so many bytes at once."""

    def __init__(self, stack: LocalStack) -> None:
        self.bootstrap = stack.brokers["a"].bootstrap
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in self._admin.create_topics([NewTopic(name, EACH, 1) for name in NAMES]).values():
            future.result(60)
        self.joined("classic", 1)  # creates the topic of the groups

    def limit(self, size: int) -> None:
        entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, "__consumer_offsets", incremental_configs=[entry])
        self._admin.incremental_alter_configs([topic])[topic].result(30)

    def joined(self, protocol: str, members: int, within: timedelta = PATIENCE) -> list[int]:
        """Partitions of each member of a new group, which join one after the other: as many as it should have, or
        those at the end of the time. Raises OwnershipLost."""
        name, joined, counts = uuid.uuid4().hex, list[tuple[Owner, KafkaPlacement]](), list[int]()
        properties = {"bootstrap.servers": self.bootstrap, "group.protocol": protocol}
        try:
            for number in range(1, members + 1):
                owner, placement = Owner(), KafkaPlacement(properties, group_id=name)
                joined.append((owner, placement))
                placement.subscribe(NAMES, owner)
                deadline, counts = Deadline(within), []
                while counts != [len(PARTITIONS) // number] * number and not deadline.expired:
                    for _, each in joined:
                        each.poll(TURN)
                    counts = [len(each.owned) for each, _ in joined]
            return counts
        finally:
            for _, placement in joined:
                placement.close(timedelta(seconds=5))


@pytest.fixture(scope="module")
def coordinator(run_stack: Callable[..., AbstractContextManager[LocalStack]]) -> Iterator[Coordinator]:
    with run_stack(regions=("a",), broker_config={"offsets.topic.num.partitions": "1"}) as stack:
        yield Coordinator(stack)


def test_a_classic_group_of_one(coordinator: Coordinator) -> None:
    coordinator.limit(7_000)
    assert coordinator.joined("classic", 1, IN_VAIN) == [0]
    coordinator.limit(9_000)
    assert coordinator.joined("classic", 1) == [2_000]
    assert 7_000 < group(1).group_record_bytes < 9_000 + len(NAMES) * 20


def test_a_classic_group_of_two(coordinator: Coordinator) -> None:
    coordinator.limit(27_000)
    assert coordinator.joined("classic", 2, IN_VAIN) == [2_000, 0]
    coordinator.limit(40_000)
    assert coordinator.joined("classic", 2) == [1_000, 1_000]
    assert 27_000 < group(2).group_record_bytes < 40_000


def test_a_group_of_kip_848(coordinator: Coordinator) -> None:
    """The largest write is that of the first member, which is assigned everything. Its client ends for good."""
    coordinator.limit(25_000)
    with pytest.raises(OwnershipLost, match="ConsumerGroupHeartbeat"):
        coordinator.joined("consumer", 1)
    coordinator.limit(26_000)
    assert coordinator.joined("consumer", 2) == [1_000, 1_000]
    assert 25_000 < group(1).group_write_bytes < 26_000
