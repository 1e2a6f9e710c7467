"""The egress loop on fakes: ranges tile, only what is stored is committed, and no trouble loses a record in silence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from egress.controller import POLL, QUIET_POLL
from formats.errors import BrokerUnavailable
from formats.log_point import LogPoint
from formats.records.milliseconds import ms_at_or_before, time_of_ms
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Fetched, Run
from tests.egress.two_partitions import LABELS, Make, P, Q, joined
from tests.egress.world import FORMAT, World, rule, source
from tests.fakes.kafka_consumer import FakeRecord, FakeSourceConsumer, run_of

# --- how long a turn waits --------------------------------------------------------------------------------------------


def test_only_a_process_without_open_work_waits_longer_for_records(world: World) -> None:
    process = world.process()
    process.turn(3)
    assert process.consumer.timeouts == [POLL] * 3, "the topics, and the group, are on their way"
    process.join()
    process.turn(2)
    assert process.consumer.timeouts[-1] == QUIET_POLL
    world.produce(P, 3)
    process.turn(2)
    assert process.consumer.timeouts[-1] == POLL, "the segment may become old at any time"
    process.uploads.holding = True
    process.later()
    assert process.consumer.timeouts[-1] == POLL, "it is being stored, and committed then"
    process.uploads.holding = False
    process.uploads.run_all()
    process.turn(3)
    world.expect(P)
    assert process.consumer.timeouts[-1] == QUIET_POLL


def test_a_process_whose_commit_was_refused_does_not_wait_longer_before_the_next(world: World) -> None:
    process = world.process()
    process.join()
    world.produce(P, 3)
    process.turn()
    process.consumer.fail_commits(P)
    process.later(turns=4)
    assert world.broker.committed("group")[P].next_offset == 0
    assert process.consumer.timeouts[-1] == POLL
    process.later(1)
    world.expect(P)
    assert process.consumer.timeouts[-1] == QUIET_POLL


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


def test_the_stages_to_the_bucket_are_measured_from_the_oldest_record(world: World) -> None:
    stamp = ms_at_or_before(world.clock.at)
    world.broker.append(P, *[FakeRecord(timestamp_ms=stamp + n) for n in range(2)])
    process = joined(world)
    process.later(20)  # sealed by its age
    stages = process.metrics.stages(source(P).region)
    [close], [put] = stages["close"], stages["put"]
    assert close == (world.clock.at - time_of_ms(stamp)).total_seconds()
    assert put == pytest.approx(process.metrics.observed["upload_latency_seconds"][0], abs=1e-6)


@pytest.mark.parametrize("stamp", [-1, 2**62])
def test_without_a_usable_timestamp_there_is_no_stage_before_sealing(world: World, stamp: int) -> None:
    world.broker.append(P, FakeRecord(timestamp_ms=stamp))
    process = joined(world)
    process.later(20)
    assert process.metrics.stages(source(P).region).keys() == {"put"}


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
    assert (origin.writer, origin.role, origin.created_by) == ("test", "egress", "example_app")
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
