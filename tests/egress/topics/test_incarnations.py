"""A topic deleted and created again: the incarnations of one name are never mixed, overwritten or continued."""

from __future__ import annotations

import pytest

from egress.start.commit_metadata import CommitMetadata
from egress.topics.claims import adopt
from formats.segment import OffsetRange, Segment
from infra.contracts.cluster import Committed
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import FORMAT, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer

FIRST, SECOND, THIRD = "id-t", "id-t-1", "id-t-2"


def recreate(world: World, *values: bytes) -> None:
    world.broker.recreate("t", partitions=2)
    world.broker.append(P, *values)


def many(word: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (word.encode(), number) for number in range(count)]


# --- while it runs ----------------------------------------------------------------------------------------------------


def test_a_longer_incarnation_is_not_taken_for_the_rest_of_the_first(world: World) -> None:
    """The consumer continues silently, at an offset that the new log has too."""
    world.broker.append(P, *many("old", 5))
    process = joined(world)
    world.broker.append(P, *many("unsealed", 3))
    process.turn()
    recreate(world, *many("new", 12))
    process.turn(2)  # the consumer stands at 8 and reads on: the segment [5,9] holds records of both
    process.turn(3)
    process.later()
    process.later()
    assert world.values(P) == many("old", 5)
    assert world.values(P, SECOND) == many("new", 12)
    world.expect(P, incarnation=SECOND)
    assert process.stopped == {}


def test_a_shorter_incarnation_is_read_from_its_start(world: World) -> None:
    """What the consumer wants is out of range: that is no truncation."""
    world.broker.append(P, *many("old", 10))
    process = joined(world)
    recreate(world, *many("new", 3))
    process.turn(2)
    process.later(1)
    process.later()
    assert world.values(P) == many("old", 10)
    assert world.values(P, SECOND) == many("new", 3)
    world.expect(P, incarnation=SECOND)
    assert process.stopped == {}


def test_an_empty_incarnation_is_found_by_the_next_refresh(world: World) -> None:
    process = joined(world)
    recreate(world)
    process.later(31)
    assert world.committed(P) == Committed(0, str(CommitMetadata(0, 2, SECOND)), 0)
    recreate(world, *many("new", 2))
    process.later(31)
    process.later()
    process.later()
    assert world.values(P, THIRD) == many("new", 2)
    assert world.values(P, SECOND) == []
    world.expect(P, incarnation=THIRD)


def test_segments_sealed_in_time_are_stored_in_their_own_path(world: World) -> None:
    """The segment is confirmed, and its upload is slow: its records are certainly of the first incarnation."""
    process = joined(world)
    process.uploads.holding = True
    world.broker.append(P, *many("old", 5))
    process.turn(2)
    recreate(world, *many("new", 7))
    process.turn(2)
    process.later()
    process.uploads.run_all()
    process.uploads.holding = False
    process.later()  # records of the second incarnation after it are sealed, and found to be of another topic
    process.later()
    process.later()
    assert world.values(P) == many("old", 5)
    assert world.values(P, SECOND) == many("new", 7)
    assert world.position(P) == 7


def test_nothing_is_stored_of_a_topic_that_is_gone(world: World) -> None:
    process = joined(world)
    world.broker.append(P, *many("old", 3))
    process.turn()
    world.broker.delete("t")
    process.later()
    assert world.ranges(P) == []
    assert process.builder.spool_bytes == 0
    assert "not in the cluster any more" in process.stopped[str(source(P))]
    world.broker.create("t", partitions=2)
    world.broker.append(P, *many("new", 2))
    process.later(30)
    process.later()
    assert world.values(P, SECOND) == many("new", 2)
    assert process.stopped == {}
    world.expect(P, incarnation=SECOND)


def test_created_again_while_it_is_asked_where_to_begin(world: World) -> None:
    """Offsets of the one, the topic id of the other."""
    world.broker.append(P, *many("old", 5))
    joined(world).stop()
    process = world.process()
    process.turn(2)
    world.objects.before["list"] = lambda _: recreate(world, *many("new", 9))
    process.consumer.assign(P)
    process.turn(3)
    process.later()
    process.later(31)
    process.later()
    assert world.values(P) == many("old", 5)
    assert world.values(P, SECOND) == many("new", 9)
    world.expect(P, incarnation=SECOND)


def test_each_partition_on_its_own_and_other_topics_not_at_all(world: World) -> None:
    [other] = world.broker.create("other")
    process = joined(world)
    for count in (3, 4):
        world.produce(other, count)
        world.broker.append(P, *many("p", count))
        world.broker.append(Q, *many("q", count + 1))
        process.turn(2)
        process.later()
        if count == 3:
            world.broker.recreate("t", partitions=2)
    process.later(1)
    process.later()
    assert (world.values(P), world.values(P, SECOND)) == (many("p", 3), many("p", 4))
    assert (world.values(Q), world.values(Q, SECOND)) == (many("q", 4), many("q", 5))
    world.expect(other)
    assert process.metrics.by_label("egress_rewinds", topic="other", partition="0") == 0


def test_revoked_just_after_it_was_created_again(world: World) -> None:
    process = joined(world)
    world.broker.append(P, *many("old", 3))
    process.turn()
    recreate(world, *many("new", 4))
    process.consumer.revoke(P)
    process.turn()
    assert world.ranges(P) == []
    joined(world, P).stop()
    assert world.values(P, SECOND) == many("new", 4)
    world.expect(P, incarnation=SECOND)


# --- while it is down -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 5, 9])
def test_created_again_while_it_was_down(world: World, count: int) -> None:
    world.broker.append(P, *many("old", 5))
    joined(world).stop()
    recreate(world, *many("new", count))
    process = joined(world)
    process.later()
    assert world.values(P) == many("old", 5)
    assert world.values(P, SECOND) == many("new", count)
    world.expect(P, incarnation=SECOND)
    assert process.stopped == {}
    process.stop()
    world.broker.append(P, b"more")
    joined(world).stop()
    world.expect(P, incarnation=SECOND)


@pytest.mark.parametrize("position", [2, 5, 9])
def test_a_commit_that_comes_after_the_topic_was_created_again_is_not_believed(world: World, position: int) -> None:
    """The broker deletes a topic's offsets with it; one that was under way arrives later."""
    world.broker.append(P, *many("old", 5))
    joined(world).stop()
    late = Committed(position, str(CommitMetadata(0, 2, FIRST)))
    recreate(world, *many("new", 7))
    world.broker.committed("group")[P] = late
    process = joined(world)
    process.later()
    assert world.values(P, SECOND) == many("new", 7)
    world.expect(P, incarnation=SECOND)
    assert process.stopped == {}


def test_a_later_incarnation_is_read_from_its_log_start_whatever_the_policy(world: World) -> None:
    world.rules = (rule("t", start="latest"),)
    world.broker.append(P, *many("skipped", 5))
    joined(world).stop()
    recreate(world, *many("new", 3))
    joined(world).stop()
    assert world.values(P, SECOND) == many("new", 3)


def test_footers_name_the_incarnation(world: World) -> None:
    joined(world).stop()
    recreate(world, b"new")
    joined(world).stop()
    [segment] = world.segments(P, SECOND)
    reader = FORMAT.open(world.peek.open(segment), segment)
    assert reader.footer.origin.topic_id == SECOND
    reader.close()
    assert segment == Segment(source(P, SECOND), 0, OffsetRange(0, 0))


# --- archives without a claim -------------------------------------------------------------------------------------


def test_an_archive_without_a_claim_stops_its_topic_only(world: World) -> None:
    [other] = world.broker.create("other")
    world.produce(P, 5)
    joined(world).stop()
    world.objects.memory.delete_many([f"data/a/_control/v1/places/{name}" for name in ("t", "other")])
    world.produce(P, 2)
    world.produce(other, 2)
    process = joined(world)
    process.later()
    assert "replicator adopt t" in process.stopped[str(source(P))]
    world.expect(other)
    assert world.ranges(P) == [(0, 4)]
    adopt_by_hand(world)
    process.later(30)
    process.later()
    assert process.stopped == {}
    world.expect(P)


def adopt_by_hand(world: World) -> None:
    adopt(world.control, world.admin, "a", "t", world.clock)


# --- another cluster --------------------------------------------------------------------------------------------------


def test_another_cluster_at_the_address_stops_everything_until_it_is_gone(world: World) -> None:
    world.produce(P, 7)
    process = joined(world)
    world.admin.cluster = "other"
    world.admin.ids["t"] = "theirs"
    world.produce(P, 2)
    process.turn()
    process.later(31)
    assert set(process.stopped) == {str(source(P)), str(source(Q))}
    for reason in process.stopped.values():
        assert "is other, and was cluster" in reason
        assert "replicator adopt" in reason
    assert world.ranges(P) == [(0, 4)]
    assert process.consumer.topics == {"t"}, "subscribed to what the other cluster has"
    for seconds in (30, 60):
        process.later(seconds)
        assert len(process.stopped) == 2
    world.admin.cluster = "cluster"
    del world.admin.ids["t"]
    process.later(300)
    process.later()
    assert process.stopped == {}
    world.expect(P)


def test_another_cluster_at_the_start_is_refused_with_both_names(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    world.admin.cluster = "other"
    world.admin.ids["t"] = "theirs"
    process = joined(world, cluster_id="other")
    reason = process.stopped[str(source(P))]
    assert "cluster cluster" in reason
    assert "is other" in reason
    adopt_by_hand(world)
    process.later(30)
    process.later()
    assert process.stopped == {}
    assert world.ranges(P, "theirs") == [(0, 4)]


# --- zombies ----------------------------------------------------------------------------------------------------------


def test_thawed_after_the_topic_was_created_again_it_uploads_nothing_unconfirmed(world: World) -> None:
    """Frozen with a sealed, unconfirmed segment; meanwhile another owner archived the new incarnation."""
    zombie = joined(world)
    zombie.asks.holding = True
    world.broker.append(P, *many("old", 5))
    zombie.turn(2)
    recreate(world, *many("new", 6))
    second = joined(world, consumer=FakeSourceConsumer(world.broker))
    second.stop()
    world.expect(P, incarnation=SECOND)
    before = world.objects.keys()
    zombie.consumer.lose(P)
    zombie.turn()
    zombie.asks.run_all()
    zombie.later()
    assert world.objects.keys() == before
    world.expect(P, incarnation=SECOND)
