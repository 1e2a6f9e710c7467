"""What a listing of a partition, or of those of a topic together, sees of an archive that others write to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.keys import begins_prefix, gaps_prefix
from formats.errors import StoreUnavailable
from formats.segment import OffsetRange, SourcePartition, partition_prefix, region_prefix
from infra.contracts.cluster import TopicPartition
from ingress import archive_listing
from ingress.archive_listing import ArchiveListing, FirstListing, ListingRequest
from ingress.assigned_partition import ListedSegments
from tests.fakes.executors import HandExecutor
from tests.ingress.process import Process
from tests.ingress.world import REGION, World

SOURCE = SourcePartition(REGION, "t", 0)
List = Callable[[World], ListedSegments]
T = TypeVar("T")


def alone(world: World) -> ListedSegments:
    listing = ArchiveListing(world.store, world.control, HandExecutor())
    return listing.listed(ListingRequest(source=SOURCE, position=2, full=True, wants_begin=True))


def together(world: World) -> ListedSegments:
    return first_listings(world, [first(SOURCE, 2, wants_begin=True)])[SOURCE]


def first(source: SourcePartition, position: int = 0, *, wants_begin: bool = False, begun_at: int = 0) -> FirstListing:
    request = ListingRequest(source=source, position=position, wants_begin=wants_begin, begun_at=begun_at)
    return FirstListing(request)


def first_listings(world: World, firsts: list[FirstListing]) -> dict[SourcePartition, ListedSegments]:
    ArchiveListing(world.store, world.control, HandExecutor()).ask_firsts(firsts)
    return {one.source: one.answer.result(timeout=0) for one in firsts}


# by what it lists first, of gaps and of segments
LISTINGS = pytest.mark.parametrize(
    ("listed", "prefixes"),
    [
        pytest.param(alone, [gaps_prefix("data", SOURCE), partition_prefix("data", SOURCE, 0)], id="alone"),
        pytest.param(
            together,
            [gaps_prefix("data", SOURCE).removesuffix("0/"), f"{region_prefix('data', REGION)}t/"],
            id="together",
        ),
    ],
)


def after_the_first(world: World, prefixes: list[str], then: Callable[[], None]) -> None:
    """`then`, once, after the first listing of one of `prefixes`."""
    done: list[bool] = []

    def once() -> None:
        if not done:
            done.append(True)
            then()

    for prefix in prefixes:
        world.objects.after_listing[prefix] = once


@LISTINGS
def test_a_segment_that_was_stored_before_its_gap_was_recorded_is_seen_with_it(
    listed: List, prefixes: list[str]
) -> None:
    """A gap is passed where no segment shows. So segments are read after the gaps."""
    world = World()
    world.put(0, 1)
    world.put(4, 5)

    def stored_then_recorded() -> None:
        world.put(2, 3)
        world.record_gap(2, 3)

    after_the_first(world, prefixes, stored_then_recorded)
    found = listed(world)
    assert not set(prefixes) <= world.objects.after_listing.keys(), "neither is what was listed"
    ranges = {info.segment.offsets for info in found.infos}
    assert OffsetRange(2, 3) in ranges or OffsetRange(2, 3) not in found.recorded
    assert OffsetRange(4, 5) in ranges
    assert OffsetRange(2, 3) in {info.segment.offsets for info in listed(world).infos}


@LISTINGS
def test_the_begin_of_a_segment_that_is_seen_is_seen(listed: List, prefixes: list[str]) -> None:
    """It was recorded before the segment was stored. So it is read after the segments."""
    world = World()

    def begun() -> None:
        world.record_begin(0)
        world.put(2, 3)

    world.objects.after_listing[prefixes[0]] = begun
    found = listed(world)
    assert ([info.segment.offsets for info in found.infos], found.begin) == ([OffsetRange(2, 3)], 0)


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 2)), max_size=6, unique=True)


@given(
    segments=st.dictionaries(st.sampled_from([0, 1, 2, 10]), spans, max_size=4),
    gaps=st.dictionaries(st.sampled_from([0, 2, 10]), st.tuples(st.integers(60, 70), st.integers(71, 80))),
    begins=st.dictionaries(st.sampled_from([0, 1, 10]), st.integers(5, 50)),
    lowers=st.booleans(),
    at=st.tuples(st.integers(0, 50), st.integers(0, 30)),
)
def test_together_is_what_each_is_alone(
    segments: dict[int, list[tuple[int, int, int]]],
    gaps: dict[int, tuple[int, int]],
    begins: dict[int, int],
    lowers: bool,
    at: tuple[int, int],
) -> None:
    """`at`: the position, and where the delivery began."""
    (position, begun_at), world = at, World()
    for partition, found in segments.items():
        for start, length, level in found:
            world.put(start, start + length, level=level, partition=partition, notify=False)
    for partition, (start, end) in gaps.items():
        world.record_gap(start, end, partition=partition)
    for partition, offset in begins.items():
        world.record_begin(offset, partition=partition)
        if lowers:
            source = SourcePartition(REGION, "t", partition)
            before = world.control.begins.of(source)
            assert before is not None
            world.control.begins.lower(source, replace(before, offset=offset - 5))
    world.put(0, 3, topic="t2", notify=False)  # its name begins alike
    world.put(0, 3, incarnation="id", topic_id="id", notify=False)
    sources = [SourcePartition(REGION, "t", partition) for partition in (0, 1, 2, 10)]
    listing = ArchiveListing(world.store, world.control, HandExecutor())
    firsts = [first(source, position, wants_begin=True, begun_at=begun_at) for source in sources]
    world.objects.asked.clear()
    listed = first_listings(world, firsts)
    assert asked(world, "list")[f"{region_prefix('data', REGION)}t/"] == 1
    for source, shared in listed.items():
        whole = ListingRequest(source=source, position=position, full=True, wants_begin=True, begun_at=begun_at)
        wanted = listing.listed(whole)
        assert sorted(info.segment for info in shared.infos) == sorted(info.segment for info in wanted.infos)
        assert (list(shared.recorded), shared.begin) == (list(wanted.recorded), wanted.begin)
        assert shared.passed == wanted.passed
        assert not shared.is_cut


def asked(world: World, what: str) -> Counter[str]:
    return Counter(name for operation, name in world.objects.asked if operation == what)


def with_partitions(count: int, segments: int = 2) -> World:
    world = World()
    world.broker.create("copy", partitions=count)
    for partition in range(count):
        world.record_begin(0, partition=partition)
        for number in range(segments):
            world.put(10 * number, 10 * number + 9, partition=partition, partitions=count, notify=False)
    return world


@pytest.mark.parametrize("is_new", [True, False])
def test_a_start_lists_a_topic_and_not_each_of_its_partitions(is_new: bool) -> None:
    count = 100
    world = with_partitions(count)
    process = Process(world)
    process.turn(2)
    if not is_new:
        for partition in range(count):
            world.set_checkpoint(10, partition)
    process.join(*(TopicPartition("copy", partition) for partition in range(count)))
    process.later(0.1, turns=50)
    assert {world.checkpoint(partition) for partition in range(count)} == {20}
    listed = asked(world, "list")
    assert listed.total() <= 20, listed.most_common(5)
    assert sum("/begins/" in name for name in asked(world, "open").elements()) == (count if is_new else 0)


def test_a_topic_with_many_objects_is_listed_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_listing, "PAGE", 30)
    world = with_partitions(10, segments=8)  # 80 objects, two pages
    process = Process(world)
    process.join(*(TopicPartition("copy", partition) for partition in range(10)))
    process.later(0.1, turns=5)
    assert {world.checkpoint(partition) for partition in range(10)} == {80}
    assert asked(world, "list")[partition_prefix("data", SourcePartition(REGION, "t", 9), 0)] == 1


def test_a_topic_with_many_gaps_is_listed_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_listing, "PAGE", 3)
    world = World()
    for start in (0, 10, 20, 30):
        world.record_gap(start, start + 5)
    found = first_listings(world, [first(SOURCE)])
    assert [gap.start for gap in found[SOURCE].recorded] == [0, 10, 20, 30]


def test_a_ninth_level_is_listed_by_partition() -> None:
    """A tenth one sorts before the second: what is merged into it meanwhile is not missed."""
    world = World()
    world.put(0, 9, level=9, notify=False)
    found = first_listings(world, [first(SOURCE)])
    assert [info.segment.level for info in found[SOURCE].infos] == [9]
    assert asked(world, "list")[gaps_prefix("data", SOURCE)] == 1


@pytest.mark.parametrize(
    "prefix", [f"{region_prefix('data', REGION)}t/", begins_prefix("data", REGION, "t")], ids=["segments", "begins"]
)
def test_a_failure_is_that_of_every_partition_and_never_an_absence(prefix: str) -> None:
    world = with_partitions(3)
    process = Process(world)
    process.turn(2)

    def fails(operation: str, name: str) -> None:
        if (operation, name) == ("list", prefix):
            raise StoreUnavailable("planned")

    world.objects.before_each = fails
    world.objects.asked.clear()
    process.join(*(TopicPartition("copy", partition) for partition in range(3)))
    process.later(0.1, turns=5)
    assert [world.checkpoint(partition) for partition in range(3)] == [None] * 3
    assert asked(world, "list")[prefix] == 1
    world.objects.before_each = lambda *_: None
    process.later(60, turns=5)
    assert [world.checkpoint(partition) for partition in range(3)] == [20] * 3


def test_one_begin_that_cannot_be_read_holds_up_its_own_partition_only() -> None:
    world = with_partitions(3)
    process = Process(world)
    process.turn(2)

    def fails(operation: str, name: str) -> None:
        if operation == "open" and name.endswith("/begins/t/1"):
            raise StoreUnavailable("planned")

    world.objects.before_each = fails
    process.join(*(TopicPartition("copy", partition) for partition in range(3)))
    process.later(0.1, turns=5)
    assert [world.checkpoint(partition) for partition in range(3)] == [20, None, 20]


def test_a_pool_that_is_shut_down_meanwhile_answers_nothing() -> None:
    class Ended(HandExecutor):
        def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
            if self.waiting:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self.holding = True
            return super().submit(fn, *args, **kwargs)

    world = with_partitions(2)
    firsts = [first(SOURCE) for _ in range(2)]
    ArchiveListing(world.store, world.control, Ended())._list_each(firsts)
    assert not any(one.answer.done() for one in firsts)
