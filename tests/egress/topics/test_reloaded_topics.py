"""Settings that are replaced while the egress loop runs: topics come and go, and the others go on undisturbed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from egress.settings import EgressSettings, EgressTopicSettings
from formats.topic_selection import TopicPattern, TopicRule
from infra.contracts.cluster import TopicPartition
from tests.egress.two_partitions import Make, P, joined
from tests.egress.world import AGE, Process, World, rule

U = TopicPartition("u", 0)


def reload(process: Process, *rules: TopicRule[EgressTopicSettings], exclude: str = "") -> None:
    patterns = (TopicPattern(exclude),) if exclude else ()
    process.current.replace(EgressSettings(topics=rules, exclude=patterns))


@pytest.fixture
def two(make: Make) -> World:
    """Topics t, which is archived, and u, which is not yet."""
    world = make(rule("t"))
    world.broker.create("u", partitions=1)
    return world


def test_a_topic_is_selected_at_the_next_turn_without_waiting_for_the_interval(two: World) -> None:
    two.produce(U, 3)
    process = joined(two)
    epoch = process.controller._assignment.get(P)
    reload(process, rule("t"), rule("u"))
    process.turn(2)
    assert process.consumer.topics == {"t", "u"}
    process.consumer.assign_all()
    process.turn(3)
    process.later()
    two.expect(U)
    assert process.controller._assignment.get(P) is epoch, "t is read on as it was"


def test_a_topic_that_is_excluded_stops_with_everything_stored(two: World) -> None:
    process = joined(two)
    two.produce(P, 3)
    process.turn(2)
    reload(process, rule("^.*"), exclude="t")
    process.turn(4)
    assert process.consumer.topics == {"u"}
    two.expect(P, until=3)
    two.produce(P, 4)
    process.later()
    assert two.position(P) == 3


def test_without_any_topic_left_nothing_is_read(two: World) -> None:
    process = joined(two)
    reload(process, rule("t"), exclude="^.*")
    process.turn(4)
    assert process.consumer.topics == frozenset()
    assert process.consumer.assignment() == frozenset()
    two.produce(P, 3)
    reload(process, rule("t"))
    process.turn(2)
    process.consumer.assign_all()
    process.turn(3)
    process.later()
    two.expect(P)


def test_a_topic_that_comes_back_goes_on_where_it_stopped(two: World) -> None:
    process = joined(two)
    two.produce(P, 5)
    process.later()
    reload(process, rule("u"))
    process.turn(4)
    two.produce(P, 5)
    reload(process, rule("t", start="latest"))
    process.turn(2)
    process.consumer.assign_all()
    process.turn(3)
    process.later()
    two.expect(P)


def test_new_limits_hold_for_the_open_segment(two: World) -> None:
    process = joined(two)
    two.produce(P, 3)
    process.turn(2)
    reload(process, rule("t", max_segment_messages=2))
    process.turn(3)
    assert two.ranges(P) == [(0, 2)]
    two.produce(P, 4)
    process.turn(3)
    assert two.ranges(P) == [(0, 2), (3, 4), (5, 6)]


def test_a_shorter_age_seals_at_once(two: World) -> None:
    process = joined(two)
    two.produce(P, 3)
    process.turn(2)
    reload(process, rule("t", max_segment_age=timedelta(seconds=AGE / 2)))
    process.later(AGE / 2)
    assert two.ranges(P) == [(0, 2)]


def test_settings_that_are_replaced_during_a_refresh_are_asked_about_after_it(two: World) -> None:
    process = joined(two)
    process.pool.holding = True
    reload(process, rule("u"))
    process.turn()
    reload(process, rule("t"), rule("u"))
    process.turn()
    process.pool.run_all()
    process.turn(2)
    assert process.consumer.topics == {"u"}
    process.pool.run_all()
    process.turn()
    assert process.consumer.topics == {"t", "u"}


def test_equal_settings_change_no_subscription(two: World) -> None:
    process = joined(two)
    before = process.watcher.topics
    process.current.replace(replace(process.current.value))
    process.turn(3)
    assert process.watcher.topics == before
    assert process.controller._topics == before


def test_a_refresh_that_fails_is_soon_made_again(two: World) -> None:
    process = joined(two)
    two.admin.away = True
    reload(process, rule("u"))
    process.turn(2)
    two.admin.away = False
    process.later(1.1)
    assert process.consumer.topics == {"u"}


def test_without_a_search_no_topic_is_selected_that_appears_later(make: Make) -> None:
    """Until the configuration is reloaded; a topic with a name of its own in the file is always selected."""
    world = make(rule("t"))
    process = joined(world)
    off = EgressSettings(topics=(rule("^[tu]"), rule("named")), topic_refresh_interval=timedelta())
    process.current.replace(off)
    process.turn(3)
    for topic in ("u", "named"):
        world.broker.create(topic, partitions=1)
    process.later(off.refresh_interval.total_seconds() + 1)
    process.turn(3)
    assert process.consumer.topics == {"t", "named"}
    process.current.replace(replace(off))
    process.turn(3)
    assert process.consumer.topics == {"t", "u", "named"}
