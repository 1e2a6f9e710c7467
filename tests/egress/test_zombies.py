"""A process frozen past its session and thawed in mid-upload changes nothing that a later owner wrote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from formats.errors import OwnershipLost
from infra.contracts.cluster import Committed, TopicPartition
from tests.egress.two_partitions import Make
from tests.egress.world import Process, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer

P = TopicPartition("t", 0)


class Member(FakeSourceConsumer):
    """A member that the group has expelled: the broker refuses its requests, and the member learns of it last."""

    fenced = False

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        if not self.fenced:
            super().commit(offsets, wait=wait)
        elif wait is not None:
            raise OwnershipLost("commit: ILLEGAL_GENERATION")
        else:
            self._commit_answers.update(dict.fromkeys(offsets, "ILLEGAL_GENERATION"))


@pytest.fixture
def world(make: Make) -> World:
    return make(partitions=1)


def joined(world: World, **options: object) -> Process:
    process = world.process(consumer=Member(world.broker), **options)
    process.join(P)
    return process


def frozen(world: World, count: int, **options: object) -> Process:
    """With a sealed segment whose upload has begun."""
    zombie = joined(world, **options)
    zombie.uploads.holding = True
    world.produce(P, count)
    zombie.turn(2)
    zombie.later()
    assert zombie.uploads.waiting
    zombie.consumer.fenced = True  # type: ignore[attr-defined]
    return zombie


def everything(world: World) -> dict[str, bytes]:
    found = {}
    for key in [info.key for info in world.objects.memory.list("")]:
        with world.objects.memory.open(key) as body:
            found[key] = body.read()
    return found


def thaw(zombie: Process, world: World) -> dict[str, bytes]:
    """Its uploads end, and its loop turns, before it learns of the loss. Returns the objects it added."""
    before, committed = everything(world), world.committed(P)
    zombie.uploads.holding = False
    zombie.uploads.run_all()
    zombie.later(turns=5)
    zombie.consumer.lose(P)
    zombie.turn()
    zombie.later()
    after = everything(world)
    assert {key: after.get(key) for key in before} == before, "it changed what another wrote"
    assert world.committed(P) == committed
    return {key: body for key, body in after.items() if key not in before}


def test_the_same_segment_is_found_stored(world: World) -> None:
    zombie = frozen(world, 5)
    joined(world).stop()
    assert thaw(zombie, world) == {}
    assert zombie.metrics.counts["egress_upload_conflicts"] == 1
    assert zombie.stopped == {}
    world.expect(P)


@pytest.mark.parametrize("more", [1, 9])
def test_a_shorter_one_is_a_legal_overlap(world: World, more: int) -> None:
    zombie = frozen(world, 3)
    world.produce(P, more)
    joined(world).stop()
    assert min(key[-41:] for key in thaw(zombie, world)) == "00000000000000000000-00000000000000000002"
    assert zombie.stopped == {}
    world.agree(P)
    world.produce(P, 2)
    joined(world).stop()
    assert world.position(P) == 5 + more
    world.agree(P)


def test_a_zombie_that_still_reads_stores_segments_that_agree(world: World) -> None:
    zombie = frozen(world, 3)
    second = joined(world)
    world.produce(P, 1)
    second.turn(2)
    second.later()
    world.produce(P, 8)
    second.turn(3)
    assert world.ranges(P) == [(0, 3), (4, 8)]
    assert len(thaw(zombie, world)) == 2, "[0,2], and what it read from 3 on: [3,7]"
    second.later()
    world.agree(P)
    assert world.position(P) == 12
    assert second.stopped == {}


def test_records_that_a_zombie_read_of_another_log_change_nothing(world: World) -> None:
    """Other records under the same offsets and the same topic id: an unclean leader discarded the records that the
    zombie read. It reads once more before it reports a fork, and then agrees with its successor."""
    zombie = frozen(world, 5)
    world.broker.truncate(P, 0)
    world.broker.append(P, *[b"other"] * 5)
    joined(world).stop()
    before = everything(world)
    zombie.uploads.holding = False
    zombie.uploads.run_all()
    zombie.turn(6)
    assert zombie.stopped == {}
    zombie.consumer.lose(P)
    zombie.turn()
    assert everything(world) == before
    assert zombie.stopped == {}
    world.expect(P)


def test_an_upload_of_an_earlier_assignment_does_not_count_for_what_was_read_since(world: World) -> None:
    """The partition was revoked and came back while a segment of it was uploaded, and meanwhile an unclean leader
    discarded these records. Counted as stored, those of the log as it is now would never be archived."""
    process = joined(world)
    world.produce(P, 5)
    process.turn(2)
    assert world.position(P) == 5
    process.uploads.holding = True
    world.produce(P, 5)
    process.turn(2)

    def comes_back(_: str) -> None:
        process.consumer.revoke(P)
        process.turn()
        world.broker.truncate(P, 5)
        world.broker.append(P, *[b"other"] * 5)
        process.consumer.assign(P)
        process.turn(4)

    world.objects.before["put_new"] = comes_back
    process.uploads.run_next()
    process.uploads.holding = False
    process.uploads.run_all()
    process.later(turns=9)
    assert world.position(P) == 5
    assert [(fork.end_offset, fork.next_offset) for fork in world.control_peek.forks.of(source(P))] == [(5, 10)]
    assert "has forked" in process.stopped[str(source(P))]


def test_a_compacted_copy_stays_where_the_log_may_have_dropped_records(world: World) -> None:
    zombie = frozen(world, 5, source_compacted=True)
    world.broker.compact(P, 1, 3)
    joined(world, source_compacted=True).stop()
    assert thaw(zombie, world) == {}
    assert zombie.stopped == {}
    assert world.values(P) == [r.value for r in world.broker.logs[P].records.values()]


def test_a_gap_the_later_owner_wrote_down_stays(world: World) -> None:
    """The records that the zombie read are stored all the same: readers prefer a segment to a gap."""
    zombie = frozen(world, 3)
    world.broker.trim(P, 3)
    world.produce(P, 4)
    world.rules = (rule("t", on_gap="record"),)
    joined(world).stop()
    assert [str(o) for o in world.control.gaps.ranges(source(P))] == ["[0,2]"]
    assert len(thaw(zombie, world)) == 1
    assert world.ranges(P) == [(0, 2), (3, 6)]
