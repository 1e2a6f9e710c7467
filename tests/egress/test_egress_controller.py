"""The egress loop on fakes: ranges tile, only what is stored is committed, and no trouble loses a record in silence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pytest

from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from formats.errors import BrokerUnavailable, TargetError
from formats.log_point import LogPoint
from formats.segment import OffsetRange, Segment, SourcePartition
from formats.topic_selection import TopicRule
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.consumer import Fetched, Run
from replicator.config import EgressTopicSettings
from tests.egress.world import AGE, FORMAT, Process, World, rule, source
from tests.fakes.kafka_consumer import FakeRecord, FakeSourceConsumer, run_of
from tests.fakes.small_disk import Quota

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
LABELS = {"topic": "t", "partition": "0"}

Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A world with topic t of two partitions."""
    made: list[World] = []

    def one(*rules: TopicRule[EgressTopicSettings]) -> World:
        world = World(tmp_path, *rules)
        world.broker.create("t", partitions=2)
        made.append(world)
        return world

    yield one
    for world in made:
        world.close()


@pytest.fixture
def world(make: Make) -> World:
    return make()


def joined(world: World, *partitions: TopicPartition, **options: object) -> Process:
    process = world.process(**options)
    process.join(*partitions)
    return process


# --- ranges tile ------------------------------------------------------------------------------------------------------


def test_everything_is_archived_and_committed(world: World) -> None:
    world.produce(P, 12)
    world.produce(Q, 3)
    process = joined(world)
    assert world.ranges(P) == [(0, 4), (5, 9)]
    process.later()
    assert world.ranges(P) == [(0, 4), (5, 9), (10, 11)]
    world.expect(P)
    world.expect(Q)


def test_restarts_leave_no_seam(world: World) -> None:
    for count in (3, 0, 7, 1):
        world.produce(P, count)
        joined(world).stop()
    assert world.ranges(P) == [(0, 2), (3, 7), (8, 9), (10, 10)]
    world.expect(P)


def test_partition_moves_in_the_middle_of_a_segment(world: World) -> None:
    world.produce(P, 7)
    first, second = joined(world, P), joined(world, Q)
    first.consumer.revoke(P)
    first.turn()
    assert first.metrics.by_label("egress_segments", reason="moved", **LABELS) == 1
    assert world.position(P) == 7
    world.produce(P, 2)
    first.turn(5)
    second.consumer.assign(P)
    second.turn(3)
    second.later()
    assert world.ranges(P) == [(0, 4), (5, 6), (7, 8)]
    world.expect(P)


def test_partition_comes_back_to_the_same_process(world: World) -> None:
    process = joined(world)
    for _ in range(3):
        world.produce(P, 2)
        process.turn(2)
        process.consumer.revoke(P)
        process.turn()
        process.consumer.assign(P)
        process.turn(3)
    world.expect(P)
    assert process.stopped == {}


def test_lost_partition_is_not_committed_and_the_next_owner_reads_it_again(world: World) -> None:
    process = joined(world)
    world.produce(P, 5)
    process.turn(2)
    world.produce(P, 3)
    process.turn(2)
    process.consumer.lose(P)
    process.later()
    assert world.ranges(P) == [(0, 4)]
    assert world.position(P) == 5
    process.consumer.assign(P)
    process.turn(3)
    process.later()
    world.expect(P)
    assert world.ranges(P) == [(0, 4), (5, 7)]


def test_upload_of_a_lost_partition_that_finishes_late_is_a_legal_overlap(world: World) -> None:
    process = joined(world)
    world.produce(P, 3)
    process.turn(2)
    process.uploads.holding = True
    process.later()
    process.consumer.lose(P)
    process.turn()
    assert world.position(P) == 0
    world.produce(P, 3)
    process.consumer.assign(P)
    process.turn(3)
    process.uploads.run_all()
    process.later()
    process.uploads.run_all()
    process.turn(2)
    assert world.position(P) == 6
    world.agree(P)


def test_holes_belong_to_the_range_and_a_range_of_holes_is_committed(world: World) -> None:
    world.produce(P, 2)
    world.broker.begin(P, b"aborted", b"too").abort()  # 2, 3, marker 4
    world.produce(P, 1)  # 5
    world.broker.hole(P, 3)  # 6 to 8
    process = joined(world)
    process.later()
    assert world.ranges(P) == [(0, 8)]
    world.expect(P)
    world.broker.begin(P, b"aborted").abort()
    process.turn(2)
    process.later()
    assert world.ranges(P)[1:] == [(9, 10)]
    world.expect(P)
    process.stop()
    world.produce(P, 1)
    joined(world).later()
    world.expect(P)


def test_open_transaction_is_waited_for(world: World) -> None:
    transaction = world.broker.begin(P, b"one", b"two")
    world.produce(P, 1)
    process = joined(world)
    process.later()
    assert world.ranges(P) == []
    transaction.commit()
    process.turn(2)
    process.later()
    world.expect(P)


# --- thresholds -------------------------------------------------------------------------------------------------------


def test_each_topic_has_its_own_limits(make: Make) -> None:
    world = make(
        rule("t", max_segment_messages=2),
        rule("big", max_segment_messages=1000, max_segment_size=300),
        rule("old", max_segment_messages=1000, max_segment_age=timedelta(seconds=90)),
    )
    [big], [old] = world.broker.create("big"), world.broker.create("old")
    process = joined(world)
    for _ in range(4):
        world.produce(P, 1)
        world.broker.append(big, bytes(100))
        world.produce(old, 1)
        process.turn()
        process.later(20)
    assert world.ranges(P) == [(0, 0), (1, 1), (2, 2), (3, 3)]  # by age: 10 s
    assert world.ranges(big) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert world.ranges(old) == []
    process.later(30)
    assert world.ranges(old) == [(0, 3)]
    world.produce(P, 4)
    world.broker.append(big, *[bytes(100)] * 4)
    process.consumer.per_poll = 1
    process.turn(8)
    assert world.ranges(P)[4:] == [(4, 5), (6, 7)]
    assert world.ranges(big)[4:] == [(4, 6)]
    reasons = {
        (name, reason): int(process.metrics.by_label("egress_segments", topic=name, partition="0", reason=reason))
        for name, reason in (("t", "age"), ("t", "messages"), ("big", "size"), ("old", "age"))
    }
    assert reasons == {("t", "age"): 4, ("t", "messages"): 2, ("big", "size"): 1, ("old", "age"): 1}


def test_run_larger_than_many_segments_is_cut_at_the_right_offsets(world: World) -> None:
    world.produce(P, 3)
    world.broker.hole(P, 4)
    world.produce(P, 14)
    process = joined(world)
    assert world.ranges(P) == [(0, 8), (9, 13), (14, 18)]
    process.later()
    world.expect(P)


def test_stored_records_are_counted(world: World) -> None:
    world.broker.append(P, *[FakeRecord(key=b"key", value=b"value")] * 5)
    process = joined(world)
    metrics = process.metrics
    assert metrics.by_label("egress_records", **LABELS) == 5
    assert metrics.by_label("egress_bytes", **LABELS) == 40
    [segment] = world.segments(P)
    [info] = world.peek.list(source(P))
    assert info.segment == segment
    assert metrics.by_label("egress_stored_bytes", **LABELS) == info.size_bytes
    assert len(metrics.observed["upload_latency_seconds"]) == 1
    assert metrics.value("assigned_partitions") == 2
    process.later(9)
    world.produce(P, 3)
    process.turn()
    process.later(2)
    assert metrics.value("egress_lag_records", **LABELS) == 3
    process.consumer.revoke(P)
    process.turn()
    assert metrics.value("egress_lag_records", **LABELS) is None
    assert metrics.value("assigned_partitions") == 1


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_stop_seals_stores_and_commits(world: World) -> None:
    world.produce(P, 7)
    process = joined(world)
    process.stop()
    assert world.ranges(P) == [(0, 4), (5, 6)]
    assert process.metrics.by_label("egress_segments", reason="stopped", **LABELS) == 1
    world.expect(P)
    assert process.abandon.is_set()


def test_records_not_stored_within_the_deadline_are_not_committed(world: World) -> None:
    world.produce(P, 4)
    world.produce(Q, 6)
    process = joined(world)
    assert world.position(Q) == 5
    process.uploads.holding = True
    process.stop()
    assert (world.position(P), world.position(Q)) == (0, 5)
    assert world.ranges(P) == []
    joined(world).stop()
    world.expect(P)
    world.expect(Q)


def test_store_that_gives_up_during_the_stop_commits_nothing_of_it(world: World) -> None:
    world.produce(P, 3)
    process = joined(world)
    world.objects.away = {"put_new"}
    process.stop()
    assert world.position(P) == 0
    world.objects.away = set()
    joined(world).stop()
    world.expect(P)


def test_only_the_unbroken_prefix_is_committed(world: World) -> None:
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 15)
    process.turn(2)
    assert process.uploads.waiting == 3
    process.uploads._jobs.rotate(-1)  # the second and the third finish first
    process.uploads.run_next()
    process.uploads.run_next()
    process.turn()
    assert world.ranges(P) == [(5, 9), (10, 14)]
    assert world.position(P) == 0
    process.uploads.run_next()
    process.turn()
    assert world.position(P) == 15


def test_an_exception_in_the_loop_commits_nothing_that_was_not_appended(world: World) -> None:
    world.produce(P, 3)
    process = joined(world)
    world.produce(P, 1)

    def broken(source: SourcePartition, start: int, run: Run) -> None:
        raise MemoryError

    process.builder.append = broken  # type: ignore[method-assign]  # broken on purpose
    with pytest.raises(MemoryError):
        process.controller.run()
    assert process.consumer.closed
    process.spool.close()
    joined(world).stop()
    world.expect(P)


# --- commits ----------------------------------------------------------------------------------------------------------


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


# --- trouble with the consumer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", [True, False])
def test_disturbance_starts_every_partition_again_and_loses_nothing(world: World, *, drop: bool) -> None:
    process = joined(world)
    for _ in range(6):
        world.produce(P, 3)
        world.produce(Q, 2)
        process.consumer.disturb(drop=drop)
        process.turn()
        process.consumer.per_poll = 2
        process.turn()
    process.consumer.per_poll = 100
    process.turn(3)
    process.later()
    world.expect(P)
    world.expect(Q)


def test_disturbance_while_nothing_is_known_yet(world: World) -> None:
    process = world.process()
    world.produce(P, 3)
    process.pool.holding = True
    process.turn(2)
    process.pool.run_all()
    process.turn(2)
    process.consumer.assign_all()
    process.turn(2)
    process.consumer.disturb()
    process.turn()
    process.pool.run_all()
    process.pool.holding = False
    process.turn(3)
    process.later()
    world.expect(P)


class CannotSeek(FakeSourceConsumer):
    broken = False

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        if self.broken:
            raise BrokerUnavailable("seek: planned")
        super().start(partition, next_offset, point)


def test_seek_that_fails_is_made_again(world: World) -> None:
    consumer = CannotSeek(world.broker)
    process = joined(world, consumer=consumer)
    world.produce(P, 3)
    consumer.broken = True
    consumer.disturb()
    process.turn(3)
    consumer.broken = False
    process.turn(3)
    assert process.builder.buffered_bytes == 0, "made again before its time"
    process.later(1)
    process.later()
    world.expect(P)


class Repeats(FakeSourceConsumer):
    """The next poll gives this instead."""

    instead: Sequence[Fetched] = ()

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        given, self.instead = self.instead, ()
        return given or super().poll(timeout)


def test_after_a_seek_nothing_of_the_same_poll_is_believed(world: World) -> None:
    consumer = Repeats(world.broker)
    process = joined(world, consumer=consumer)
    world.produce(P, 8)
    records = world.broker.logs[P].records
    consumer.per_poll = 3
    process.turn()
    consumer.instead = [  # repeats offset 2, so that the core asks again for 3; the rest must not be taken
        run_of(P, {2: records[2], 3: records[3], 4: records[4], 5: records[5]}),
        run_of(P, {6: records[6], 7: records[7]}),
    ]
    process.turn(4)
    process.later()
    world.expect(P)


# --- partitions that stop ---------------------------------------------------------------------------------------------


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


# --- spool and pressure -----------------------------------------------------------------------------------------------


def test_lost_spool_is_read_again(world: World) -> None:
    process = joined(world, spool_memory_bytes=-1)
    process.uploads.holding = True
    world.produce(P, 12)
    process.turn(2)
    assert process.uploads.waiting == 2
    for path in process.spool.directory.iterdir():
        if path.name != "lock":
            path.unlink()
    process.uploads.run_all()
    process.uploads.holding = False
    process.turn()
    assert process.metrics.by_label("egress_rewinds", **LABELS) >= 1
    process.later(1)
    process.later()
    process.later()
    world.expect(P)
    assert process.stopped == {}


def test_spool_lost_after_a_stored_segment_keeps_that(world: World) -> None:
    process = joined(world, spool_memory_bytes=-1)
    process.uploads.holding = True
    world.produce(P, 10)
    process.turn(2)
    process.uploads.run_next()
    for path in process.spool.directory.iterdir():
        if path.name != "lock":
            path.unlink()
    process.uploads.run_all()
    process.uploads.holding = False
    process.turn()
    assert world.position(P) == 5
    process.later(1)
    assert world.ranges(P) == [(0, 4), (5, 9)]
    world.expect(P)


def test_store_that_is_slow_pauses_fetching_and_polling_continues(world: World) -> None:
    process = joined(world, memory_bytes=2000)
    process.uploads.holding = True
    for _ in range(200):
        world.broker.append(P, *[bytes(100)] * 5)
        process.turn()
    assert process.builder.spool_bytes < 40_000, "it continued to read"
    assert process.metrics.by_label("egress_pauses", **LABELS) == 1
    assert process.metrics.value("egress_spool_bytes") == process.builder.spool_bytes
    turned = process.health.snapshot().turns["main"]
    process.consumer.disturb()  # the seeks that follow must not end the pause
    process.later(1)
    before = process.builder.spool_bytes
    process.turn(5)
    assert process.builder.spool_bytes == before
    assert process.health.snapshot().turns["main"] > turned
    process.uploads.holding = False
    process.uploads.run_all()
    for _ in range(200):
        process.turn()
        process.uploads.run_all()
    process.later()
    world.expect(P)


@pytest.mark.parametrize("size_bytes", [0, 1000, 20_000])
def test_a_full_disk_is_waited_for_and_nothing_is_read_again(make: Make, size_bytes: int) -> None:
    """All segments are open for long, and together larger than disk and memory; so each is sealed when there is no
    room, and stored."""
    world = make(rule("^.*", max_segment_messages=10_000, max_segment_age=timedelta(hours=1)))
    disk = Quota(size_bytes)
    process = joined(world, P, Q, disk=disk, memory_bytes=4000, spool_memory_bytes=500)
    spooled = 0
    for _ in range(100):
        for partition in (P, Q):
            world.broker.append(partition, *[os.urandom(150) for _ in range(4)])
        process.turn()
        spooled = max(spooled, process.builder.spool_bytes)
    process.turn(50)
    process.later(3600)
    for partition in (P, Q):
        world.expect(partition)
    assert process.metrics.counts["egress_rewinds"] == 0
    assert process.metrics.counts["egress_pauses"] > 0, "it was never full"
    assert spooled < size_bytes + 8000, "it continued to read"
    limit = process.metrics.value("egress_spool_limit_bytes")
    assert limit is not None
    assert limit < 8 * 4000
    assert process.health.snapshot().is_ready


def test_a_disk_that_others_fill_while_fetching_is_paused_is_no_deadlock(make: Make) -> None:
    world = make(rule("^.*", max_segment_messages=10_000, max_segment_age=timedelta(hours=1)))
    disk = Quota()
    process = joined(world, P, Q, disk=disk, memory_bytes=4000, spool_memory_bytes=500)
    process.uploads.holding = True
    while not process.metrics.counts["egress_pauses"]:
        for partition in (P, Q):
            world.broker.append(partition, *[os.urandom(150) for _ in range(4)])
        process.turn()
    disk.size_bytes = 0
    process.uploads.holding = False
    process.uploads.run_all()
    process.turn(20)  # no time passes: nothing is sealed by its age
    world.produce(P, 1)
    process.turn(3)
    process.later(3600)
    for partition in (P, Q):
        world.expect(partition)
    assert process.metrics.counts["egress_rewinds"] == 0


def test_a_spool_that_fails_again_and_again_is_named_until_something_is_stored(world: World) -> None:
    process = joined(world, spool_memory_bytes=-1)
    world.produce(P, 12)
    (process.spool.directory / "lock").rename(world.directory / "lock")
    process.spool.directory.rmdir()  # a disk that is gone
    for _ in range(3):
        assert process.health.snapshot().problems == {}
        process.later(60)
    [(subject, problem)] = process.health.snapshot().problems.items()
    assert subject == "a/t/0 read again"
    assert "3 times in a row" in problem
    assert str(process.spool.directory) in problem
    assert "egress.spool_dir" in problem
    process.spool.directory.mkdir()
    (world.directory / "lock").rename(process.spool.directory / "lock")
    process.later(60)
    process.later()
    world.expect(P)
    assert process.health.snapshot().is_ready


def test_a_store_that_is_slow_gets_larger_segments_and_not_more_of_them(make: Make) -> None:
    """A trickle, in segments of a second: what waits to be stored is one segment of each partition."""
    world = make(rule("^.*", max_segment_messages=10_000, max_segment_age=timedelta(seconds=1)))
    process = joined(world)
    process.uploads.holding = True
    for _ in range(100):
        for partition in (P, Q):
            world.produce(partition, 1)
        process.later(1, turns=1)
        assert process.uploads.waiting <= 2
    process.uploads.holding = False
    process.uploads.run_all()
    process.later(1)
    process.later(1)
    for partition in (P, Q):
        world.expect(partition)
        assert len(world.ranges(partition)) <= 3


def test_partition_that_comes_while_fetching_is_paused_waits_too(world: World) -> None:
    process = joined(world, P, memory_bytes=2000)
    process.uploads.holding = True
    for _ in range(60):
        world.broker.append(P, *[bytes(100)] * 5)
        process.turn()
    before = process.builder.spool_bytes
    world.produce(Q, 50)
    process.consumer.assign(Q)
    process.turn(5)
    assert process.builder.spool_bytes == before
    process.uploads.holding = False
    process.uploads.run_all()
    process.turn(80)
    process.later()
    world.expect(P)
    world.expect(Q)


def test_open_segments_that_fill_the_spool_are_sealed_although_none_is_full_or_old(make: Make) -> None:
    world = make(rule("t", max_segment_messages=1_000_000))
    process = joined(world, memory_bytes=2000)
    for _ in range(100):
        for partition in (P, Q):
            world.broker.append(partition, *[bytes(200)] * 5)
        process.turn()
    process.turn(200)  # nothing waits for the clock
    assert process.metrics.by_label("egress_pauses", **LABELS) >= 1
    assert process.builder.spool_bytes <= 8 * 2000
    assert {s.offsets.start for s in world.segments(P)} >= {0}
    process.later()
    world.expect(P)
    world.expect(Q)


def test_memory_pressure_encodes_early_and_reading_continues(world: World) -> None:
    process = joined(world, memory_bytes=1000)
    process.encoders.holding = True
    for _ in range(6):
        world.broker.append(P, *[bytes(150)] * 2)
        process.turn()
    assert process.builder.must_pause
    before = process.builder.buffered_bytes
    world.broker.append(P, *[bytes(150)] * 2)
    process.turn(3)
    assert process.builder.buffered_bytes == before
    process.encoders.holding = False
    process.encoders.run_all()
    process.turn(3)
    process.later()
    world.expect(P)


# --- where to begin ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "begun"), [("earliest", 2), ("latest", 6), ("time", 4)])
def test_start_policy(make: Make, start: str, begun: int) -> None:
    world = make()
    stamp = int(world.clock.at.timestamp() * 1000)
    world.broker.append(P, *(FakeRecord(value=b"%d" % i, timestamp_ms=stamp + i * 1000) for i in range(6)))
    world.broker.trim(P, 2)
    world.rules = (rule("t", start=world.clock.at + timedelta(seconds=4) if start == "time" else start),)
    process = joined(world)
    assert world.position(P) == begun
    process.stop()
    world.produce(P, 1)  # an idle partition is not positioned anew
    joined(world).stop()
    world.expect(P, begun)


def test_partition_added_later_is_read_from_its_beginning(make: Make) -> None:
    world = make(rule("t", start="latest"))
    world.produce(P, 3)
    process = joined(world)
    assert world.position(P) == 3
    later = world.broker.create("t", partitions=4)[2:]
    for partition in later:
        world.produce(partition, 2)
    process.later(30)
    process.consumer.assign(later[0])
    process.turn(3)
    assert world.position(later[0]) == 0
    process.stop()
    second = joined(world)
    second.later()
    for partition in later:
        world.expect(partition)


def test_topic_that_appears_later_is_read_from_its_beginning(make: Make) -> None:
    world = make(rule("^.*", start="latest"))
    process = joined(world)
    [new] = world.broker.create("new")
    world.produce(new, 4)
    process.later(30)
    process.consumer.assign_all()
    process.turn(3)
    process.later()
    world.expect(new)


def test_crash_between_stored_and_committed_stores_nothing_twice(world: World) -> None:
    process = joined(world)
    process.consumer.fail_commits(P)
    world.produce(P, 5)
    process.turn(2)
    process.crash()
    assert (world.position(P), world.ranges(P)) == (0, [(0, 4)])
    joined(world).later()
    world.expect(P)
    assert world.ranges(P) == [(0, 4)]


def test_crash_anywhere_else_is_healed_by_the_next(world: World) -> None:
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 13)
    process.turn(2)
    process.uploads._jobs.rotate(-1)
    process.uploads.run_next()  # [5,9] is stored, [0,4] is not
    process.crash()
    second = joined(world)
    second.later()
    assert world.position(P) == 13
    world.agree(P)
    process.uploads.run_all()  # the zombie's
    world.agree(P)


def test_unknown_positions_are_requested_again(world: World) -> None:
    world.produce(P, 2)
    process = world.process()
    process.turn(2)
    process.consumer.unavailable = True
    process.consumer.assign_all()
    process.turn(5)
    assert world.position(P) == -1
    process.consumer.unavailable = False
    process.later(1)
    world.objects.away = {"list"}
    process.later()
    world.objects.away = set()
    process.later()
    world.expect(P)


def test_listing_that_fails_is_not_an_empty_archive(make: Make) -> None:
    world = make(rule("t", start="latest"))
    world.produce(P, 5)
    world.objects.away = {"list"}
    process = joined(world)
    assert world.position(P) == -1
    world.produce(P, 5)
    process.later(1)
    assert world.position(P) == -1


def test_topic_that_vanishes_while_its_position_is_asked(world: World) -> None:
    [other] = world.broker.create("other")
    process = joined(world, other)
    process.pool.holding = True
    process.consumer.assign(P, Q)
    process.turn(2)
    process.later(30, turns=1)  # the topics are requested after the positions
    process.pool.run_next()
    del world.broker.logs[P], world.broker.logs[Q]
    process.pool.run_all()
    process.turn()
    assert process.consumer.topics == {"other"}
    process.pool.holding = False
    world.produce(other, 1)
    process.turn()
    process.later()
    world.expect(other)


def test_partition_the_cluster_does_not_show_holds_up_no_other(world: World) -> None:
    world.produce(P, 2)
    world.admin.hidden.add(Q)
    process = joined(world)
    process.later()
    world.expect(P)
    assert "t/1" in process.stopped[str(source(Q))]
    world.admin.hidden.clear()
    process.later(30)
    assert process.stopped == {}


def test_segment_of_a_zombie_beyond_what_was_the_end_is_no_truncation(world: World) -> None:
    """The old owner stores while we ask where to begin: the log's end must be asked after the archive."""
    process = joined(world)
    process.uploads.holding = True
    process.turn(2)
    second = world.process()
    second.turn(2)

    def meanwhile(_: str) -> None:
        world.produce(P, 5)
        process.turn(2)
        process.uploads.run_all()

    world.objects.before["list"] = meanwhile
    second.consumer.assign(P)
    second.turn(3)
    assert second.stopped == {}


# --- topics -----------------------------------------------------------------------------------------------------------


def test_ready_once_topics_are_known(world: World) -> None:
    process = world.process()
    world.admin.away = True
    process.turn(3)
    assert not process.health.snapshot().is_ready
    world.admin.away = False
    process.later(30)
    assert process.health.snapshot().is_ready
    assert process.consumer.topics == {"t"}


def test_trouble_with_the_topics_keeps_what_is_known(world: World) -> None:
    process = joined(world)
    world.admin.away = True
    world.produce(P, 2)
    process.later(31)
    process.later(31)
    assert process.consumer.topics == {"t"}
    assert world.ranges(P) == [], "stored although it is unknown whether the topic is still the same"
    world.admin.away = False
    process.later(1)
    world.expect(P)
    assert process.metrics.by_label("egress_rewinds", **LABELS) == 0, "an error was taken for an absence"


def test_footer_says_where_it_comes_from(world: World) -> None:
    world.broker.elect(P, 4)
    world.produce(P, 5)
    joined(world)
    [segment] = world.segments(P)
    reader = FORMAT.open(world.peek.open(segment), segment)
    origin = reader.footer.origin
    reader.close()
    assert (origin.topic_id, origin.cluster_id, origin.source_partition_count) == ("id-t", "cluster", 2)
    assert (origin.last_leader_epoch, origin.created_at) == (4, world.clock.at)
    assert segment.source == SourcePartition("a", "t", 0)


def test_rule_that_matches_no_topic_is_logged_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    process = joined(make(rule("t"), rule("slip"), rule("^t\\..*")))
    for _ in range(3):
        process.later(30)
    idle_rules = [r.topic for r in caplog.records if r.getMessage() == "rule_matches_no_topic"]  # type: ignore[attr-defined]
    assert idle_rules == ["^t\\..*", "slip"]


def test_a_process_that_finds_no_topic_has_started_all_the_same(make: Make) -> None:
    """It waits for the topic: nothing is wrong with it."""
    process = joined(make(rule("slip")))
    assert process.health.snapshot().is_started


# --- rights -----------------------------------------------------------------------------------------------------------


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
