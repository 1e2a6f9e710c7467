"""What catalogues say of a source's topic at the moment that is restored to."""

from __future__ import annotations

from datetime import datetime

import pytest

from formats.control.catalog import RemovedTopic
from formats.int_range import IntRange
from infra.archive.generation_history import catalog_history
from infra.archive.generations import Generations
from replicator.restore.source_catalog import NotDescribed, SourceCatalog, SourceDescription, moment_of
from tests.ingress.world import REGION, World, source_topic
from tests.replicator.restore.planned import select


@pytest.fixture
def world() -> World:
    return World()


def asked(world: World, moment: datetime | None = None) -> SourceCatalog:
    return SourceCatalog(catalog_history(world.objects.memory, "data", REGION), REGION, moment)


def described(world: World, moment: datetime | None = None, topic_id: str = "") -> tuple[int, int]:
    """Generation, and partitions."""
    found = asked(world, moment).describe("t", topic_id)
    assert isinstance(found, SourceDescription), found
    return found.generation, found.topic.partitions


def why_not(world: World, moment: datetime | None = None, topic_id: str = "") -> str:
    found = asked(world, moment).describe("t", topic_id)
    assert isinstance(found, NotDescribed), found
    return found.why


def grown(world: World) -> list[datetime]:
    """Of 1, then 2, then 3 partitions; when each was observed."""
    times = []
    for partitions in (1, 2, 3):
        world.clock.advance(60)
        times.append(world.clock.at)
        world.publish_catalog(source_topic(partitions=partitions))
    return times


def test_as_it_was_at_the_moment(world: World) -> None:
    first, second, _ = grown(world)
    assert described(world) == (3, 3)
    assert described(world, second) == (2, 2)
    assert described(world, first + (second - first) / 2) == (1, 1)
    assert described(world, second, "id-t") == (2, 2)


def test_before_the_first_and_without_any(world: World) -> None:
    assert why_not(world) == "the archive has no catalogue of a"
    begin = world.clock.at
    first, *_ = grown(world)
    assert why_not(world, begin) == f"no catalogue of a is that old: the first one is of {first.isoformat()}"


def test_a_removed_topic_is_as_it_was_before(world: World) -> None:
    *_, last = grown(world)
    world.clock.advance(60)
    gone = RemovedTopic(name="t", topic_id="id-t", removed_at=world.clock.at)
    for _ in range(3):
        world.publish_catalog(source_topic("other"), removed=[gone])
        world.clock.advance(60)
    assert described(world) == (3, 3)
    assert described(world, None, "id-t") == (3, 3)
    assert described(world, last) == (3, 3)
    assert why_not(world, None, "another") == "catalogue 6 of a does not list t"


def test_a_topic_that_was_created_again_is_another_one(world: World) -> None:
    grown(world)
    world.clock.advance(60)
    before = RemovedTopic(name="t", topic_id="id-before", removed_at=world.clock.at)
    world.publish_catalog(source_topic(partitions=9), removed=[before])
    assert described(world, None, "id-t") == (4, 9)
    assert "t was removed at" in why_not(world, None, "id-before"), "the generations before list id-t"
    assert why_not(world, None, "id-x").endswith("its topic id is id-t, that of the archive is id-x")


def test_one_that_cannot_be_read_is_reported_with_the_one_that_is_used(world: World) -> None:
    grown(world)
    world.objects.memory.replace(Generations(world.objects, "data/a/_control/v1/catalog/").key(3), b"rubbish")
    catalog = asked(world)
    found = catalog.describe("t", "")
    assert isinstance(found, SourceDescription)
    assert found.generation == 2
    [problem] = catalog.problems
    assert "generation 2 before it is used" in problem
    assert "catalog/00000000000000000003" in problem
    assert problem.endswith("upgrade this program if the source's is newer")


def test_none_that_can_be_read(world: World) -> None:
    grown(world)
    for number in (1, 2, 3):
        world.objects.memory.replace(Generations(world.objects, "data/a/_control/v1/catalog/").key(number), b"rubbish")
    catalog = asked(world)
    assert catalog.describe("t", "") == NotDescribed("no catalogue of a can be read")
    assert "none before it can be used" in catalog.problems[0]


def test_the_moment_is_the_end_of_the_selected_timestamps() -> None:
    assert moment_of(select()) is None
    assert moment_of(select(timestamps=IntRange(5, IntRange().high))) is None
    moment = moment_of(select(timestamps=IntRange(0, 1_699_999_999_999)))
    assert moment == datetime.fromisoformat("2023-11-14T22:13:20+00:00")
    assert moment_of(select(timestamps=IntRange(0, IntRange().high - 1))) is None, "further than a date can be"


def test_a_catalogue_is_read_once_for_all_topics(world: World) -> None:
    grown(world)
    catalog = asked(world)
    first = catalog.describe("t", "")
    world.publish_catalog(source_topic(partitions=9))
    assert catalog.describe("t", "") == first
    assert isinstance(first, SourceDescription)
    assert str(first).startswith("catalogue 3, observed at 20")
