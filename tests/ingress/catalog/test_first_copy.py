"""The first copy of a topic is through when everything that existed once is delivered, and never before."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.messages.ledger import OwnedTopic
from infra.archive.last_good import watermarks_in
from infra.archive.segments import SegmentStore
from ingress.catalog.first_copy import ASK_AGAIN, CopiedTopic, FirstCopies
from tests.ingress.world import REGION, World, key

HOUR = timedelta(hours=1)


class Copy:
    """Topic t, copied since now; nothing is delivered."""

    def __init__(self, delay: timedelta = HOUR) -> None:
        self.world = World()
        owned = OwnedTopic(name="copy", topic_id="id", source="a/t", at=self.world.clock.at)
        self.topic = CopiedTopic(owned=owned, sources=[(REGION, Incarnation("t"))], delay=delay)
        self.copies = FirstCopies(
            self.world.store, self.world.control, watermarks_in(self.world.objects, "data").refresh
        )
        self.positions: dict[CheckpointKey, object] = {}

    def watermarks(self, *stable: int) -> None:
        self.world.publish_watermarks(*stable)

    def delivered(self, next_offset: int, partition: int = 0) -> None:
        self.positions[key(partition)] = Checkpoint(next_offset, "id", self.world.clock.at, Author.EXACTLY_ONCE)

    def is_through(self, after: float = 1) -> bool:
        self.world.clock.advance(after)
        return self.copies.is_through(self.topic, self.positions, self.world.clock.at)


def test_by_watermarks_as_soon_as_each_partition_is_delivered() -> None:
    copy = Copy()
    copy.watermarks(10, 0, 20)
    assert not copy.is_through()
    copy.delivered(10)
    copy.delivered(19, partition=2)
    assert not copy.is_through()
    copy.delivered(20, partition=2)
    assert copy.is_through()


def test_a_steady_stream_reaches_the_ends_of_the_first_observation() -> None:
    copy = Copy()
    copy.watermarks(10)
    assert not copy.is_through()
    copy.watermarks(1000)
    copy.delivered(10)
    assert copy.is_through()


def test_without_watermarks_the_archives_ends_count_once_the_delay_has_passed() -> None:
    copy = Copy()
    copy.world.put(0, 9)
    copy.world.put(0, 4, partition=1)
    copy.delivered(10)
    copy.delivered(5, partition=1)
    assert not copy.is_through(3598), "segments from before may still arrive"
    copy.world.put(10, 19)
    assert not copy.is_through(2)
    copy.delivered(20)
    assert copy.is_through()


def test_many_objects_are_listed_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentStore.few, "__kwdefaults__", {"most": 2})
    test_without_watermarks_the_archives_ends_count_once_the_delay_has_passed()


def test_the_ends_of_many_partitions_are_one_listing() -> None:
    copy = Copy(timedelta())
    for partition in range(50):
        copy.world.put(0, 9, partition=partition, partitions=50)
    copy.world.objects.asked.clear()
    assert len(copy.copies.stored_ends(copy.topic)) == 50
    assert copy.world.objects.asked == [("list", "data/a/t/")]


def test_an_archive_without_segments_is_asked_about_now_and_then() -> None:
    copy = Copy(timedelta())
    assert not copy.is_through()
    copy.world.put(0, 9)
    copy.delivered(10)
    listed = copy.world.objects.calls["list"]
    assert not copy.is_through(ASK_AGAIN.total_seconds() - 1)
    assert copy.world.objects.calls["list"] - listed <= 1, "of watermarks"
    assert copy.is_through(1)


def test_a_partition_whose_objects_are_all_deleted_does_not_hold_it_up() -> None:
    """Some servers name its folder all the same."""
    copy = Copy(timedelta())
    copy.world.put(0, 9)
    copy.world.objects.deleted.add("data/a/t/7/0/x")
    assert copy.world.store.partitions(REGION, "t") == [0, 7]
    copy.delivered(10)
    assert copy.is_through()


def test_an_end_of_transaction_markers_does_not_hold_it_up_for_ever() -> None:
    copy = Copy()
    copy.watermarks(11)  # offset 10 is a marker, which no segment has
    copy.world.put(0, 9)
    copy.delivered(10)
    assert not copy.is_through()
    assert copy.is_through(3600)


def test_checkpoints_of_an_earlier_topic_of_that_name_do_not_count() -> None:
    copy = Copy()
    copy.watermarks(10)
    copy.positions[key()] = Checkpoint(10, "deleted", copy.world.clock.at, Author.EXACTLY_ONCE)
    assert not copy.is_through()
    copy.delivered(10)
    assert copy.is_through()


def test_watermarks_of_another_incarnation_are_not_those_of_the_archive() -> None:
    copy = Copy()
    copy.world.claim(0, topic_id="first")
    copy.watermarks(1)  # of topic t, which was created again
    copy.delivered(10)
    assert not copy.is_through()


def test_each_of_several_topics_of_a_region_has_to_be_through() -> None:
    copy = Copy()
    copy.watermarks(10)
    copy.delivered(10)
    both = replace(copy.topic, sources=[(REGION, Incarnation("big")), (REGION, Incarnation("t"))])
    assert not copy.copies.is_through(both, copy.positions, copy.world.clock.at), "nothing is known of big"
