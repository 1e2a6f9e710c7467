"""The source's log loses archived records and gives their offsets to others: the partition stops, through growth of the
log, restarts and moves, until an operator decides."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from io import BytesIO

import pytest

from formats.control.fork import LogFork
from formats.segment import OffsetRange, Segment, SegmentInfo
from infra.contracts.cluster import Committed
from tests.egress.forked import FORK1, adopt, archived, cut, forks, goes_on, settle, stop_reason
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import FORMAT, Process, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer
from tests.fakes.surroundings import T0

# --- found ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 3, 5, 20])
def test_a_fork_while_it_was_down_is_recorded_and_stops_the_partition(world: World, more: int) -> None:
    """Whether the log is shorter than what was archived, as long, or longer again."""
    archived(world)
    before = world.values(P)
    cut(world, 5, more)
    process = joined(world)
    settle(process)
    reason = stop_reason(process)
    assert "it reached offset 10 in leader epoch 0, which ends at 5 now" in reason
    assert "replicator adopt --fork t" in reason
    assert "replicator gaps accept a/t/0 5-9 --reason TEXT --yes" in reason
    assert (forks(world), world.values(P), world.position(P)) == ([(5, 10)], before, 10)
    world.produce(Q, 2)
    settle(process)
    world.expect(Q)


def test_an_end_that_was_archived_and_not_committed_is_missed_at_once(world: World) -> None:
    """No record follows that could be compared."""
    joined(world).stop()
    earlier = world.broker.committed("group")[P]
    archived(world)
    before = world.values(P)
    world.broker.committed("group")[P] = earlier
    cut(world, 5, 0)
    for _ in range(2):
        process = joined(world)
        settle(process)
        assert "the archive ends before 10, and the log at 5" in stop_reason(process)
        assert (forks(world), world.values(P)) == ([(0, 10)], before)
        process.stop()


def test_no_growth_of_the_log_and_no_restart_lifts_it(world: World) -> None:
    archived(world)
    before = world.values(P)
    cut(world, 5, 0)
    process = joined(world)
    settle(process)
    for seconds in (30, 60, 120, 240, 300):
        world.produce(P, 10)
        process.later(seconds)
        assert list(process.stopped) == [str(source(P))]
    process.consumer.revoke(P)
    process.turn()
    again = joined(world, P, consumer=FakeSourceConsumer(world.broker))
    settle(again)
    assert "leader epoch 0, which ends at 5 now" in stop_reason(again)
    assert (forks(world), world.values(P), world.position(P)) == ([(5, 10)], before, 10)


def test_a_fork_below_the_begin_of_an_archive_that_holds_nothing_yet(world: World) -> None:
    """Readers begin at the recorded begin of the archive, so records that reuse earlier offsets do not belong to this
    path. No offset is reported as archived that is not."""
    world.rules = (rule("t", start="latest"),)
    world.produce(P, 10)
    process = joined(world)
    settle(process)
    assert world.ranges(P) == []
    cut(world, 5, 3)
    settle(process)
    assert "its archive in a/t continues at 10. Any records archived at [5,9]" in stop_reason(process)
    assert forks(world) == [(5, 10)]
    adopt(world)
    goes_on(process)
    world.expect(P, 5, incarnation=FORK1)


def test_a_fork_while_it_runs(world: World) -> None:
    process = joined(world)
    world.produce(P, 10)
    settle(process)
    before = world.values(P)
    cut(world, 5, 20)
    settle(process)
    assert "ends at 5 now" in stop_reason(process)
    assert (forks(world), world.values(P), world.position(P)) == ([(5, 10)], before, 10)


def test_records_only_read_are_dropped_and_read_again(world: World) -> None:
    """Nothing of it was archived, so that the archive is of the log as it is now."""
    process = joined(world)
    world.produce(P, 8)
    process.turn()
    assert world.ranges(P) == [(0, 4)], "three are still to be sealed"
    cut(world, 6, 4)
    settle(process)
    settle(process)
    assert process.stopped == {}
    assert forks(world) == []
    world.expect(P)


def test_uploads_in_flight_are_waited_for(world: World) -> None:
    """It may still be archived, and contradicts the log's current records then."""
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 5)
    process.turn(2)
    world.objects.before["put_new"] = lambda _: cut_and_turn(world, process)
    process.uploads.run_next()
    process.uploads.holding = False
    assert forks(world) == []
    settle(process)
    settle(process)
    assert world.values(P) == [b"value-%d" % n for n in range(5)]
    assert forks(world) == [(2, 5)]
    assert "which ends at 2 now" in stop_reason(process)


def test_so_is_one_behind_a_segment_that_the_spool_lost(world: World) -> None:
    """The records are read again from the lost segment on, and are of another log then."""
    process = joined(world, spool_memory_bytes=-1)
    process.uploads.holding = True
    world.produce(P, 10)
    process.turn(2)
    world.objects.before["put_new"] = lambda _: lose_cut_and_turn(world, process)
    process.uploads.run_last()
    process.uploads.holding = False
    process.uploads.run_all()
    settle(process)
    world.produce(P, 7)
    for _ in range(3):
        settle(process)
    assert world.ranges(P) == [(5, 9)]
    assert world.values(P) == [b"value-%d" % n for n in range(5, 10)]
    assert len(forks(world)) == 1
    assert stop_reason(process)


def lose_cut_and_turn(world: World, process: Process) -> None:
    """While [5,9] is uploaded."""
    for path in process.spool.directory.iterdir():
        if path.name != "lock":
            path.unlink()
    process.uploads.run_next()  # [0,4], whose file is lost
    process.turn()
    process.later(1, turns=1)  # the seek
    cut(world, 2, 2)
    process.uploads.holding = False
    for _ in range(3):
        process.later()


def test_so_is_one_before_a_segment_that_is_contested(world: World) -> None:
    """What contests it is removed while an earlier segment is still uploaded."""
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 10)
    process.turn(2)
    world.peek.store(CONTESTING, BytesIO(b"PAR1 not really PAR1"), 20)
    world.objects.before["put_new"] = lambda _: contest_and_cut(world, process)
    process.uploads.run_next()
    for _ in range(3):
        settle(process)
        process.later(40)
    assert world.ranges(P) == [(0, 4)]
    assert world.values(P) == [b"value-%d" % n for n in range(5)]
    assert forks(world) == [(2, 5)]
    assert "which ends at 2 now" in stop_reason(process)


CONTESTING = Segment(source(P), 0, OffsetRange(5, 9))


def contest_and_cut(world: World, process: Process) -> None:
    """While [0,4] is uploaded."""
    process.uploads.run_next()  # [5,9]
    process.turn()
    assert "corrupt segment" in stop_reason(process)
    world.peek.delete_many([CONTESTING])
    cut(world, 2, 2)
    process.uploads.holding = False
    for _ in range(3):
        process.later(40)
        process.turn(4)


def cut_and_turn(world: World, process: Process) -> None:
    cut(world, 2, 9)
    process.turn(4)
    assert process.stopped == {}
    assert world.position(P) == 0


def test_a_hole_at_the_end_is_no_fork(world: World) -> None:
    """The last record is of one leader epoch, the marker after it of the next, and then comes another leader."""
    world.produce(P, 3)
    joined(world).stop()
    for _ in range(3):
        world.broker.elect(P)
        world.broker.begin(P, b"aborted").abort()
        joined(world).stop()
    world.broker.elect(P)
    process = joined(world)
    world.produce(P, 3)
    settle(process)
    assert process.stopped == {}
    world.expect(P)


@pytest.mark.parametrize("expired", [False, True])
def test_neither_is_one_whose_epoch_the_group_does_not_know(world: World, expired: bool) -> None:
    """The commit expired, or is of another program: the archive knows the epoch of its last record, which lies before
    the hole."""
    world.produce(P, 3)
    world.broker.elect(P)
    world.broker.begin(P, b"aborted").abort()
    joined(world).stop()
    assert world.ranges(P) == [(0, 4)]
    world.broker.elect(P)
    commits = world.broker.committed("group")
    if expired:
        del commits[P]
    else:
        commits[P] = Committed(5, "by hand")
    process = joined(world)
    world.produce(P, 3)
    settle(process)
    assert process.stopped == {}
    world.agree(P)
    # without a commit the last record is read once more
    assert world.ranges(P) == ([(0, 4), (2, 7)] if expired else [(0, 4), (5, 7)])
    assert world.position(P) == 8


@pytest.mark.parametrize("high", [2, 3, 4])
@pytest.mark.parametrize("expired", [False, True])
def test_the_archive_shows_a_fork_when_the_group_does_not(world: World, high: int, expired: bool) -> None:
    """Below the last record archived, right after it, and in the hole after that."""
    world.produce(P, 3)
    world.broker.begin(P, b"aborted", b"aborted").abort()
    joined(world).stop()
    assert world.ranges(P) == [(0, 5)]
    commits = world.broker.committed("group")
    if expired:
        del commits[P]
    else:
        commits[P] = Committed(6, "by hand")
    cut(world, high, 9)
    process = joined(world)
    for _ in range(3):
        settle(process)
    [fork] = world.control_peek.forks.of(source(P))
    assert fork.next_offset == 6
    assert min(high, 3) <= fork.contested.start <= high
    assert world.ranges(P) == [(0, 5)]
    assert "has forked" in stop_reason(process)


def test_a_fork_that_cannot_be_recorded_is_not_passed(world: World) -> None:
    archived(world)
    before = world.values(P)
    cut(world, 5, 20)
    world.objects.away = {"put_new"}
    process = joined(world)
    settle(process)
    assert (forks(world), world.values(P), process.stopped) == ([], before, {})
    world.objects.away = set()
    process.later(1)
    settle(process)
    assert (forks(world), world.values(P)) == ([(5, 10)], before)
    assert "has forked" in stop_reason(process)


def test_a_crash_after_the_record_leaves_the_stop(world: World) -> None:
    archived(world)
    cut(world, 5, 20)
    process = world.process()
    process.turn(2)
    process.consumer.assign(P)
    while not forks(world):
        process.turn()
    process.crash()
    assert world.position(P) == 10
    settle(again := joined(world, consumer=FakeSourceConsumer(world.broker)))
    assert "has forked" in stop_reason(again)
    assert forks(world) == [(5, 10)]


def test_a_topic_created_again_is_no_fork(world: World) -> None:
    """Its leader epochs begin anew."""
    world.produce(P, 3)
    world.broker.elect(P, 7)
    world.produce(P, 3)
    process = joined(world)
    process.turn(3)
    world.broker.recreate("t", partitions=2)
    world.produce(P, 9)
    settle(process)
    process.later(31)
    settle(process)
    assert process.stopped == {}
    assert world.ranges(P, "id-t-1")[-1][1] == 8
    assert world.control_peek.forks.sources("a") == []


def test_epochs_that_begin_again_below_nothing_archived_are_no_fork(world: World) -> None:
    """A cluster that was restored, with later offsets of the group: the epoch committed with offset 0 is not known."""
    world.broker.elect(P, 7)
    joined(world).stop()
    committed = world.committed(P)
    assert committed is not None
    assert (committed.next_offset, committed.leader_epoch) == (0, 7)
    log = world.broker.logs[P]
    log.epochs, log.leader_epoch = {0: 0}, 0
    world.produce(P, 5)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    assert process.stopped == {}
    world.expect(P)


def test_logs_without_leader_epochs_are_judged_by_their_length(world: World) -> None:
    """Old message formats. Once such a log has grown again nothing distinguishes it: documented."""
    archived(world)
    commits = world.broker.committed("group")
    commits[P] = replace(commits[P], leader_epoch=None)
    without_epochs(world)
    cut(world, 5, 0)
    process = joined(world)
    settle(process)
    assert "the topic ends at 5: it was truncated" in stop_reason(process)
    assert forks(world) == []


def without_epochs(world: World) -> None:
    """The footers of what is archived know none, as the ancestor's."""
    for segment in world.segments(P):
        with closing(FORMAT.open(world.peek.open(segment), segment)) as reader:
            batches, origin = list(reader.batches()), reader.footer.origin
        sink = BytesIO()
        writer = FORMAT.create(sink)
        writer.write(batches)
        writer.close(segment, replace(origin, last_leader_epoch=None))
        world.peek.delete_many([segment])
        world.peek.store(segment, sink, sink.tell())


def damage(world: World, segment: Segment) -> None:
    """In its footer."""
    with closing(world.peek.open(segment)) as body:
        data = bytearray(body.read())
    data[-20] ^= 0xFF
    world.peek.delete_many([segment])
    world.peek.store(segment, BytesIO(bytes(data)), len(data))


@pytest.mark.parametrize("trouble", ["damaged", "frozen"])
def test_a_last_segment_that_cannot_be_read_is_not_the_absence_of_one(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """The group has forgotten its offsets: that segment alone shows what the log was."""
    archived(world)
    last = world.segments(P)[-1]
    good = world.peek.open(last).read()
    if trouble == "damaged":
        damage(world, last)
    else:
        monkeypatch.setattr(SegmentInfo, "is_frozen", property(lambda info: info.segment == last))
    world.broker.committed("group").clear()
    cut(world, 6, 20)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert str(last) in stop_reason(process)
    assert ("Put a good copy" if trouble == "damaged" else "make it readable") in stop_reason(process)
    assert world.ranges(P) == [(0, 4), (5, 9)]
    assert str(source(Q)) not in process.stopped
    monkeypatch.undo()
    world.peek.delete_many([last])
    world.peek.store(last, BytesIO(good), len(good))
    process.later(60)
    settle(process)
    assert "ends at 6 now" in stop_reason(process)
    assert world.ranges(P) == [(0, 4), (5, 9)]


def test_a_last_segment_that_was_merged_meanwhile_is_listed_again(world: World) -> None:
    archived(world)
    world.broker.committed("group").clear()
    cut(world, 6, 20)
    old = world.segments(P)
    merged = Segment(source(P), 1, OffsetRange(0, 9))

    def merge(key: str) -> None:
        if "/t/0/0/" not in key:
            world.objects.before["open"] = merge
            return
        sink = BytesIO()
        writer = FORMAT.create(sink)
        for segment in old:
            with closing(FORMAT.open(world.peek.open(segment), segment)) as reader:
                writer.write(list(reader.batches()))
                origin = reader.footer.origin
        writer.close(merged, origin)
        world.peek.store(merged, sink, sink.tell())
        world.peek.delete_many(old)

    world.objects.before["open"] = merge
    process = joined(world, P, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert "ends at 6 now" in stop_reason(process)
    assert world.segments(P) == [merged]


# --- where an archive begins ------------------------------------------------------------------------------------------


def test_a_fork_that_contests_more_is_recorded_in_addition_to_the_first_at_its_offset(world: World) -> None:
    def fork(end_offset: int | None) -> LogFork:
        return LogFork(source=source(P), next_offset=9, leader_epoch=3, end_offset=end_offset, found_at=T0)

    for end_offset in (5, 7, 5, 2, 3, None):
        world.control.forks.record(fork(end_offset))
    assert {f.end_offset for f in world.control.forks.of(source(P))} >= {5, 2, None}
    assert fork(7) not in world.control.forks.of(source(P))
    assert world.control.forks.sources("a") == [source(P)]


def test_forks_survive_their_text(world: World) -> None:
    fork = LogFork(source=source(P), next_offset=9, leader_epoch=None, end_offset=None, found_at=T0, evidence="x")
    world.control.forks.record(fork)
    assert world.control.forks.of(source(P)) == [fork]
