from __future__ import annotations

from datetime import UTC, datetime, timedelta

from replicator.console.segment_map import PartitionSegments
from replicator.console.segment_maps import SegmentMaps
from replicator.console.site import PartitionKey
from tests.replicator.console.console_states import segments_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ONE, TWO = ("us", "t", 1), ("us", "t", 2)
AGE = timedelta(seconds=30)


def seconds(n: float) -> datetime:
    return NOW + timedelta(seconds=n)


def test_a_map_is_listed_once_however_often_it_is_asked_for() -> None:
    maps = SegmentMaps(AGE)
    assert [maps.want(ONE, seconds(n / 10)) for n in range(10)] == [None] * 10
    assert maps.due(seconds(1)) == ONE
    maps.put(ONE, segments_of(ONE), seconds(1))
    assert maps.due(seconds(2)) is None
    assert maps.want(ONE, seconds(3)) == segments_of(ONE)
    assert maps.due(seconds(30)) is None
    assert maps.due(seconds(31)) == ONE  # it was wanted since, and is old


def test_a_map_that_is_not_wanted_any_more_is_not_listed_again() -> None:
    maps = SegmentMaps(AGE)
    maps.want(ONE, seconds(0))
    maps.put(ONE, segments_of(ONE), seconds(1))
    assert maps.due(seconds(3600)) is None


def test_maps_that_were_never_listed_come_first() -> None:
    maps = SegmentMaps(AGE)
    maps.want(ONE, seconds(0))
    maps.put(ONE, segments_of(ONE), seconds(1))
    maps.want(ONE, seconds(40))
    maps.want(TWO, seconds(41))
    assert maps.due(seconds(42)) == TWO


def test_the_number_of_maps_is_bounded() -> None:
    maps = SegmentMaps(AGE, most=3)
    for n in range(10):
        maps.want(("us", "t", n), seconds(n))
    found = set[PartitionKey]()
    while (where := maps.due(seconds(20))) is not None:
        found.add(where)
        maps.put(where, segments_of(where), seconds(20))
    assert found == {("us", "t", n) for n in (7, 8, 9)}
    maps.put(ONE, segments_of(ONE), seconds(21))  # dropped while it was listed
    assert maps.want(ONE, seconds(22)) is None


def test_an_error_keeps_what_was_listed_before() -> None:
    maps = SegmentMaps(AGE)
    maps.want(ONE, seconds(0))
    maps.put(ONE, segments_of(ONE), seconds(1))
    maps.put(ONE, PartitionSegments(read_at=seconds(40), error="no bucket"), seconds(40))
    found = maps.want(ONE, seconds(41))
    assert found is not None
    assert (found.error, found.incarnations, found.read_at) == (
        "no bucket",
        segments_of(ONE).incarnations,
        segments_of(ONE).read_at,
    )
