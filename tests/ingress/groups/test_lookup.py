"""What a lookup is opened with: the destinations as they are when everything else was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import Author, Checkpoint
from formats.messages.map_key import MapKey
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import PartitionPages
from ingress.groups.lookup import MapLookup, MapReader, NotKnownNow
from ingress.groups.translation import Exactness, Translation
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.ingress.groups.offset_maps import KEY, page

HERE = TopicPartition("us.orders", 3)
CHECKPOINT = Checkpoint(120, KEY.destination_id, datetime(2026, 3, 4, tzinfo=UTC), Author.EXACTLY_ONCE)


class World:
    def __init__(self) -> None:
        self.broker, self.offset_map = FakeBroker(), FakeOffsetMap()
        self.broker.create(HERE.topic, partitions=4)
        for _ in range(20):
            self.broker.append(HERE, b"x")
        self.admin = FakeAdmin(self.broker, ids={HERE.topic: KEY.destination_id})
        self.offset_map.put(page(0, [(100, 0, 20)]))

    def translate(self, between: Callable[[], None] = lambda: None) -> Translation | str:
        """`between`: after the map is read."""
        read = self.offset_map.read

        def read_then() -> Mapping[MapKey, PartitionPages]:
            found = read()
            between()
            return found

        self.offset_map.read = read_then  # type: ignore[method-assign]
        reader = MapReader(offset_map=self.offset_map, ends=FakeLogEnds(self.broker), admin=self.admin)
        return reader.open([HERE.topic], {KEY.delivery: CHECKPOINT}).target_of(KEY.delivery, 105)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.offset_map.close()


def test_an_offset_of_a_destination(world: World) -> None:
    assert world.translate() == Translation(5, Exactness.EXACT)


def test_a_destination_that_is_created_again_meanwhile_is_not_taken_for_the_one_before(world: World) -> None:
    def recreate() -> None:
        world.admin.ids[HERE.topic] = "another"

    found = world.translate(recreate)
    assert "created again" in str(found)
    assert isinstance(found, NotKnownNow)


def test_what_a_broker_does_not_answer_may_be_known_later(world: World) -> None:
    lookup = MapLookup({}, {KEY.delivery: CHECKPOINT}, {HERE: BrokerUnavailable("no leader")}, {})
    found = lookup.target_of(KEY.delivery, 105)
    assert isinstance(found, NotKnownNow)
    assert "no leader" in found
    assert not isinstance(MapLookup({}, {}, {}, {}).target_of(KEY.delivery, 105), NotKnownNow)


def test_a_destination_that_is_deleted_meanwhile_has_no_translation(world: World) -> None:
    found = world.translate(lambda: world.broker.delete(HERE.topic))
    assert isinstance(found, NotKnownNow)
    assert "does not exist" in found


def test_a_destination_that_may_not_be_described_is_none_without_records(world: World) -> None:
    found = world.translate(lambda: world.admin.hides.update({HERE.topic: "allow DESCRIBE"}))
    assert isinstance(found, NotKnownNow)
    assert "allow DESCRIBE" in found
