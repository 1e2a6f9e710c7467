"""How far back an archive goes: asked once, and never younger than it is known to be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from formats.incarnation import Incarnation
from formats.messages.ledger import OwnedTopic
from infra.archive.segments import SegmentStore
from ingress.catalog.data_age import ASK_AGAIN, OldestRecords
from tests.ingress.world import REGION, World

SOURCES = [(REGION, Incarnation("t"))]


class Aged:
    def __init__(self) -> None:
        self.world = World()
        self.owned = OwnedTopic(name="copy", topic_id="id", source="a/t", at=self.world.clock.at)
        self.records = OldestRecords(self.world.archive)

    @property
    def oldest(self) -> datetime | None:
        return self.records.oldest(self.owned, SOURCES, self.world.clock.at)

    @property
    def requests(self) -> int:
        return sum(self.world.objects.calls.values())


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_the_first_segment_of_each_partition_counts() -> None:
    aged = Aged()
    aged.world.put(10, 19, stamp=1_000)  # older by its timestamp, and not the first
    aged.world.put(0, 9, stamp=900_000, level=1)
    aged.world.put(0, 9, stamp=700_000, partition=1)
    aged.world.put(0, 9, stamp=1, topic="other")
    assert aged.oldest == at(700_000)


def test_many_objects_are_asked_about_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentStore.few, "__kwdefaults__", {"most": 2})
    test_the_first_segment_of_each_partition_counts()
    test_it_is_asked_once_and_again_only_when_forgotten()


def test_the_segments_of_many_partitions_are_one_listing() -> None:
    aged = Aged()
    for partition in range(50):
        aged.world.put(0, 9, stamp=5_000, partition=partition, partitions=50)
    aged.world.objects.calls.clear()
    assert aged.oldest == at(5_000)
    assert aged.world.objects.calls["list"] == 1


def test_it_is_asked_once_and_again_only_when_forgotten() -> None:
    aged = Aged()
    for start in range(0, 1000, 10):
        aged.world.put(start, start + 9, stamp=5_000)
    before = aged.requests
    assert aged.oldest == at(5_000)
    first = aged.requests - before
    assert first <= 8, "the cost of one partition does not grow with its segments"
    aged.world.clock.advance(3600)
    assert (aged.oldest, aged.requests - before) == (at(5_000), first)
    aged.records.forget(aged.owned)
    aged.world.put(0, 9, stamp=4_000, partition=1)
    assert aged.oldest == at(4_000)


def test_nothing_stored_is_asked_about_now_and_then() -> None:
    aged = Aged()
    assert aged.oldest is None
    aged.world.put(0, 9, stamp=5_000)
    asked = aged.requests
    assert (aged.oldest, aged.requests) == (None, asked)
    aged.world.clock.advance(ASK_AGAIN.total_seconds())
    assert aged.oldest == at(5_000)


def test_where_no_timestamp_is_known_the_time_of_storing_counts() -> None:
    aged = Aged()
    stored = aged.world.clock.at
    for partition, stamp in enumerate((None, -1)):
        segment = aged.world.put(0, 9, partition=partition, stamp=stamp)
        if stamp is None:
            aged.world.damage(segment)
    aged.world.clock.advance(timedelta(days=3).total_seconds())
    assert aged.oldest == stored
