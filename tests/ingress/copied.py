"""The names that the tests of the ingress loop share: topic t of region a, delivered to copy."""

from __future__ import annotations

from datetime import timedelta

from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process, joined
from tests.ingress.world import LOST, World

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)
LABELS = {"region": "a", "topic": "t", "partition": "0"}
RECORD_LABELS = LABELS | {"destination": "copy"}
SOURCE = SourcePartition("a", "t", 0)
PATIENCE = timedelta(seconds=20)


def lose_one(world: World) -> Process:
    world.put(0, 1)
    process = joined(world)
    world.put(4, 5)
    process.turn(2)
    for _ in range(30):
        process.later(LOST / 20)
    return process
