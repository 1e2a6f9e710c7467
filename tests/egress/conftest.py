"""The world of the tests of egress: topic t of two partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.topic_selection import TopicRule
from replicator.config import EgressTopicSettings
from tests.egress.two_partitions import Make
from tests.egress.world import World


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A world with topic t, of two partitions unless the test says another number."""
    made: list[World] = []

    def one(*rules: TopicRule[EgressTopicSettings], partitions: int = 2) -> World:
        world = World(tmp_path, *rules)
        world.broker.create("t", partitions=partitions)
        made.append(world)
        return world

    yield one
    for world in made:
        world.close()


@pytest.fixture
def world(make: Make) -> World:
    return make()
