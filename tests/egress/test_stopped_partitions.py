"""Partitions of egress that stop, and what lets them continue."""

from __future__ import annotations

from io import BytesIO

from formats.gap_acceptance import acceptable
from formats.segment import OffsetRange, Segment
from infra.archive.forward_listing import covered
from infra.contracts.cluster import Committed
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import AGE, World, rule, source


def in_the_way(world: World, offsets: OffsetRange) -> Segment:
    """A segment of other records under the key that is wanted."""
    other = World(world.directory, rule("^.*", max_segment_messages=offsets.end - offsets.start + 1))
    other.broker.create("t", partitions=1)
    other.broker.hole(P, offsets.start)
    other.broker.append(P, *[b"other"] * (offsets.end - offsets.start + 1))
    other.broker.trim(P, offsets.start)
    joined(other, P).stop()
    [segment] = other.segments(P)
    with other.peek.open(segment) as body:
        data = body.read()
    world.peek.store(segment, BytesIO(data), len(data))
    return segment


def test_refused_upload_stops_that_partition_only_until_its_cause_is_gone(world: World) -> None:
    process = joined(world)
    segment = in_the_way(world, OffsetRange(0, 4))
    world.produce(P, 5)
    world.produce(Q, 5)
    process.turn(6)  # what contradicts the archive is read once more
    assert list(process.stopped) == [str(source(P))]
    assert str(segment) in process.stopped[str(source(P))]
    assert process.metrics.value("stopped_partitions", held="true") == 1
    world.expect(Q)
    for seconds in (30, 60, 120, 240, 300, 300):
        process.later(seconds)
        assert list(process.stopped) == [str(source(P))], "it continued after records that contradict the source's"
        assert world.position(P) == 0
    world.produce(Q, 2)
    process.turn(2)
    process.later()
    world.expect(Q)
    world.peek.delete_many([segment])
    process.later(300)
    process.later()
    assert process.stopped == {}
    assert process.metrics.value("stopped_partitions", held="true") == 0
    world.expect(P)


def test_contradiction_is_not_passed_by_a_segment_of_another_length(world: World) -> None:
    """What arrived meanwhile makes the range longer, so its key would be free."""
    process = joined(world)
    in_the_way(world, OffsetRange(0, 2))
    world.produce(P, 3)
    process.turn(2)
    process.later()
    process.turn(3)  # what contradicts the archive is read once more
    process.later(turns=5)
    assert list(process.stopped) == [str(source(P))]
    world.produce(P, 9)
    for seconds in (30, 60, 120):
        process.later(seconds)
    assert list(process.stopped) == [str(source(P))]
    assert world.ranges(P) == [(0, 2)]


def test_records_read_are_stored_although_the_source_lost_the_next_offset(world: World) -> None:
    """The store is slow, retention is not: the records in the spool exist nowhere else any more."""
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 7)
    process.turn(2)
    world.produce(P, 5)
    world.broker.trim(P, 10)
    process.turn(2)
    process.later(30)
    assert process.stopped == {}, "asked where to begin before what was read is stored"
    process.uploads.run_all()
    process.turn(3)
    assert world.ranges(P) == [(0, 4), (5, 6)]
    assert world.position(P) == 7
    assert "[7,9] is gone" in process.stopped[str(source(P))]
    assert "on_gap = 'record'" in process.stopped[str(source(P))]
    world.agree(P)


def test_refused_partition_continues_by_itself_when_the_broker_allows_it(world: World) -> None:
    process = joined(world)
    world.produce(P, 2)
    process.turn(2)
    process.consumer.fail(P, "TOPIC_AUTHORIZATION_FAILED", "no READ")
    process.turn()
    world.produce(P, 2)
    world.produce(Q, 1)
    process.turn(3)
    assert "TOPIC_AUTHORIZATION_FAILED" in process.stopped[str(source(P))]
    process.later(30)
    process.later()
    assert process.stopped == {}
    world.expect(P)
    world.expect(Q)


def test_a_record_that_the_client_cannot_deliver_is_left_out_as_the_reason_says(world: World) -> None:
    process = joined(world)
    world.produce(P, 2)
    process.turn(2)
    process.consumer.fail(P, "UNDECODABLE_HEADER", "not UTF-8", offset=2)
    process.turn(2)
    reason = process.stopped[str(source(P))]
    for part in ("not UTF-8", "to 3 (kafka-consumer-groups", "on_archive_behind = 'continue'", f"accept {source(P)}"):
        assert part in reason
    world.produce(P, 3)
    process.stop()
    world.broker.committed("group")[P] = Committed(3, "")
    process = joined(world, accept_missing_archive=True)
    process.later()
    assert process.stopped == {}
    assert world.ranges(P) == [(0, 1), (3, 4)]
    assert acceptable((), (), covered(world.peek, source(P)), None) == [OffsetRange(2, 2)]


def test_segment_that_could_not_be_judged_is_tried_again(world: World) -> None:
    """The key is taken, and the question whether the stored object agrees gets no answer."""
    process = joined(world)
    in_the_way(world, OffsetRange(0, 4))
    world.objects.away = {"open"}
    world.produce(P, 5)
    process.turn(2)
    assert process.stopped == {}
    for info in world.peek.list(source(P)):
        world.peek.delete_many([info.segment])
    world.objects.away = set()
    process.later(60, turns=5)
    process.later(AGE)
    world.expect(P)


def test_stop_names_its_numbers_and_is_checked_again(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    world.peek.delete_many(world.segments(P))
    process = joined(world)
    assert "committed 5" in process.stopped[str(source(P))]
    assert "archive holds nothing" in process.stopped[str(source(P))]
    world.produce(P, 1)
    process.later()
    assert world.ranges(P) == []
    world.broker.committed("group").pop(P)
    process.later(30)
    process.later()
    assert process.stopped == {}
    world.expect(P)


def test_missing_archive_may_be_accepted(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    world.peek.delete_many(world.segments(P))
    world.produce(P, 1)
    process = joined(world, accept_missing_archive=True)
    process.later()
    assert world.ranges(P) == [(5, 5)]


def test_moved_away_partition_is_no_longer_reported(world: World) -> None:
    process = joined(world)
    process.consumer.fail(P, "X")
    world.produce(P, 1)
    process.turn()
    assert process.stopped
    process.consumer.revoke(P)
    process.turn()
    assert process.stopped == {}
    assert process.metrics.value("stopped_partitions", held="true") == 0
