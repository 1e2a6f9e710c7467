"""Egress while the cluster or the bucket denies a right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from formats.errors import TargetError
from formats.segment import Segment
from infra.contracts.cluster import Committed
from tests.egress.two_partitions import Make, P, Q, joined
from tests.egress.world import World, rule


@pytest.mark.parametrize("pattern", ["t", "^t"])
def test_a_topic_that_may_not_be_described_any_more_is_stopped_until_it_may(make: Make, pattern: str) -> None:
    """The cluster leaves it out of its listing, and the group takes its partitions away."""
    world = make(rule(pattern))
    process = joined(world)
    world.produce(P, 5)
    process.later()
    world.admin.hides["t"] = "describe topic t: planned"
    process.consumer.lose(P, Q)
    process.later(31)
    assert "allow READ on t" in process.stopped["a/t"]
    assert not process.health.snapshot().is_ready
    process.later(31)
    assert list(process.stopped) == ["a/t"]
    del world.admin.hides["t"]
    world.produce(P, 5)
    process.later(31)
    process.consumer.assign_all()
    process.later(turns=5)
    assert process.health.snapshot().is_ready
    world.expect(P)


def begun_anew(world: World, change: Callable[[], object]) -> dict[str, str]:
    """What is stopped in a process that begins after the change, and has never seen the topic; the archive has."""
    process = joined(world)
    world.produce(P, 5)
    process.later(31)
    process.stop()
    change()
    process = world.process()
    for _ in range(3):
        process.later(31)
    assert process.health.snapshot().is_ready is not bool(process.stopped)
    return dict(process.stopped)


def test_an_archived_topic_that_a_new_process_may_not_describe_is_stopped(make: Make) -> None:
    """The listing leaves it out."""
    world = make(rule("^t"))
    stopped = begun_anew(world, lambda: world.admin.hides.update(t="describe topic t: planned"))
    assert "allow READ on t" in stopped["a/t"]


def test_an_archived_topic_that_was_deleted_is_not_refused(make: Make) -> None:
    world = make(rule("^t"))
    assert begun_anew(world, lambda: world.broker.delete("t")) == {}


def test_a_topic_that_was_refused_at_first_begins_as_its_policy_says(make: Make) -> None:
    world = make(rule("t", start="latest"))
    world.produce(P, 5)
    world.admin.hides["t"] = "planned"
    process = joined(world)
    assert list(process.stopped) == ["a/t"]
    del world.admin.hides["t"]
    process.later(31)
    process.join()
    process.later(turns=5)
    assert process.health.snapshot().is_ready
    assert (world.position(P), world.ranges(P)) == (5, [])


def test_a_refusal_is_logged_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    world = make(rule("t"))
    world.admin.hides["t"] = "no DESCRIBE"
    process = world.process()
    for _ in range(5):
        process.later(31)
    assert [record.message for record in caplog.records].count("topic_refused") == 1


def test_a_topic_that_is_deleted_is_not_refused(make: Make) -> None:
    world = make(rule("t"))
    process = joined(world)
    world.broker.delete("t")
    process.consumer.lose(P, Q)
    process.later(31)
    assert process.stopped == {}
    assert process.health.snapshot().is_ready


def test_a_group_that_takes_no_member_makes_the_process_unready(world: World) -> None:
    process = joined(world)
    process.consumer.problem = "member of group group: planned"
    process.turn()
    assert process.stopped == {"group": "member of group group: planned"}
    process.consumer.problem = ""
    process.turn()
    assert process.health.snapshot().is_ready


def test_a_refused_request_about_a_stored_segment_is_repeated(world: World) -> None:
    """Whether the topic is compacted decides what a segment that differs from the stored one means."""
    world.produce(P, 5)
    joined(world).stop()
    world.broker.compact(P, 1, 3)
    world.broker.committed("group")[P] = Committed(0, "")
    process = world.process()
    refusals = [TargetError("describe the settings of topic t: planned; allow DESCRIBE_CONFIGS on the topic")]

    def source_compacted(_: Segment) -> bool:
        if refusals:
            raise refusals.pop()
        return True

    process.builder._uploader = replace(process.builder._uploader, source_compacted=source_compacted)
    process.join()
    process.later(turns=5)
    assert "allow DESCRIBE_CONFIGS" in process.stopped["a/t/0"]
    process.later(31, turns=5)
    process.later(turns=5)
    assert process.stopped == {}
    assert world.position(P) == 5
    assert world.ranges(P) == [(0, 4)]


def test_points_of_an_idle_partition_do_not_pile_up(world: World) -> None:
    """Each end of a pause reports where its log ends."""
    world.produce(P, 5)
    process = joined(world)
    process.later()
    assigned = process.controller._assignment.get(P)
    assert assigned is not None
    assert assigned.session is not None
    for _ in range(50):
        process.consumer.pause([P])
        process.turn()
        process.consumer.resume([P])
        process.turn()
    assert len(assigned.session.points._points) <= 2
