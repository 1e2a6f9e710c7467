"""How far logs go, what of them is archived, and where they are settled, as the writer publishes it."""

from __future__ import annotations

from datetime import datetime

import pytest

from formats.control.heartbeat import decode_heartbeat
from formats.control.watermarks import TopicWatermarks
from infra.archive.generations import Generations
from infra.contracts.cluster import Committed, TopicPartition
from tests.egress.catalog.published_region import REFRESH, Region


def test_watermarks_say_how_far_logs_go_and_what_is_archived(region: Region) -> None:
    one = region.process("one")
    region.grow(2)
    region.turn(one)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    region.broker.append(first, b"1", b"2", b"3")
    region.broker.trim(first, 1)
    region.broker.begin(first, b"4")
    region.broker.committed("group")[first] = Committed(2, "")
    region.turn(one, times=7)
    before, after = region.watermarks()
    none, both, without_transaction = (None, None), frozenset({0, 1}), frozenset({1})
    nothing = TopicWatermarks(topic_id="id-t", low=(0, 0), high=(0, 0), stable=(0, 0), position=none, settled=both)
    assert before.topics == {"t": nothing}
    assert after.topics == {
        "t": TopicWatermarks(
            topic_id="id-t", low=(1, 0), high=(4, 0), stable=(3, 0), position=(2, None), settled=without_transaction
        )
    }
    assert len(region.catalogs()) == 1
    assert second not in region.broker.committed("group")


@pytest.mark.parametrize(
    ("of", "position"), [("id-t", 2), ("id-t-fork1", 2), ("id-before", None)], ids=["this topic", "its fork", "another"]
)
def test_a_commit_for_an_earlier_topic_of_this_name_says_nothing_of_what_is_archived(
    region: Region, of: str, position: int | None
) -> None:
    """It stays until egress begins the topic as it is now: after a while, or once an operator has decided."""
    partition = TopicPartition("t", 0)
    region.broker.append(partition, b"1", b"2", b"3")
    region.broker.committed("group")[partition] = Committed(2, f"start=0 partitions=1 topic={of}")
    region.turn(region.process("one"))
    (found,) = region.watermarks()
    assert found.topics["t"].position == (position,)


def test_heartbeats_say_until_when_the_watermarks_were_observed_to_be_those(region: Region) -> None:
    one = region.process("one")
    heartbeats = Generations(region.store.memory, "heartbeat/")

    def observed_at() -> datetime | None:
        return decode_heartbeat(heartbeats.read(heartbeats.newest())).watermarks_at

    began = region.clock.at
    region.turn(one, times=2)
    assert observed_at() == began
    region.turn(one, times=20)
    last = observed_at()
    assert last is not None
    assert last > began, "the same was observed again"
    region.ends.away = True
    region.turn(one, times=20)
    assert one.is_writer, "heartbeats go on"
    assert observed_at() == last


def test_what_was_the_same_for_long_is_put_once_more_before_a_change(region: Region) -> None:
    """So that the moments in between are known once it has changed."""
    region.restate_after = 2 * REFRESH
    one = region.process("one")
    began = region.clock.at
    region.turn(one, times=20)
    assert len(region.watermarks()) == 1
    region.broker.append(TopicPartition("t", 0), b"x")
    region.turn(one, times=7)
    first, again, last = region.watermarks()
    assert (first.topics, first.observed_at) == (again.topics, began)
    assert began + 2 * REFRESH <= again.observed_at < last.observed_at
    assert again.settled_at is not None
    assert again.observed_at <= again.settled_at
    assert last.topics["t"].high == (1,)
    region.broker.append(TopicPartition("t", 0), b"x")
    region.turn(one, times=7)
    assert [found.topics["t"].high for found in region.watermarks()] == [(0,), (0,), (1,), (2,)], "it was not for long"


def test_only_what_both_collections_agree_on_is_settled(region: Region) -> None:
    one = region.process("one")
    region.grow(3)
    written, refused = TopicPartition("t", 0), TopicPartition("t", 1)

    def between() -> None:
        region.broker.append(written, b"x")
        region.ends.refuses[refused] = "no"

    region.ends.then = between
    began = region.clock.at
    region.turn(one, times=2)
    [found] = region.watermarks()
    assert found.topics["t"].high == (1, 0, 0)
    assert found.topics["t"].settled == {2}
    assert found.settled_at is not None
    assert found.settled_at >= found.observed_at == began
    region.ends.refuses.clear()
    region.turn(one, times=7)
    *_, found = region.watermarks()
    assert found.topics["t"].high == (1, 0, 0)
    assert found.topics["t"].settled == {0, 1, 2}
    count = len(region.watermarks())
    region.ends.then = lambda: region.ends.refuses.update({refused: "no"})
    region.turn(one, times=7)
    assert len(region.watermarks()) == count, "its offsets are the same, so it is settled as before"


def test_a_topic_that_is_created_again_between_the_collections_is_not_settled(region: Region) -> None:
    one = region.process("one")
    region.ends.then = lambda: set(region.broker.recreate("t")).clear()
    region.turn(one, times=2)
    [found] = region.watermarks()
    assert (found.topics["t"].settled, found.settled_at) == (frozenset(), None)


def test_a_second_collection_that_fails_costs_only_the_settlement(region: Region) -> None:
    one = region.process("one")
    region.ends.then = lambda: setattr(region.ends, "away", True)
    region.turn(one, times=2)
    [found] = region.watermarks()
    assert (found.topics["t"].high, found.topics["t"].settled, found.settled_at) == ((0,), frozenset(), None)


def test_watermarks_may_be_off(region: Region) -> None:
    region.turn(region.process("one", watermarks=False), times=7)
    assert (len(region.catalogs()), region.watermarks()) == (1, [])
