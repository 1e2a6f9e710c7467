"""Which catalogue is in force when generations arrive, damaged ones and those of newer programs among them."""

from __future__ import annotations

import gzip
from io import BytesIO
from typing import BinaryIO

import pytest

from formats.errors import KeyRefused, KeyUnavailable, StoreUnavailable
from infra.archive.last_good import TRIED, Catalogs, catalogs_in
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.ingress.world import REGION, World, source_topic


@pytest.fixture
def world() -> World:
    return World()


def put(world: World, number: int, data: bytes) -> None:
    world.objects.memory.put_new(f"data/a/_control/v1/catalog/{number:020d}", BytesIO(data), len(data))


def in_force(world: World, catalogs: Catalogs) -> list[str]:
    found = catalogs.refresh([REGION]).get(REGION)
    return [] if found is None else sorted(found.topics)


def test_the_newest_counts(world: World) -> None:
    catalogs = catalogs_in(world.objects, "data")
    assert in_force(world, catalogs) == []
    world.publish_catalog(source_topic("one"))
    assert in_force(world, catalogs) == ["one"]
    world.publish_catalog(source_topic("one"), source_topic("two"))
    assert in_force(world, catalogs) == ["one", "two"]


@pytest.mark.parametrize(
    "data",
    [b"", b"rubbish", gzip.compress(b'{"v":2}', mtime=0), gzip.compress(b"{}", mtime=0)[:-4]],
    ids=["empty", "rubbish", "newer", "cut"],
)
def test_one_that_cannot_be_read_leaves_the_last_good_one_in_force(world: World, data: bytes) -> None:
    world.publish_catalog(source_topic("one"))
    catalogs = catalogs_in(world.objects, "data")
    assert in_force(world, catalogs) == ["one"]
    put(world, 2, data)
    assert in_force(world, catalogs) == ["one"]
    assert "the last good one stays in force" in catalogs.problems[REGION]
    world.publish_catalog(source_topic("three"))
    assert in_force(world, catalogs) == ["three"]
    assert catalogs.problems == {}


@pytest.mark.parametrize(("bad", "wanted"), [(TRIED - 1, ["one"]), (TRIED, [])])
def test_a_process_that_starts_tries_a_few_below_the_newest(world: World, bad: int, wanted: list[str]) -> None:
    world.publish_catalog(source_topic("one"))
    for number in range(bad):
        put(world, 2 + number, b"rubbish")
    catalogs = catalogs_in(world.objects, "data")
    assert in_force(world, catalogs) == wanted
    assert catalogs.problems


class Keyless(MemoryObjectStore):
    """Its objects are there, and the key of all of them cannot be used."""

    def __init__(self, error: KeyUnavailable) -> None:
        super().__init__()
        self.error, self.asked = error, 0

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "asked"),
    [(KeyRefused("another key"), TRIED), (KeyUnavailable("KMS does not answer"), 1)],
    ids=["an earlier one may have another key", "each would wait as long"],
)
def test_a_key_that_cannot_be_used_is_a_problem_of_its_region(error: KeyUnavailable, asked: int) -> None:
    store = Keyless(error)
    for number in range(1, TRIED + 3):
        store.put_new(f"data/a/_control/v1/catalog/{number:020d}", BytesIO(b"x"), 1)
    catalogs = catalogs_in(store, "data")
    assert catalogs.refresh([REGION]) == {}
    assert str(error) in catalogs.problems[REGION]
    assert store.asked == asked


def test_a_store_that_fails_is_no_absence(world: World) -> None:
    world.publish_catalog(source_topic("one"))
    catalogs = catalogs_in(world.objects, "data")
    assert in_force(world, catalogs) == ["one"]
    world.objects.away = {"list"}
    with pytest.raises(StoreUnavailable):
        catalogs.refresh([REGION])
    world.objects.away = set()
    assert in_force(world, catalogs) == ["one"]


def test_an_unchanged_catalogue_costs_one_listing(world: World) -> None:
    world.publish_catalog(source_topic("one"))
    catalogs = catalogs_in(world.objects, "data")
    catalogs.refresh([REGION])
    before = world.objects.calls.copy()
    catalogs.refresh([REGION])
    assert world.objects.calls - before == {"list": 1}


def test_an_object_that_is_repaired_is_read_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.publish_catalog(source_topic("one"))
    world.publish_catalog(source_topic("two"))
    key = f"data/a/_control/v1/catalog/{2:020d}"
    good = world.objects.memory.open(key).read()
    world.objects.memory.replace(key, b"rubbish")
    catalogs = catalogs_in(world.objects, "data")
    for _ in range(3):
        assert in_force(world, catalogs) == ["one"]
    assert [record.message for record in caplog.records] == ["control_object_not_readable"], "logged once"
    world.objects.memory.replace(key, good)
    assert in_force(world, catalogs) == ["two"]
    assert catalogs.problems == {}
