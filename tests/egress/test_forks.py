"""The source's log loses archived records and gives their offsets to others: the partition stops, through growth of the
log, restarts and moves, until an operator decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from egress.topics.fork_adoption import adopt_fork
from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import joined as joined_ranges
from formats.errors import TargetError
from formats.segment import LEVEL_STREAMING, OffsetRange, Segment, SegmentInfo
from infra.contracts.cluster import Committed, TopicPartition, Watermarks
from infra.contracts.storage import ObjectInfo
from tests.egress.world import FORMAT, Process, World, rule, source
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeSourceConsumer
from tests.fakes.surroundings import T0

P, Q, R = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
FORK1, FORK2 = "id-t-fork1", "id-t-fork2"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.broker.create("t", partitions=2)
    yield world
    world.close()


def joined(world: World, *partitions: TopicPartition, **options: object) -> Process:
    process = world.process(**options)
    process.join(*partitions)
    return process


def archived(world: World, count: int = 10) -> None:
    """`count` records of each partition, by a process that ended in order."""
    world.produce(P, count)
    world.produce(Q, count)
    joined(world).stop()


def cut(world: World, high: int, more: int, partition: TopicPartition = P) -> None:
    world.broker.truncate(partition, high)
    world.produce(partition, more)


def settle(process: Process, turns: int = 10) -> None:
    process.turn(turns)
    process.later()
    process.turn(2)


def forks(world: World, incarnation: str = "") -> list[tuple[int | None, int]]:
    return [(f.end_offset, f.next_offset) for f in world.control_peek.forks(source(P, incarnation))]


def accept(world: World, start: int, end: int, incarnation: str = "") -> None:
    world.control_peek.record_gap(
        RecordedGap(
            source=source(P, incarnation),
            offsets=OffsetRange(start, end),
            reason="lost for good",
            low=0,
            high=0,
            recorded_at=T0,
            is_accepted=True,
        )
    )


def adopt(world: World) -> str:
    return adopt_fork(world.peek, world.control_peek, world.admin, "a", "t", clock=world.clock).incarnation.id


def goes_on(process: Process) -> None:
    """The process finds the operator's decision, and archives the records that the log has by then."""
    process.later(31)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}


def stop_reason(process: Process, incarnation: str = "") -> str:
    return process.stopped[str(source(P, incarnation))]


def values_of_log(world: World, start: int = 0) -> list[bytes | None]:
    return [r.value for o, r in sorted(world.broker.logs[P].records.items()) if o >= start]


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
    [fork] = world.control_peek.forks(source(P))
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
    assert world.control_peek.fork_sources("a") == []


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


# --- a new path -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [False, True])
def test_adopted_it_continues_in_a_new_path_from_where_the_logs_differ(world: World, running: bool) -> None:
    """So do partitions that did not fork, after their archived offsets: the two paths hold everything, once."""
    archived(world)
    old, others = world.values(P), world.values(Q)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    assert adopt(world) == FORK1
    assert adopt(world) == FORK1, "repeating it changes nothing"
    if not running:
        process.stop()
        process = joined(world, consumer=FakeSourceConsumer(world.broker))
    process.later(31)
    world.produce(P, 3)
    world.produce(Q, 3)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert world.values(P) == old
    assert world.values(P, FORK1) == values_of_log(world, 5)
    world.expect(P, 5, incarnation=FORK1)
    assert world.values(Q) + world.values(Q, FORK1) == [r.value for r in world.broker.logs[Q].records.values()]
    assert world.values(Q) == others
    world.expect(Q, 10, incarnation=FORK1)
    claims = {path: world.control_peek.claim_of("a", path) for path in world.control_peek.claimed_paths("a")}
    assert {p: (c.number, c.fork, c.forked_from, c.topic_id) for p, c in claims.items() if c} == {
        "t": (0, 0, "", "id-t"),
        f"t@{FORK1}": (1, 1, "t", "id-t"),
    }
    begins = {p: world.control_peek.begin(source(p, FORK1)) for p in (P, Q)}
    assert {p: b.offset for p, b in begins.items() if b} == {P: 5, Q: 10}
    [segment, *_] = world.segments(P, FORK1)
    with closing(FORMAT.open(world.peek.open(segment), segment)) as reader:
        assert reader.footer.origin.topic_id == "id-t"


def test_records_read_for_the_previous_path_are_stored_there_first(world: World) -> None:
    """A partition that did not fork, with records that are not sealed, and others whose upload is slow."""
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    process.uploads.holding = True
    world.produce(Q, 8)
    process.turn(2)
    adopt(world)
    process.later(31)
    settle(process)
    assert world.ranges(Q, FORK1) == []
    process.uploads.holding = False
    process.uploads.run_all()
    world.produce(Q, 2)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert joined_ranges(s.offsets for s in world.segments(Q)).next_offset == 18
    world.expect(Q, 18, incarnation=FORK1)
    assert world.values(Q) + world.values(Q, FORK1) == [r.value for r in world.broker.logs[Q].records.values()]


def test_a_partition_without_a_record_begins_where_it_was_positioned(world: World) -> None:
    world.rules = (rule("t", start="latest"),)
    world.broker.hole(Q, 7)
    process = joined(world)
    world.produce(P, 10)
    settle(process)
    process.stop()
    cut(world, 5, 20)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    adopt(world)
    process.later(31)
    settle(process)
    world.produce(Q, 2)
    for _ in range(3):
        settle(process)
    world.expect(Q, 7, incarnation=FORK1)
    world.expect(P, 5, incarnation=FORK1)


@pytest.mark.parametrize("forked", [False, True])
def test_a_partition_that_is_added_after_a_fork_is_read_from_its_beginning(world: World, forked: bool) -> None:
    """Whatever the start policy: what was written before egress noticed it is not to be lost."""
    world.rules = (rule("t", start="latest"),)
    process = joined(world)
    world.produce(P, 10)
    world.produce(Q, 10)
    settle(process)
    if forked:
        cut(world, 5, 20)
        settle(process)
        adopt(world)
        process.later(31)
        for _ in range(3):
            settle(process)
    assert process.stopped == {}
    world.broker.create("t", partitions=3)
    world.produce(R, 4)
    process.later(31)
    process.consumer.assign(R)
    for _ in range(3):
        settle(process)
    incarnation = FORK1 if forked else ""
    found = world.control_peek.begin(source(R, incarnation))
    assert found is not None
    assert found.offset == 0
    world.expect(R, incarnation=incarnation)


def test_offsets_removed_by_retention_before_the_new_path_began_are_a_recorded_gap(world: World) -> None:
    """Of a partition that did not fork, while egress was down."""
    world.rules = (rule("t", on_gap="record"),)
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    adopt(world)
    process.stop()
    world.produce(Q, 10)
    world.broker.trim(Q, 15)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert list(world.control_peek.gap_ranges(source(Q, FORK1))) == [OffsetRange(10, 14)]
    found = world.control_peek.begin(source(Q, FORK1))
    assert found is not None
    assert found.offset == 10
    world.expect(Q, 15, incarnation=FORK1)


def test_a_fork_of_the_fork(world: World) -> None:
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    adopt(world)
    process.later(31)
    settle(process)
    settle(process)
    assert world.position(P) == 25
    cut(world, 3, 30)
    settle(process)
    assert forks(world, FORK1) == [(3, 25)]
    assert f"replicator gaps accept a/t@{FORK1}/0 3-24" in stop_reason(process, FORK1)
    assert adopt(world) == FORK2
    goes_on(process)
    world.expect(P, 3, incarnation=FORK2)
    assert [c and (c.number, c.forked_from) for c in (world.control_peek.claim_of("a", f"t@{FORK2}"),)] == [
        (2, f"t@{FORK1}")
    ]


def test_a_fork_of_the_fork_before_every_partition_continued_after_the_first_is_not_adopted(world: World) -> None:
    """The resolver reads one path before the current one, so it would read such a partition from its log start."""
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    assert adopt(world) == FORK1
    process.stop()
    process = world.process()
    process.join(P)  # Q is assigned to no process
    settle(process)
    settle(process)
    cut(world, 3, 30)
    settle(process)
    assert forks(world, FORK1) == [(3, 25)]
    with pytest.raises(TargetError, match=r"where partitions \[1\] continue in a/t@.*-fork1"):
        adopt(world)
    process.consumer.assign(Q)
    settle(process)
    settle(process)
    assert adopt(world) == FORK2
    goes_on(process)
    world.expect(P, 3, incarnation=FORK2)
    assert world.values(Q, FORK2) == [], "the first path holds it"


def test_a_loss_that_goes_deeper_while_the_first_one_waits(world: World) -> None:
    """The new path would begin at 5, and the log has lost more since: the offsets between are in neither path."""
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    cut(world, 2, 30)
    adopt(world)
    process.later(31)
    settle(process)
    assert forks(world, FORK1) == [(2, 5)]
    assert adopt(world) == FORK2
    goes_on(process)
    world.expect(P, 2, incarnation=FORK2)


def test_crash_between_the_begin_of_the_new_path_and_its_first_commit(world: World) -> None:
    archived(world)
    cut(world, 5, 20)
    settle(process := joined(world))
    adopt(world)
    process.stop()
    process = world.process(consumer=FakeSourceConsumer(world.broker))
    process.turn(2)
    process.consumer.fail_commits(P, Q)
    process.consumer.assign(P, Q)
    process.turn(3)
    assert world.control_peek.begin(source(P, FORK1)) is not None
    process.crash()
    assert world.position(P) == 10
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    settle(process)
    world.agree(P, FORK1)
    assert joined_ranges(s.offsets for s in world.segments(P, FORK1)).runs == (OffsetRange(5, 24),)
    assert world.position(P) == 25
    world.expect(Q, 10, incarnation=FORK1)


def test_a_snapshot_from_before_the_first_commit_is_seen_by_the_last_record(world: World) -> None:
    """Nothing of the group is there, and the epochs are given again: the archive alone knows better."""
    world.broker.elect(P, 3)
    archived(world)
    world.broker.committed("group").clear()
    world.broker.rewind(P, 6)
    world.broker.elect(P, 3)
    world.produce(P, 20)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert world.ranges(P) == [(0, 4), (5, 9)]
    assert forks(world) == [(9, 10)]
    assert "differ at offset 9" in stop_reason(process)


def test_brokers_without_topic_ids_continue_as_the_next_generated_id(world: World) -> None:
    world.admin.ids["t"] = ""
    archived(world)
    old = world.values(P)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    for number, high in ((1, 5), (2, 4)):
        incarnation = f"cluster-{number}"
        assert adopt(world) == incarnation
        goes_on(process)
        world.expect(P, high, incarnation=incarnation)
        world.expect(Q, 10, incarnation=incarnation)
        claim = world.control_peek.claim_of("a", f"t@{incarnation}")
        assert claim is not None
        assert (claim.number, claim.fork) == (number, number)
        cut(world, 4, 30)
        settle(process)
    assert world.values(P) == old


def test_adopting_a_fork_that_is_not_there_is_refused(world: World) -> None:
    archived(world)
    with pytest.raises(TargetError, match="no fork of its log is recorded for a/t"):
        adopt(world)
    world.admin.cluster = "other"
    world.broker.create("u")
    world.control_peek.claim("a", "u", TopicClaim(topic_id="", cluster_id="cluster", number=0, claimed_at=T0))
    with pytest.raises(TargetError, match=r"adopt --fork u: .*other"):
        adopt_fork(world.peek, world.control_peek, world.admin, "a", "u", clock=world.clock)
    with pytest.raises(TargetError, match="no such topic"):
        adopt_fork(world.peek, world.control_peek, world.admin, "a", "absent", clock=world.clock)


# --- the same path ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grown", [False, True])
def test_accepted_it_continues_after_what_is_archived(world: World, grown: bool) -> None:
    archived(world)
    old = world.values(P)
    cut(world, 5, 9 if grown else 2)
    process = joined(world)
    settle(process)
    accept(world, 5, 8)
    process.later(60)
    assert "5-9" in stop_reason(process), "not all of it is accepted"
    accept(world, 5, 9)
    process.later(120)
    if not grown:
        assert "waits until it has grown there" in stop_reason(process)
        world.produce(P, 7)
        process.later(300)
    settle(process)
    assert process.stopped == {}
    process.stop()
    world.produce(P, 3)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    assert world.values(P) == [*old, *values_of_log(world, 10)]
    assert world.position(P) == world.broker.logs[P].high
    assert len(forks(world)) == 1


def test_accepted_and_forked_again(world: World) -> None:
    archived(world)
    cut(world, 5, 15)
    settle(process := joined(world))
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    assert world.position(P) == 20
    cut(world, 15, 20)
    settle(process)
    assert forks(world) == [(5, 10), (15, 20)]
    assert "replicator gaps accept a/t/0 15-19" in stop_reason(process)
    accept(world, 15, 19)
    process.later(60)
    settle(process)
    assert process.stopped == {}
    assert world.position(P) == 35


def test_accepted_before_anything_more_was_archived_an_expired_offset_does_not_bring_it_back(world: World) -> None:
    """The archive's last footer is still of the old log."""
    archived(world)
    cut(world, 5, 5)
    settle(process := joined(world))
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    process.stop()
    del world.broker.committed("group")[P]
    world.broker.elect(P)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    world.produce(P, 3)
    settle(process)
    assert process.stopped == {}
    assert world.values(P)[10:] == values_of_log(world, 10)


@pytest.mark.parametrize("when", ["while it waits", "before anything more is archived", "while it is away"])
def test_a_loss_that_goes_deeper_than_the_fork_that_was_accepted_stops_the_partition(world: World, when: str) -> None:
    """What is archived at 2-4 is another log's by now, and was not accepted."""
    archived(world)
    old = world.values(P)
    cut(world, 5, 7)
    settle(process := joined(world))
    if when == "while it waits":
        cut(world, 2, 30)
        process.later(60)
    accept(world, 5, 9)
    process.later(120, turns=5)
    if when != "while it waits":
        assert process.stopped == {}
        assert world.ranges(P)[-1] == (5, 9), "nothing is archived after it yet"
        if when == "while it is away":
            process.crash()
        cut(world, 2, 30)
        if when == "while it is away":
            process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(4):
        settle(process)
    assert "it reached offset 5 in leader epoch 0, which ends at 2 now" in stop_reason(process)
    assert "replicator gaps accept a/t/0 2-9" in stop_reason(process)
    assert sorted(forks(world)) == [(2, 10), (5, 10)]
    assert world.values(P) == old
    accept(world, 2, 9)
    process.later(120)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert world.values(P) == [*old, *values_of_log(world, 10)]
    assert len(forks(world)) == 2


def test_adopted_a_loss_that_goes_deeper_than_the_fork_that_was_accepted_is_followed(world: World) -> None:
    archived(world)
    cut(world, 5, 7)
    settle(process := joined(world))
    cut(world, 2, 30)
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    assert "2-9" in stop_reason(process)
    assert adopt(world) == FORK1
    process.later(120)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    world.expect(P, 2, incarnation=FORK1)


def test_an_accepted_fork_waits_until_the_brokers_say_that_nothing_more_was_lost(world: World) -> None:
    archived(world)
    old = world.values(P)
    cut(world, 5, 20)
    settle(process := joined(world))
    world.probe.silent.add(P)
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    assert "the brokers do not say whether the log has lost more" in stop_reason(process)
    assert world.values(P) == old
    world.probe.silent.clear()
    process.later(120)
    settle(process)
    assert process.stopped == {}
    assert world.values(P) == [*old, *values_of_log(world, 10)]


def test_a_log_that_is_cut_just_after_it_was_requested_is_noticed(world: World) -> None:
    """Its reader begins with the epoch in which the log had come there."""
    archived(world)
    cut(world, 5, 7)
    settle(process := joined(world))
    accept(world, 5, 9)
    world.probe.after_answer = lambda: cut(world, 2, 30)
    process.later(60)
    for _ in range(3):
        settle(process)
    assert "which ends at 2 now" in stop_reason(process)
    assert (2, 10) in forks(world)
    assert world.ranges(P)[-1] == (5, 9)


# --- what is stored beyond the commit ---------------------------------------------------------------------------------


def stored_beyond_the_commit(world: World, count: int = 3) -> None:
    """Its owner died before the commit."""
    world.produce(P, count)
    process = joined(world)
    process.consumer.fail_commits(P)
    process.turn()
    world.clock.advance(10)
    process.consumer.fail_commits(P)
    process.turn(2)
    process.crash()
    assert (world.ranges(P), world.position(P)) == ([(0, count - 1)], 0)


@pytest.mark.parametrize("epochs", [True, False])
@pytest.mark.parametrize("more", [1, 2, 3])
def test_a_contradiction_is_noticed_whatever_its_key(world: World, epochs: bool, more: int) -> None:
    """The log forks below what is stored and not committed; the next segment ends before it, at it, after it."""
    stored_beyond_the_commit(world)
    (world.broker.truncate if epochs else world.broker.rewind)(P, 1)
    world.produce(P, more)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert world.ranges(P) == [(0, 2)], "a segment was stored that contradicts an overlapping one"
    reason = stop_reason(process)
    stored = Segment(source(P), LEVEL_STREAMING, OffsetRange(0, 2))
    # a log that is shorter than the archive is evidence enough
    assert ("the archive ends before 3, and the log at 2" if more == 1 else f"stored {stored} and new") in reason
    assert "replicator adopt --fork t" in reason
    assert "replicator gaps accept a/t/0 " in reason
    assert forks(world)[0][1] == 3
    # after a restart whose segment ends elsewhere the answer is the same
    world.produce(P, 9)
    process.stop()
    again = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(again)
    assert stop_reason(again) == reason
    assert (world.ranges(P), world.position(P)) == ([(0, 2)], 0)


def test_a_refusal_is_not_passed_by_a_restart(world: World) -> None:
    """The variant in which the first attempt ended at the same offset, and was refused by its key."""
    stored_beyond_the_commit(world)
    world.broker.rewind(P, 1)
    world.produce(P, 2)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    world.objects.away = {"put_new"}  # nothing can be recorded meanwhile
    for _ in range(3):
        settle(process)
    process.crash()
    world.objects.away = set()
    world.produce(P, 2)
    again = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(again)
    assert world.ranges(P) == [(0, 2)]
    assert "differ at offset 1" in stop_reason(again)


def test_a_snapshot_with_the_groups_offsets_is_seen_by_the_records(world: World) -> None:
    """No epoch shows it: the cluster has forgotten the later ones, and gives them again."""
    archived(world, 4)
    earlier = world.broker.committed("group")[P]
    world.broker.elect(P)
    world.produce(P, 6)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    old = world.values(P)
    assert world.position(P) == 10
    world.broker.committed("group")[P] = earlier
    world.broker.rewind(P, 6)
    world.broker.elect(P, 1)
    world.produce(P, 9)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert forks(world) == [(6, 10)]
    assert "differ at offset 6" in stop_reason(process)
    assert set(world.values(P)) == set(old)
    assert adopt(world) == FORK1
    goes_on(process)
    world.expect(P, 6, incarnation=FORK1)


def test_a_snapshot_that_is_accepted(world: World) -> None:
    archived(world, 10)
    commits = world.broker.committed("group")
    commits[P] = Committed(4, commits[P].metadata, 0)
    world.broker.rewind(P, 6)
    world.produce(P, 9)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    accept(world, 6, 9)
    process.later(60)
    settle(process)
    assert process.stopped == {}
    assert world.position(P) == 15
    with_new = {o: v for s in world.segments(P) for o, v in world.read(s).items() if o >= 10}
    assert list(with_new.values()) == values_of_log(world, 10)


def test_segments_that_overlap_and_agree_are_stored(world: World) -> None:
    """As after every crash between an upload and its commit: no reason to stop."""
    stored_beyond_the_commit(world)
    world.produce(P, 9)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    settle(process)
    assert process.stopped == {}
    world.agree(P)
    assert world.position(P) == 12
    assert world.ranges(P)[:2] == [(0, 2), (0, 4)]


def test_segments_merged_meanwhile_are_compared_all_the_same(world: World) -> None:
    """Between the listing and the comparison the segment is gone, and a larger one has its records."""
    stored_beyond_the_commit(world)
    world.broker.rewind(P, 1)
    world.produce(P, 3)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    process.uploads.holding = True
    settle(process)
    [old] = world.segments(P)
    merged = Segment(old.source, 1, old.offsets)
    with closing(FORMAT.open(world.peek.open(old), old)) as reader:
        batches, origin = list(reader.batches()), reader.footer.origin
    sink = BytesIO()
    writer = FORMAT.create(sink)
    writer.write(batches)
    writer.close(merged, origin)
    world.peek.store(merged, sink, sink.tell())
    world.peek.delete_many([old])
    process.uploads.holding = False
    process.uploads.run_all()
    for _ in range(3):
        settle(process)
    assert world.segments(P) == [merged]
    assert f"stored {merged}" in stop_reason(process)


def test_a_stray_object_is_no_fork_any_more_once_it_is_removed(world: World) -> None:
    stored_beyond_the_commit(world)
    world.broker.rewind(P, 0)
    world.produce(P, 7)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert "has forked" in stop_reason(process)
    world.peek.delete_many(world.segments(P))
    process.later(60)
    settle(process)
    assert process.stopped == {}
    world.expect(P)


# --- where an archive begins ------------------------------------------------------------------------------------------


def begin(world: World, partition: TopicPartition = P) -> ArchiveBegin | None:
    return world.control_peek.begin(source(partition))


def test_the_begin_is_written_before_anything_is_stored_or_committed(world: World) -> None:
    world.rules = (rule("t", start="latest"),)
    world.broker.hole(P, 7)
    world.control.claim("a", "t", TopicClaim(topic_id="id-t", cluster_id="cluster", number=0, claimed_at=T0))
    world.objects.away = {"put_new"}
    process = joined(world)
    assert (begin(world), world.position(P)) == (None, -1)
    world.objects.away = set()
    order: list[str] = []
    put, commit = world.objects.put_new, process.consumer.commit

    def put_new(key: str, body: BinaryIO, size_bytes: int) -> None:
        order.append("begin" if "/begins/t/0" in key else "segment" if "/t/0/0/" in key else "other")
        put(key, body, size_bytes)

    def committed(offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        order.extend(["commit"] if P in offsets else [])
        commit(offsets, wait=wait)

    world.objects.put_new, process.consumer.commit = put_new, committed  # type: ignore[method-assign]
    process.later(1)
    world.produce(P, 3)
    settle(process)
    assert [step for step in order if step != "other"] == ["begin", "commit", "segment", "commit"]
    found = begin(world)
    assert found is not None
    assert (found.offset, found.reason) == (7, "start policy")
    world.expect(P, 7)


@pytest.mark.parametrize("start", ["latest", "time"])
def test_a_start_outlives_the_groups_offsets(world: World, start: str) -> None:
    """A partition that never had a record: after a week its commit is gone, and the policy would decide anew."""
    world.broker.hole(P, 7)
    world.rules = (rule("t", start="latest" if start == "latest" else T0),)
    joined(world).stop()
    del world.broker.committed("group")[P]
    world.produce(P, 3)
    world.rules = (rule("t", start="latest"),)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    world.expect(P, 7)


def test_offsets_that_the_source_lost_since_are_a_gap(world: World) -> None:
    world.rules = (rule("t", start="latest", on_gap="record"),)
    joined(world).stop()
    del world.broker.committed("group")[P]
    world.produce(P, 5)
    world.broker.trim(P, 3)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    assert list(world.control.gap_ranges(source(P))) == [OffsetRange(0, 2)]
    assert world.ranges(P) == [(3, 4)]


def test_the_first_begin_stands(world: World) -> None:
    """Two processes position one partition at once: the second agrees with the first."""
    world.rules = (rule("t", start="latest"),)
    process = world.process()
    process.turn(2)
    first = ArchiveBegin(offset=0, reason="another process", recorded_at=T0)
    world.produce(P, 4)
    real = world.control_peek.record_begin(source(P), first)
    world.objects.memory.delete_many(["data/a/_control/v1/begins/t/0"])
    fast = {"done": False}

    def other(key: str) -> None:
        if "/begins/t/0" in key and not fast["done"]:
            fast["done"] = True
            world.control_peek.record_begin(source(P), real)
        elif not fast["done"]:
            world.objects.before["put_new"] = other

    world.objects.before["put_new"] = other
    process.consumer.assign(P)
    process.turn(3)
    settle(process)
    world.expect(P)
    assert begin(world) == first


def test_from_commit_metadata_then_archive_then_policy(world: World) -> None:
    world.broker.hole(P, 4)
    world.produce(P, 6)
    world.rules = (rule("t", start="latest"),)
    joined(world).stop()
    assert begin(world) is not None
    world.produce(P, 5)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    for keep_commit in (True, False):
        world.objects.memory.delete_many(["data/a/_control/v1/begins/t/0"])
        if not keep_commit:
            del world.broker.committed("group")[P]
        joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
        found = begin(world)
        assert found is not None
        assert found.offset == 10


def test_a_begin_that_cannot_be_read_is_not_the_absence_of_one(world: World) -> None:
    joined(world).stop()
    del world.broker.committed("group")[P]
    key = "data/a/_control/v1/begins/t/0"
    world.objects.memory.delete_many([key])
    world.objects.memory.put_new(key, BytesIO(b"{}"), 2)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    assert "_control/v1/begins/" in stop_reason(process)


@pytest.mark.parametrize("kind", ["forks", "gaps", "begins"])
def test_a_control_object_that_cannot_be_read_holds_up_its_own_partition_only(world: World, kind: str) -> None:
    archived(world)
    world.broker.create("other")
    other = TopicPartition("other", 0)
    keys = {name: f"data/a/_control/v1/{name}/t/0" for name in ("forks", "gaps", "begins")}
    key = keys["begins"]
    if kind != "begins":
        cut(world, 5, 9)
        settle(process := joined(world, P))
        accept(world, 5, 9)
        process.crash()
        [key] = [item.key for item in world.objects.memory.list(keys[kind])]
    content = world.objects.memory.open(key).read()
    del world.broker.committed("group")[P]
    replaced(world, key, b'{"v":2}')
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    world.produce(other, 5)
    world.produce(Q, 5)
    for _ in range(3):
        settle(process)
    assert list(process.stopped) == [str(source(P))]
    assert "Restore that object" in stop_reason(process)
    assert ("[5,9]" if kind == "gaps" else key) in stop_reason(process)
    assert world.ranges(other) == [(0, 4)]
    world.expect(Q)
    replaced(world, key, content)
    process.later(120)
    settle(process)
    assert process.stopped == {}


def replaced(world: World, key: str, content: bytes) -> None:
    world.objects.memory.delete_many([key])
    world.objects.memory.put_new(key, BytesIO(content), len(content))


@pytest.mark.parametrize("leaderless", [(P,), (P, Q)])
def test_partitions_without_a_leader_hold_up_no_other(world: World, leaderless: tuple[TopicPartition, ...]) -> None:
    world.broker.create("other")
    other = TopicPartition("other", 0)
    world.admin.leaderless.update(leaderless)
    process = joined(world)
    world.produce(other, 5)
    world.produce(P, 5)
    for _ in range(3):
        settle(process)
    assert world.ranges(other) == [(0, 4)]
    assert process.stopped == {}, "a leader may be elected within seconds"
    for _ in range(7):
        process.later(10)
    problems = process.health.snapshot().problems
    assert set(problems) == {f"{source(p)} attempts" for p in leaderless}
    assert all("LEADER_NOT_AVAILABLE" in what for what in problems.values())
    world.admin.leaderless.clear()
    process.later(2)
    settle(process)
    assert process.health.snapshot().is_ready
    world.expect(P)


def test_a_partition_without_a_leader_is_requested_again_after_a_second(world: World) -> None:
    """And not in each turn of the loop, with another partition that has one."""
    world.admin.leaderless.add(P)
    process = joined(world)
    process.turn(10)
    asked = world.admin.asked["watermarks"]
    assert asked == 4, "of both at once, then of each, and once for the lag of the other"
    process.later(1, turns=10)
    assert world.admin.asked["watermarks"] == asked + 1


def test_an_unavailable_cluster_gets_no_request_for_each_partition(world: World) -> None:
    world.broker.create("many", partitions=50)
    world.rules = (rule("many"),)

    class Vanishing(FakeAdmin):
        def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
            self.away = True
            return super().watermarks(partitions)

    world.admin = Vanishing(world.broker)
    process = world.process()
    process.turn(2)
    process.consumer.assign_all()
    process.turn(2)
    assert world.admin.asked["watermarks"] == 1
    assert process.stopped == {}


def test_empty_partitions_take_a_request_each(world: World) -> None:
    """And a handful for the topic; a restart takes none for those that have a commit."""
    world.broker.create("many", partitions=200)
    world.rules = (rule("many"),)
    world.objects.calls.clear()
    process = joined(world)
    assert len(world.broker.committed("group")) == 200
    assert sum(world.objects.calls.values()) <= 200 + 20, world.objects.calls
    process.stop()
    world.objects.calls.clear()
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    assert sum(world.objects.calls.values()) <= 20, world.objects.calls


def test_a_large_archive_is_not_listed_for_a_few_of_its_partitions(world: World) -> None:
    joined(world).stop()
    for offset in range(1500):
        world.peek.store(Segment(source(Q), 0, OffsetRange(offset, offset)), BytesIO(), 0)
    listed: list[str] = []
    listing = world.objects.list

    def counted(prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        for item in listing(prefix, start_after=start_after, limit=limit):
            listed.append(item.key)
            yield item

    world.objects.list = counted  # type: ignore[method-assign]
    process = joined(world, P, consumer=FakeSourceConsumer(world.broker))
    world.produce(P, 2)
    settle(process)
    assert len([key for key in listed if "/t/1/" in key and "_control" not in key]) <= 1000
    world.expect(P)


def test_a_fork_that_contests_more_is_recorded_in_addition_to_the_first_at_its_offset(world: World) -> None:
    def fork(end_offset: int | None) -> LogFork:
        return LogFork(source=source(P), next_offset=9, leader_epoch=3, end_offset=end_offset, found_at=T0)

    for end_offset in (5, 7, 5, 2, 3, None):
        world.control.record_fork(fork(end_offset))
    assert {f.end_offset for f in world.control.forks(source(P))} >= {5, 2, None}
    assert fork(7) not in world.control.forks(source(P))
    assert world.control.fork_sources("a") == [source(P)]


def test_forks_survive_their_text(world: World) -> None:
    fork = LogFork(source=source(P), next_offset=9, leader_epoch=None, end_offset=None, found_at=T0, evidence="x")
    world.control.record_fork(fork)
    assert world.control.forks(source(P)) == [fork]
