"""Settings that are replaced while the ingress loop runs: sources come and go, and the others go on undisturbed."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

from formats.segment import SourcePartition
from formats.topic_selection import TopicPattern
from infra.contracts.cluster import TopicPartition
from ingress.source_settings import IngressSource
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, World, key, numbers, source_settings, source_topic

C, D = TopicPartition("copy", 0), TopicPartition("other", 0)
FIRST = source_settings(first_segment_delay=timedelta())
OTHER = source_settings("u", "other", first_segment_delay=timedelta())


def reload(process: Process, *sources: IngressSource) -> None:
    process.current.replace(replace(process.current.value, sources=sources))


def world_of_two() -> World:
    """Topics t, which is delivered, and u, which is not yet."""
    world = World(FIRST)
    world.put(0, 3)
    world.put(0, 5, topic="u", partitions=1)
    return world


def test_a_source_is_delivered_at_the_next_turn_without_waiting_for_the_interval() -> None:
    world = world_of_two()
    process = joined(world)
    before = process.controller._assignment.of(SourcePartition("a", "t", 0))
    assert not process.controller.wants(SourcePartition("a", "u", 0))
    reload(process, FIRST, OTHER)
    assert process.controller.wants(SourcePartition("a", "u", 0))
    process.turn(3)
    assert process.placement.topics == {"copy", "other"}
    process.placement.assign(D)
    process.turn(6)
    assert world.offsets(D) == numbers((0, 5))
    assert process.controller._assignment.of(SourcePartition("a", "t", 0)) is before, "t is delivered on as it was"


def test_a_source_of_a_region_that_had_none_is_delivered() -> None:
    world = world_of_two()
    process = joined(world)
    world.put(0, 1, topic="v", region="c", partitions=1)
    reload(process, FIRST, source_settings("v", "other", region="c", first_segment_delay=timedelta()))
    process.turn(3)
    process.placement.assign(D)
    process.turn(6)
    assert world.offsets(D) == numbers((0, 1))


def test_a_topic_that_is_excluded_stops_and_goes_on_where_it_stopped() -> None:
    world = world_of_two()
    process = joined(world)
    assert world.offsets(C) == numbers((0, 3))
    excluding = replace(FIRST, topic=TopicPattern("^t"), destination_topic="cop{topic}", exclude=(TopicPattern("t"),))
    reload(process, excluding)
    process.turn(3)
    world.put(4, 7)
    process.later(1)
    assert world.offsets(C) == numbers((0, 3))
    assert not process.controller.wants(SourcePartition("a", "t", 0))
    assert process.problems == {}
    reload(process, FIRST)
    process.turn(8)
    assert world.offsets(C) == numbers((0, 7)), "the event that no source wanted is made up for by a listing"
    assert world.checkpoint() == 8


def test_settings_of_a_source_hold_at_once() -> None:
    world = World()
    world.put(2, 3)  # and nothing says that the archive begins there
    process = joined(world)
    assert world.offsets(C) == []
    reload(process, FIRST)
    process.turn(8)
    assert world.offsets(C) == numbers((2, 3)), f"not only after {DELAY} s"


def test_another_destination_leaves_the_old_one() -> None:
    world = world_of_two()
    process = joined(world)
    reload(process, replace(FIRST, destination_topic="other"))
    process.turn(3)
    world.put(4, 5)
    process.placement.assign(D)
    process.turn(8)
    assert world.offsets(C) == numbers((0, 3))
    assert world.offsets(D) == numbers((0, 5))
    assert world.target.checkpoints[key(destination="other")].next_offset == 6


def test_a_config_that_is_excluded_no_longer_crosses_without_waiting_for_the_interval() -> None:
    world = world_of_two()
    world.settings = replace(world.settings, config_properties_exclude=("segment.*",))
    world.publish_catalog(source_topic(configs={"retention.ms": "1000", "segment.bytes": "2000"}))
    process = joined(world)
    process.later(5)
    assert "segment.bytes" not in world.admin.settings["copy"]
    process.current.replace(replace(world.settings, config_properties_exclude=()))
    process.later(5)
    assert world.admin.settings["copy"]["segment.bytes"] == "2000"


def test_a_refresh_that_fails_is_soon_made_again() -> None:
    world = world_of_two()
    process = joined(world)
    world.admin.away = True
    reload(process, FIRST, OTHER)
    process.turn(2)
    world.admin.away = False
    process.later(1.1)
    assert process.placement.topics == {"copy", "other"}


def test_the_round_that_delivers_a_dropped_partition_ends_by_itself() -> None:
    """It may have partitions of other topics, and is about to write their checkpoints, too."""
    world = world_of_two()
    process = joined(world)
    [assigned] = [one for one in process.controller._assignment if one.delivery_target.target == C]
    epoch = assigned.delivery_target.epoch
    process.delivery._in_round = {epoch: assigned.delivery_target}
    reload(process, OTHER)

    def end_round() -> None:
        with process.delivery._mutex:
            process.delivery._in_round = {}
            process.delivery._mutex.notify_all()

    ending = threading.Timer(0.05, end_round)
    ending.start()
    process.control(2)
    ending.join()
    assert process.controller._assignment.of(assigned.delivery_target.source) is None
    assert not process.delivery._give_up_round


def test_a_partition_begins_again_only_after_the_round_that_may_still_move_it() -> None:
    """A round that outlives its release writes its checkpoint later, in the same generation: no fence keeps it out."""
    world = world_of_two()
    process = joined(world)
    [assigned] = [one for one in process.controller._assignment if one.delivery_target.target == C]
    delivery, earlier = process.delivery, assigned.delivery_target
    delivery._in_round = {earlier.epoch: earlier}
    delivery.release([earlier.epoch], timedelta())
    process.controller._assignment.forget([assigned])
    process.controller._targets._add_sources(C)
    world.clock.advance(5)
    process.control(4)
    [again] = [one for one in process.controller._assignment if one.delivery_target.target == C]
    assert again.sequencer is None
    world.put(4, 5)
    world.set_checkpoint(6)  # by the round, whose end is late
    delivery._in_round = {}
    process.later(5)
    assert again.sequencer is not None
    assert world.offsets(C) == numbers((0, 3)), "4 and 5 are not delivered again"


def test_without_a_search_no_topic_is_delivered_that_appears_later() -> None:
    """Until the configuration is reloaded; a topic with a source of its own in the file is always delivered."""
    every = source_settings("^.*", "{topic}.copy", first_segment_delay=timedelta())
    world = World(every, source_settings("named", "other"))
    world.settings = replace(world.settings, topic_refresh_interval=timedelta())
    world.put(0, 3)
    process = joined(world)
    for topic in ("u", "named"):
        world.put(0, 5, topic=topic, partitions=1)
    process.later(31)
    process.later(31)
    assert process.placement.topics == {"t.copy", "other"}
    process.current.replace(replace(process.current.value))
    process.turn(3)
    assert process.placement.topics == {"t.copy", "other", "u.copy"}


def test_without_a_search_a_topic_that_was_there_is_delivered_once_nothing_keeps_it_away() -> None:
    world = World(source_settings("^.*", "{topic}.copy", first_segment_delay=timedelta()))
    world.settings = replace(world.settings, topic_refresh_interval=timedelta())
    world.publish_catalog(source_topic("t", lineage=["b", "cluster"]))
    world.put(0, 3)
    process = joined(world)
    assert process.placement.topics == set()
    world.publish_catalog(source_topic("t"), source_topic("u"))
    process.later(31)
    process.later(31)
    assert process.placement.topics == {"t.copy"}
