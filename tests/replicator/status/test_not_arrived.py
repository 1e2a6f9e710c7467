"""What a source has, by its watermarks, and of which nothing has arrived here; and a source that is silent."""

from __future__ import annotations

from datetime import timedelta

from formats.control.keys import watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.messages.delivery_checkpoint import Author, Checkpoint
from infra.archive.generations import Generations
from replicator.status.ingress import IngressStatus
from replicator.top.snapshot import delivery_rows
from tests.fakes.cluster_facts import FakeGroups
from tests.ingress.world import World, key, source_settings


def two_topics() -> World:
    """t is delivered; t2, which the same source selects, has 1,000 records in one of two partitions, and none here."""
    world = World(source_settings(topic="^t.*", destination="copy.{topic}"))
    world.broker.create("copy.t", partitions=2)
    world.put(0, 99)
    checkpoint = Checkpoint(100, "id-copy.t", world.clock.at, Author.EXACTLY_ONCE)
    world.target.checkpoints[key(destination="copy.t")] = checkpoint
    topics = {
        "t": TopicWatermarks(topic_id="t", low=(0, 0), high=(100, 0), stable=(100, 0), position=(100, 0)),
        "t2": TopicWatermarks(topic_id="t2", low=(500, 7), high=(1500, 7), stable=(1500, 7), position=(1500, 7)),
        "other": TopicWatermarks(topic_id="other", low=(0,), high=(9,), stable=(9,), position=(9,)),
    }
    marks = SourceWatermarks(cluster_id="source", writer="test", observed_at=world.clock.at, topics=topics)
    assert Generations(world.objects.memory, watermarks_prefix("data", "a")).put(1, encode_watermarks(marks))
    world.beat(1)
    return world


def status(world: World) -> IngressStatus:
    return world.status(FakeGroups(members={"replicator.ingress": 1}))


def test_a_topic_of_which_nothing_arrives_is_a_problem_after_an_hour() -> None:
    world = two_topics()
    first = status(world)
    assert [(str(one.source), one.destination, one.records) for one in first.not_arrived] == [
        ("a/t2/0", "copy.t2", 1000)
    ]
    assert (first.problems, first.sources[0].records_behind) == ([], 1000)
    world.clock.advance(3600)
    world.beat(1)
    (problem,) = status(world).problems
    assert problem.startswith("a/t2/0 -> copy.t2: the source's log has 1000 offsets, and nothing of it has arrived")
    world.put(500, 1499, topic="t2")
    assert status(world).not_arrived == ()


def test_what_has_not_arrived_is_behind_and_nothing_is_complete_with_it() -> None:
    """Its topic was in no row, and all counted as complete as of now."""
    world = two_topics()
    lags = {(one.source.topic, one.source.partition): one for one in world.lags()}
    absent = lags["t2", 0]
    assert (absent.records, absent.source_end, absent.next_offset, absent.seconds) == (1000, 1500, None, None)
    assert lags["t", 0].seconds == 0
    rows = {row.name: (row.behind, row.state) for row in delivery_rows(status(world), world.lags())}
    assert rows["a/t2/0 -> copy.t2"] == (1000, "nothing has arrived")


def test_a_topic_that_was_created_again_and_of_which_nothing_arrives() -> None:
    world = World()
    world.claim(0, topic_id="first")
    world.put(0, 9)
    world.set_checkpoint(10)
    world.beat(world.publish_watermarks(10, topic_id="first"))
    world.clock.advance(3600)
    number = world.publish_watermarks(6, topic_id="second")
    world.beat(number)
    found = status(world)
    assert [(str(one.source), one.destination, one.records) for one in found.not_arrived] == [
        ("a/t@second/0", "copy", 6)
    ]
    assert found.problems == [], "the log of an hour ago was that of the first"
    world.clock.advance(3600)
    world.beat(number)
    (problem,) = status(world).problems
    assert problem.startswith("a/t@second/0 -> copy: the source's log has 6 offsets, and nothing of it has arrived")
    world.put(0, 5, incarnation="second")
    assert status(world).not_arrived == ()


def test_a_source_that_is_silent_is_a_problem() -> None:
    world = two_topics()
    world.clock.advance(timedelta(minutes=5).total_seconds())
    (problem,) = status(world).problems
    assert problem.startswith("no heartbeat of a has arrived since ")
