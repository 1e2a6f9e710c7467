"""One group for each checkpoint topic: which is refused, which ends, and which takes over; and the topic's settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from formats.errors import OtherGroup
from formats.messages.group_claim import GroupClaim
from infra.contracts.cluster import TopicPartition
from ingress.checkpoint_watch import SUBJECT
from tests.ingress.process import Process, joined
from tests.ingress.world import World, numbers

C = TopicPartition("copy", 0)
NEW = "renamed"


@pytest.fixture
def world() -> World:
    world = World()
    world.put(0, 3)
    return world


def test_the_first_start_records_the_owner_of_the_topic(world: World) -> None:
    process = joined(world)
    assert [claim.group_id for claim in world.target.claims] == [world.settings.group_id]
    assert process.controller.has_begun
    joined(world)
    assert len(world.target.claims) == 1


def test_another_group_is_refused_before_it_joins_or_creates_anything(world: World) -> None:
    joined(world)
    other = Process(world, group_id=NEW)
    with pytest.raises(OtherGroup, match=rf"belongs to group {world.settings.group_id} .*--take-over"):
        other.turn()
    assert not other.controller.has_begun
    assert (other.placement.topics, other.ready) == (frozenset(), False)


def test_requests_to_an_unavailable_cluster_are_repeated(world: World) -> None:
    world.target.away = True
    process = Process(world)
    process.turn(3)
    assert process.placement.topics == frozenset()
    world.target.away = False
    process.later(1)
    process.join(C)
    assert world.offsets(C) == numbers((0, 3))


def test_a_group_without_members_is_replaced_and_its_processes_end(world: World) -> None:
    """One was cut off for longer than its session: it comes back, and finds out before it reads a position."""
    old = joined(world, C)
    old.placement.lose(C)
    old.control()
    new = joined(world, C, group_id=NEW, take_over=world.settings.group_id)
    world.put(4, 5)
    new.turn(4)
    old.placement.assign(C)
    with pytest.raises(OtherGroup, match=f"belongs to group {NEW}"):
        old.turn(4)
    assert world.offsets(C) == numbers((0, 5))


def test_a_process_that_holds_partitions_finds_out_in_time(world: World) -> None:
    old = joined(world, C)
    joined(world, group_id=NEW, take_over=world.settings.group_id)
    with pytest.raises(OtherGroup, match=f"belongs to group {NEW}"):
        old.later(world.settings.topic_refresh_interval.total_seconds())


def test_a_group_with_members_is_not_replaced(world: World) -> None:
    joined(world)
    world.groups.members[world.settings.group_id] = 1
    with pytest.raises(OtherGroup, match=r"1 member\(s\)"):
        Process(world, group_id=NEW, take_over=world.settings.group_id).turn()
    assert len(world.target.claims) == 1


def test_a_topic_that_was_created_again_is_claimed_again(world: World) -> None:
    process = joined(world, C)
    world.target.claims.clear()
    process.later(world.settings.topic_refresh_interval.total_seconds())
    assert [claim.group_id for claim in world.target.claims] == [world.settings.group_id]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_settings_that_would_forget_positions_are_a_problem_while_they_last(world: World, policy: str) -> None:
    process, topic = joined(world, C), world.settings.checkpoint_topic
    assert process.ready
    world.admin.settings[topic]["cleanup.policy"] = policy
    process.later(world.settings.topic_refresh_interval.total_seconds())
    problem = process.health.snapshot().problems[SUBJECT]
    assert f"cleanup.policy is {policy!r}" in problem
    assert "set it to 'compact' alone" in problem
    assert not process.ready
    world.put(4, 5)
    process.turn(4)
    assert world.offsets(C) == numbers((0, 5)), "delivery continues meanwhile"
    world.admin.settings[topic]["cleanup.policy"] = "compact"
    process.later(world.settings.topic_refresh_interval.total_seconds())
    assert process.ready


def test_a_topic_that_is_gone_is_a_problem(world: World) -> None:
    process = joined(world, C)
    world.broker.delete(world.settings.checkpoint_topic)
    process.later(timedelta(seconds=60).total_seconds())
    assert "no topic" in process.health.snapshot().problems[SUBJECT]


# --- another cluster --------------------------------------------------------------------------------------------------


def test_the_claim_names_the_cluster(world: World) -> None:
    joined(world)
    assert [claim.cluster_id for claim in world.target.claims] == ["cluster"]


def test_a_checkpoint_topic_that_was_copied_with_its_cluster_is_refused_at_start(world: World) -> None:
    joined(world).stop()
    world.admin.cluster = "copy-of-it"
    world.put(4, 5)
    process = Process(world)
    with pytest.raises(OtherGroup, match=r"cluster with id cluster at .* has the id copy-of-it.*--take-over"):
        process.turn()
    assert (process.placement.topics, world.offsets(C)) == (frozenset(), numbers((0, 3)))
    assert ["the topic was copied here" in problem for problem in world.status().problems] == [True]


def test_its_own_group_takes_it_over_on_purpose(world: World) -> None:
    joined(world).stop()
    world.admin.cluster = "copy-of-it"
    world.put(4, 5)
    group = world.settings.group_id
    joined(world, C, take_over=group)
    assert world.offsets(C) == numbers((0, 5))
    assert [claim.cluster_id for claim in world.target.claims] == ["cluster", "copy-of-it"]
    world.groups.members[group] = 1
    joined(world, C)
    assert world.status().problems == []


def test_a_running_process_claims_nothing_in_another_cluster(world: World) -> None:
    process = joined(world, C)
    world.target.claims.clear()  # the other cluster has an unclaimed topic of that name
    world.admin.cluster = "another"
    process.later(world.settings.topic_refresh_interval.total_seconds())
    assert "cluster" in process.stopped
    assert world.target.claims == []


def test_a_copy_that_replaces_the_topic_ends_the_process(world: World) -> None:
    process = joined(world, C)
    world.target.claims[:] = [replace(world.target.claims[0], cluster_id="another")]
    with pytest.raises(OtherGroup, match="the topic was copied here"):
        process.later(world.settings.topic_refresh_interval.total_seconds())


def test_a_topic_that_is_created_again_is_claimed_by_a_process_that_took_its_group_over(world: World) -> None:
    """Long ago: the group to be taken over counts once."""
    world.target.claims.append(GroupClaim(id="x", number=1, group_id="old", at=world.clock.at))
    world.put(0, 9)
    process = joined(world, C, take_over="old")
    assert world.offsets(C) == numbers((0, 9))
    world.clock.advance(3600)
    world.target.claims.clear()
    world.target.checkpoints.clear()
    for _ in range(4):
        process.later(40)
    assert world.target.claims[-1].group_id == world.settings.group_id


def test_a_checkpoint_topic_that_is_not_read_for_a_minute_is_a_problem(world: World) -> None:
    """Of a process whose partitions continue: an open transaction, for example, ends what can be read of it."""
    world.put(0, 9)
    process = joined(world)
    world.target.away = True
    for _ in range(12):
        process.later(10)
    assert "every attempt to read the checkpoint topic has failed since" in process.problems[SUBJECT]
    world.target.away = False
    for _ in range(6):
        process.later(10)
    assert process.problems == {}
    assert process.ready
