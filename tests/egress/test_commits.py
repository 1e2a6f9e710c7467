"""Offsets that egress commits: when, and what a refused commit does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import Committed, TopicPartition
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import World
from tests.fakes.kafka_consumer import FakeSourceConsumer


def test_commits_carry_the_metadata_and_the_leader_epoch(world: World) -> None:
    world.produce(P, 3)
    world.broker.trim(P, 2)
    process = joined(world)
    assert world.committed(P) == Committed(2, "start=2 partitions=2 topic=id-t", 0)
    world.broker.elect(P, 7)
    world.produce(P, 4)
    process.turn(2)
    process.later()
    assert world.committed(P) == Committed(7, "start=2 partitions=2 topic=id-t", 7)
    process.stop()
    world.produce(P, 1)
    world.broker.create("t", partitions=4)
    joined(world).stop()
    committed = world.committed(P)
    assert committed is not None
    assert read_commit_metadata(committed) == CommitMetadata(2, 2, "id-t")


def test_failed_commit_is_repeated_with_all_of_it(world: World) -> None:
    process = joined(world)
    world.broker.elect(P, 3)
    process.consumer.fail_commits(P)
    world.produce(P, 5)
    process.turn(2)
    assert world.position(P) == 0
    process.turn(3)
    assert world.position(P) == 0, "not before a second has passed"
    process.later(1)
    assert world.committed(P) == Committed(5, "start=0 partitions=2 topic=id-t", 3)


def test_newer_position_is_not_overwritten_by_the_failed_one(world: World) -> None:
    process = joined(world)
    process.consumer.fail_commits(P)
    world.produce(P, 5)
    process.turn(2)
    world.produce(P, 5)
    process.turn(2)
    process.later(1)
    assert world.position(P) == 10


def test_failed_commit_that_is_repeated_stays_below_all_that_is_not_stored(world: World) -> None:
    process = joined(world)
    process.consumer.fail_commits(P)
    process.uploads.holding = True
    world.produce(P, 15)
    process.turn(3)
    process.uploads.run_next()
    process.turn(3)
    process.later(1)
    assert world.position(P) == 5


class RefusesCommits(FakeSourceConsumer):
    """The next one that is only sent."""

    refusing = True

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        if wait is None and self.refusing:
            self.refusing = False
            raise BrokerUnavailable("commit: _STATE")
        super().commit(offsets, wait=wait)


def test_commit_that_cannot_be_sent_is_sent_again(world: World) -> None:
    process = joined(world, P, consumer=RefusesCommits(world.broker))
    world.produce(P, 5)
    process.turn(3)
    assert world.committed(P) is None, "not before a second has passed"
    process.later(1)
    assert world.position(P) == 5


class RefusesWaitingCommits(FakeSourceConsumer):
    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        if wait is not None:
            raise TargetError("commit: UNKNOWN_TOPIC_OR_PART")
        super().commit(offsets, wait=wait)


class NotesWaits(FakeSourceConsumer):
    waits: Sequence[timedelta] = ()

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        self.waits = [*self.waits, *([wait] if wait is not None else [])]
        super().commit(offsets, wait=wait)


def test_the_last_commit_has_time_although_the_deadline_is_over(world: World) -> None:
    """Storing took all of it: what is stored is committed all the same."""
    consumer = NotesWaits(world.broker)
    process = joined(world, P, consumer=consumer, shutdown_seconds=0)
    world.produce(P, 3)
    process.turn(2)
    process.stop()
    assert [wait >= timedelta(seconds=2) for wait in consumer.waits] == [True]
    assert world.position(P) == 3


def test_refused_commit_at_revoke_leaves_no_ghost(world: World) -> None:
    process = joined(world, P, Q, consumer=RefusesWaitingCommits(world.broker))
    world.produce(P, 3)
    process.turn(2)
    process.consumer.revoke(P)
    process.turn(2)
    assert process.metrics.value("assigned_partitions") == 1
    process.consumer.assign(P)
    process.turn(3)
    process.later()
    world.expect(P)
