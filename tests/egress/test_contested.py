"""Stored segments that contradict the records read: the partition stops as long as they exist, and no longer."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from io import BytesIO

import pytest

from egress.read_session import session_at
from egress.start.choice import Start
from egress.start.commit_metadata import CommitMetadata
from egress.start.query import StartAt
from egress.topics.claims import ClaimedTopic
from formats.incarnation import Incarnation
from formats.segment import OffsetRange, Segment
from infra.contracts.cluster import TopicFacts, TopicPartition
from tests.egress.forked import settle, stop_reason, stored_beyond_the_commit
from tests.egress.two_partitions import joined
from tests.egress.world import FORMAT, Process, World, settings, source

P = TopicPartition("t", 0)


def later(process: Process, seconds: int) -> int:
    """Of so many seconds, in how many nothing was stopped."""
    ready = 0
    for _ in range(seconds):
        process.later(1, turns=1)
        ready += not process.stopped
    return ready


def test_an_overlapping_corrupt_segment_stops_the_partition_until_it_is_removed(world: World) -> None:
    stored_beyond_the_commit(world)  # [0,2]
    [stored] = world.segments(P)
    world.peek.delete_many([stored])
    world.peek.store(stored, BytesIO(b"PAR1 not really PAR1"), 20)
    world.produce(P, 1)  # the next segment is [0,3]
    process = joined(world)
    settle(process)
    assert "corrupt segment" in stop_reason(process)
    assert later(process, 300) == 0
    world.peek.delete_many([stored])
    later(process, 330)
    assert process.stopped == {}
    world.expect(P)


def test_a_corrupt_segment_stops_the_partition_until_a_good_copy_stands_in_its_place(world: World) -> None:
    """As `repair-segment` puts it."""
    stored_beyond_the_commit(world)  # [0,2]
    [stored] = world.segments(P)
    with world.peek.open(stored) as body:
        good = body.read()
    world.peek.delete_many([stored])
    world.peek.store(stored, BytesIO(b"PAR1 not really PAR1"), 20)
    world.produce(P, 1)
    process = joined(world)
    settle(process)
    assert "corrupt segment" in stop_reason(process)
    assert later(process, 300) == 0
    world.peek.delete_many([stored])
    world.peek.store(stored, BytesIO(good), len(good))
    later(process, 330)
    assert process.stopped == {}
    world.agree(P)
    assert world.position(P) == 4


def test_an_overlapping_segment_of_another_topic_stops_the_partition_until_it_is_removed(world: World) -> None:
    stored_beyond_the_commit(world)
    [stored] = world.segments(P)
    with closing(FORMAT.open(world.peek.open(stored), stored)) as reader:
        batches, origin = list(reader.batches()), reader.footer.origin
    sink = BytesIO()
    writer = FORMAT.create(sink)
    writer.write(batches)
    writer.close(stored, replace(origin, topic_id="stranger"))
    world.peek.delete_many([stored])
    world.peek.store(stored, sink, sink.tell())
    world.produce(P, 1)
    process = joined(world)
    settle(process)
    assert "topic ids" in stop_reason(process)
    assert later(process, 300) == 0
    world.peek.delete_many([stored])
    later(process, 330)
    assert process.stopped == {}
    world.expect(P)


@pytest.mark.cpu
def test_many_segments_beyond_the_commit_cost_little_each() -> None:
    """As many as an offset leaves that is set far back."""
    topic = ClaimedTopic(facts=TopicFacts("t", "id", 1), cluster_id="c", name="id", incarnation=Incarnation("t"))
    beyond = tuple(Segment(source(P), 0, OffsetRange(n * 10, n * 10 + 9)) for n in range(100_000))
    session = session_at(StartAt(topic, source(P), Start(0, CommitMetadata(0, 1), ""), beyond), settings())
    began = time.process_time()
    for n in range(10):
        offsets = OffsetRange(n * 10, n * 10 + 9)
        assert session.overlapping(offsets) == (Segment(source(P), 0, offsets),)
        session.position(n * 10 + 10)
    assert (time.process_time() - began) / 10 < 0.005


def test_segments_below_the_position_are_forgotten() -> None:
    topic = ClaimedTopic(facts=TopicFacts("t", "id", 1), cluster_id="c", name="id", incarnation=Incarnation("t"))
    first, second = (Segment(source(P), 0, OffsetRange(start, start + 9)) for start in (0, 10))
    session = session_at(StartAt(topic, source(P), Start(0, CommitMetadata(0, 1), ""), (second, first)), settings())
    session.position(9)
    assert list(session.beyond) == [first, second]
    session.position(10)
    assert list(session.beyond) == [second]
