"""The names that the tests of the egress loop share: topic t of two partitions."""

from __future__ import annotations

from collections.abc import Callable

from infra.contracts.cluster import TopicPartition
from tests.egress.world import Process, World

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
LABELS = {"topic": "t", "partition": "0"}
Make = Callable[..., World]


def joined(world: World, *partitions: TopicPartition, **options: object) -> Process:
    process = world.process(**options)
    process.join(*partitions)
    return process
