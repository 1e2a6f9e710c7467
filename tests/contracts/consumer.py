"""What every SourceConsumer does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import pytest

from formats.errors import OwnershipLost
from formats.log_point import LogPoint
from formats.records.schema import SCHEMA
from infra.contracts.cluster import Committed, LogTruncated, TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, Fetched, PartitionFailed, Reached, Run, SourceConsumer
from infra.runtime.lifecycle import Deadline

PATIENCE = timedelta(seconds=20)
REJOINS_WITHIN = timedelta(seconds=60)  # a member that lost its partitions while a busy machine restarted the broker
TURN = timedelta(milliseconds=50)

Row = Mapping[str, Any]


class Transaction(Protocol):
    def commit(self) -> None: ...

    def abort(self) -> None: ...


class World(ABC):
    """A cluster to test against, and members of its groups."""

    @abstractmethod
    def topic(self, partitions: int = 1) -> list[TopicPartition]:
        """A new topic that takes any timestamp and keeps everything."""

    @abstractmethod
    def append(self, partition: TopicPartition, *values: bytes | None) -> None: ...

    @abstractmethod
    def append_row(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] | None = None,
        timestamp_ms: int = 1,
    ) -> None: ...

    @abstractmethod
    def begin(self, partition: TopicPartition, *values: bytes) -> Transaction: ...

    @abstractmethod
    def trim(self, partition: TopicPartition, low: int) -> None: ...

    @abstractmethod
    def elect(self, *partitions: TopicPartition) -> None:
        """Another leader, in another leader epoch, with every record."""

    @abstractmethod
    def truncate(self, ends: Mapping[TopicPartition, int]) -> None:
        """Another leader, without the records from these offsets on: `append` made a call of its own for those."""

    @abstractmethod
    def member(self, *, group: str = "", **options: Any) -> SourceConsumer:
        """`group`: empty for one of its own."""

    @abstractmethod
    def rebalance(self, consumer: SourceConsumer) -> None:
        """Called once the consumer has subscribed: bring the rebalance about, where it does not come by itself."""


@dataclass(slots=True)
class Listener:
    """Starts what comes at `at`, unless that is None; records its calls."""

    consumer: SourceConsumer
    at: int | None = 0
    calls: list[tuple[str, frozenset[TopicPartition]]] = field(default_factory=list)
    fail_in: set[str] = field(default_factory=set)
    before_revoked: Callable[[Collection[TopicPartition]], None] = lambda partitions: None

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._heard("assigned", partitions)
        if self.at is not None:
            for partition in partitions:
                self.consumer.start(partition, self.at)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.before_revoked(partitions)
        self._heard("revoked", partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self._heard("lost", partitions)

    def _heard(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((what, frozenset(partitions)))
        if what in self.fail_in:
            self.fail_in.remove(what)
            raise ValueError(f"planned in {what}")


@dataclass(slots=True)
class Member:
    """A consumer with its listener, and everything it fetched."""

    world: World
    consumer: SourceConsumer
    listener: Listener
    fetched: list[Fetched] = field(default_factory=list)

    def poll(self) -> None:
        self.fetched += self.consumer.poll(TURN)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = Deadline(REJOINS_WITHIN)
        while not condition():
            assert not deadline.expired, f"fetched {self.fetched[-5:]}, calls {self.listener.calls}"
            self.poll()

    def until_reached(self, partition: TopicPartition, next_offset: int) -> None:
        self.until(lambda: Reached(partition, next_offset) in self.fetched)

    def runs(self, partition: TopicPartition) -> list[Run]:
        return [item for item in self.fetched if isinstance(item, Run) and item.partition == partition]

    def rows(self, partition: TopicPartition) -> list[Row]:
        return [row for run in self.runs(partition) for row in _rows(run)]

    def offsets(self, partition: TopicPartition) -> list[int]:
        return [row["offset"] for row in self.rows(partition)]

    def ends(self, partition: TopicPartition) -> list[int]:
        return [item.next_offset for item in self.fetched if isinstance(item, Reached) and item.partition == partition]

    def of(self, kind: type[Fetched]) -> list[Any]:
        return [item for item in self.fetched if isinstance(item, kind)]


def _rows(run: Run) -> list[Row]:
    """Timestamps as numbers: not every int64 is a datetime."""
    columns = {name: run.batch.column(name) for name in run.batch.schema.names}
    columns["timestamp"] = columns["timestamp"].view("int64")
    values = {name: column.to_pylist() for name, column in columns.items()}
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def check(run: Run) -> None:
    """What holds of every run."""
    run.batch.validate(full=True)
    assert run.batch.schema.equals(SCHEMA)
    offsets = run.batch.column("offset").to_pylist()
    assert offsets == sorted(set(offsets))
    assert (run.first_offset, run.last_offset, run.count) == (offsets[0], offsets[-1], len(offsets))
    sizes = [
        len(row["key"] or b"")
        + len(row["value"] or b"")
        + sum(len(h["key"].encode()) + len(h["value"] or b"") for h in row["headers"] or ())
        for row in _rows(run)
    ]
    assert run.size_bytes == sum(sizes)


class ConsumerContract:
    """Every SourceConsumer passes these. Subclasses give the fixture `world`."""

    @contextmanager
    def joined(
        self, world: World, partitions: list[TopicPartition], *, at: int | None = 0, group: str = "", **options: Any
    ) -> Iterator[Member]:
        """A member that was given `partitions`, closed at the end."""
        consumer = world.member(group=group, **options)
        member = Member(world, consumer, Listener(consumer, at))
        try:
            consumer.subscribe({partition.topic for partition in partitions}, member.listener)
            world.rebalance(consumer)
            member.until(lambda: set(partitions) <= consumer.assignment())
            yield member
            for run in member.of(Run):
                check(run)
        finally:
            consumer.close(PATIENCE)

    def test_records_come_in_order_and_then_the_end(self, world: World) -> None:
        a, b = partitions = world.topic(partitions=2)
        world.append(a, b"one", b"two", b"three")
        world.append(b, b"four")
        with self.joined(world, partitions) as member:
            member.until_reached(a, 3)
            member.until_reached(b, 1)
            assert [row["value"] for row in member.rows(a)] == [b"one", b"two", b"three"]
            assert [row["value"] for row in member.rows(b)] == [b"four"]
            world.append(a, b"five")
            member.until_reached(a, 4)
            assert member.offsets(a) == [0, 1, 2, 3]
            assert isinstance(member.runs(a)[0].last_leader_epoch, int)

    def test_nothing_comes_before_start(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, *[b"x"] * 10)
        with self.joined(world, [p], at=None) as member:
            for _ in range(5):
                member.poll()
            assert member.fetched == []
            member.consumer.start(p, 7)
            member.until_reached(p, 10)
            assert member.offsets(p) == [7, 8, 9]

    def test_starting_again_forgets_what_was_fetched(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, *[b"x" * 100] * 3000)
        with self.joined(world, [p]) as member:
            for next_offset in (2990, 5, 2995, 0, 1500, 1400, 2999):
                member.consumer.start(p, next_offset)
                member.fetched.clear()
                member.until(lambda: member.runs(p))
                assert member.runs(p)[0].first_offset == next_offset
            member.consumer.start(p, 10)
            member.consumer.start(p, 2990)  # twice in a row: the last one counts
            member.fetched.clear()
            member.until_reached(p, 3000)
            assert member.offsets(p) == list(range(2990, 3000))

    def test_a_pause_loses_nothing_and_repeats_nothing(self, world: World) -> None:
        a, b = partitions = world.topic(partitions=2)
        world.append(a, *[b"x" * 100] * 2000)
        world.append(b, *[b"y" * 100] * 2000)
        with self.joined(world, partitions) as member:
            for _ in range(6):
                member.until(lambda: member.runs(a))
                member.consumer.pause([a])
                seen = len(member.runs(a))
                member.poll()
                assert len(member.runs(a)) == seen
                member.consumer.resume([a])
                member.poll()
            member.until_reached(a, 2000)
            member.until_reached(b, 2000)
            assert member.offsets(a) == list(range(2000))
            assert member.offsets(b) == list(range(2000))

    def test_start_while_paused_forgets_what_came_before(self, world: World) -> None:
        """Much of it was fetched when the pause began."""
        (p,) = world.topic()
        world.append(p, *[b"x" * 100] * 5000)
        with self.joined(world, [p]) as member:
            for next_offset in (4000, 100, 4990):
                member.until(lambda: member.runs(p))
                member.consumer.pause([p])
                member.poll()
                member.fetched.clear()
                member.poll()
                assert member.fetched == []
                member.consumer.start(p, next_offset)
                member.until(lambda: member.runs(p))
                assert member.runs(p)[0].first_offset == next_offset
            member.until_reached(p, 5000)
            assert member.offsets(p) == list(range(4990, 5000))

    def test_an_end_that_comes_in_a_pause_is_reported_after_it(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, *[b"x" * 100] * 3000)
        with self.joined(world, [p]) as member:
            member.until(lambda: member.runs(p))
            member.consumer.pause([p])
            for _ in range(4):
                seen = len(member.fetched)
                member.poll()
            assert len(member.fetched) == seen
            member.consumer.resume([p])
            member.until_reached(p, 3000)
            assert member.offsets(p) == list(range(3000))

    def test_resuming_continues_where_start_was_called_while_paused(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, *[b"x"] * 50)
        with self.joined(world, [p]) as member:
            member.until_reached(p, 50)
            member.consumer.start(p, 20)
            member.consumer.pause([p])
            member.fetched.clear()
            member.poll()
            assert member.fetched == []
            member.consumer.resume([p])
            member.until_reached(p, 50)
            assert member.offsets(p) == list(range(20, 50))

    def test_start_ends_a_pause(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, *[b"x"] * 5)
        with self.joined(world, [p]) as member:
            member.consumer.pause([p])
            member.consumer.start(p, 3)
            member.until_reached(p, 5)
            assert member.offsets(p)[-2:] == [3, 4]

    def test_pausing_before_start_is_no_start(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, b"x")
        with self.joined(world, [p], at=None) as member:
            member.consumer.pause([p])
            member.consumer.resume([p])
            for _ in range(3):
                member.poll()
            assert member.fetched == []

    def test_the_end_passes_markers_and_aborted_records(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, b"0")
        world.begin(p, b"1", b"2").abort()  # marker at 3
        world.begin(p, b"4").commit()  # marker at 5
        with self.joined(world, [p]) as member:
            member.until_reached(p, 6)
            assert member.offsets(p) == [0, 4]
            world.begin(p, b"6").abort()
            member.until_reached(p, 8)
            assert member.offsets(p) == [0, 4]

    def test_an_open_transaction_is_the_end(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, b"0")
        transaction = world.begin(p, b"1", b"2")
        world.append(p, b"3")
        with self.joined(world, [p]) as member:
            member.until_reached(p, 1)
            assert member.offsets(p) == [0]
            transaction.commit()
            member.until_reached(p, 5)
            assert member.offsets(p) == [0, 1, 2, 3]
            assert max(member.ends(p)) == 5

    def test_read_uncommitted_sees_everything(self, world: World) -> None:
        (p,) = world.topic()
        transaction = world.begin(p, b"0")
        with self.joined(world, [p], isolation_level="read_uncommitted") as member:
            member.until_reached(p, 1)
            assert member.offsets(p) == [0]
            transaction.abort()

    @pytest.mark.parametrize("wanted", [0, 9])
    def test_out_of_range_fails_the_partition_and_start_goes_on(self, world: World, wanted: int) -> None:
        p, other = world.topic(partitions=2)
        world.append(p, *[b"x"] * 5)
        world.trim(p, 2)
        with self.joined(world, [p, other], at=None) as member:
            for _ in range(2):
                member.fetched.clear()
                member.consumer.start(p, wanted)
                member.until(lambda: member.of(PartitionFailed))
                (failed,) = member.of(PartitionFailed)
                assert (failed.partition, failed.code) == (p, "OFFSET_OUT_OF_RANGE")
                assert f"wanted offset {wanted}" in failed.reason
                assert "[2,5)" in failed.reason
                world.append(other, b"y")
                member.poll()
                assert member.offsets(p) == []
                member.consumer.start(p, 3)
                member.until_reached(p, 5)
                assert member.offsets(p) == [3, 4]

    # --- leader epochs ---

    def test_a_log_that_lost_its_tail_is_not_read_on(self, world: World) -> None:
        """Below what was read, at it, and behind it; inside a hole; while it is read, and when it is started again;
        whether or not it has grown past that offset since."""
        below, at, behind, grown, hole = partitions = world.topic(partitions=5)
        for p in partitions:
            world.append(p, *[b"old"] * 5)
            world.append(p, *[b"old"] * 5)
        with self.joined(world, partitions) as member:
            for p in partitions:
                member.until_reached(p, 10)
            (epoch,) = {run.last_leader_epoch for p in partitions for run in member.runs(p)}
            assert epoch is not None
            points = dict.fromkeys(partitions, LogPoint(10, epoch))
            world.append(behind, b"later")
            member.until_reached(behind, 11)
            points[behind] = LogPoint(11, epoch)
            world.begin(hole, b"aborted").abort()  # [10,11]
            member.until_reached(hole, 12)
            points[hole] = LogPoint(12, epoch)
            member.consumer.pause([grown])
            member.fetched.clear()
            world.truncate({below: 5, at: 10, grown: 5, behind: 10, hole: 10})
            world.append(grown, *[b"new"] * 20)
            world.append(at, b"new")
            member.consumer.resume([grown])
            member.until(lambda: len(member.of(LogTruncated)) == 4)
            member.until_reached(at, 11)
            truncated = {item.partition: (item.point, item.end_offset) for item in member.of(LogTruncated)}
            assert truncated == {p: (points[p], end) for p, end in ((below, 5), (grown, 5), (behind, 10), (hole, 10))}
            assert [member.offsets(p) for p in partitions] == [[], [10], [], [], []]

            member.fetched.clear()
            world.append(below, *[b"new"] * 20)
            world.append(hole, *[b"new"] * 5)
            points[hole] = LogPoint(10, epoch)  # of the last record: true, and no hole behind it any more
            for p in (below, grown, behind):
                member.consumer.start(p, points[p].next_offset, points[p])
            member.consumer.start(hole, 12, points[hole])
            member.until(lambda: len(member.of(LogTruncated)) == 4)
            truncated = {item.partition: (item.point, item.end_offset) for item in member.of(LogTruncated)}
            assert truncated == {p: (points[p], end) for p, end in ((below, 5), (grown, 5), (behind, 10), (hole, 10))}
            assert [member.offsets(p) for p in partitions] == [[], [], [], [], []]

            member.consumer.start(below, 5, LogPoint(5, epoch))
            member.consumer.start(grown, 8)  # without a point nothing is confirmed
            member.consumer.start(at, 0)
            member.until_reached(below, 25)
            member.until_reached(grown, 25)
            member.until_reached(at, 11)
            assert member.offsets(below) == list(range(5, 25))
            assert member.offsets(grown) == list(range(8, 25))
            assert member.offsets(at) == list(range(11))
            (last,) = {run.last_leader_epoch for run in (*member.runs(below), *member.runs(grown))}
            assert last is not None
            assert last > epoch
            ends = {run.last_offset: run.last_leader_epoch for run in member.runs(at)}
            assert (ends[9], ends[10]) == (epoch, last), "a run is of one leader epoch"

    def test_a_hole_at_the_end_is_not_a_truncation(self, world: World) -> None:
        """The last record is of one leader epoch, what is aborted behind it of the next; then comes a third leader."""
        p, other = partitions = world.topic(partitions=2)
        for each in partitions:
            world.append(each, *[b"x"] * 3)
        with self.joined(world, partitions, group="holes") as member:
            member.until_reached(p, 3)
            record = member.runs(p)[-1].point
            assert record is not None
            world.elect(p, other)
            for each in partitions:
                world.begin(each, b"aborted", b"aborted").abort()  # and a marker: [3,5]
            member.until_reached(p, 6)
            member.until_reached(other, 6)
            (end,) = {item for item in member.of(Reached) if item.partition == p and item.next_offset == 6}
            assert end.point is not None
            assert end.point.leader_epoch > record.leader_epoch
            world.elect(p, other)
            for each in partitions:
                world.begin(each, b"aborted").abort()  # [6,7]
            member.until_reached(p, 8)
            member.until_reached(other, 8)
            assert member.of(LogTruncated) == []
        with self.joined(world, partitions, at=None, group="holes again") as member:
            member.consumer.start(p, 6, end.point)
            member.consumer.start(other, 6, record)
            world.append(p, b"y")
            world.append(other, b"y")
            member.until_reached(p, 9)
            member.until_reached(other, 9)
            assert (member.offsets(p), member.offsets(other)) == ([8], [8])
            assert member.of(LogTruncated) == []
            assert {run.last_leader_epoch for run in member.runs(p)} != {record.leader_epoch}

    def test_what_retention_took_is_not_asked_about(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, *[b"x"] * 5)
        with self.joined(world, [p]) as member:
            member.until_reached(p, 5)
            point = member.runs(p)[-1].point
            assert point is not None
            world.begin(p, b"aborted").abort()  # [5,6]
            world.trim(p, 7)
            world.append(p, b"y")
            member.fetched.clear()
            member.consumer.start(p, 7, point)
            member.until_reached(p, 8)
            assert member.offsets(p) == [7]

    def test_records_come_exactly_as_they_are(self, world: World) -> None:
        (p,) = world.topic()
        wanted: list[dict[str, Any]] = [
            {"key": None, "value": None},
            {"key": b"", "value": b""},
            {"key": b"k", "value": None},
            {"key": None, "value": b"\x00\xff" * 50},
            {
                "key": b"k",
                "value": b"v",
                "headers": (("a", b"1"), ("a", None), ("a", b""), ("", b"\xff"), ("é😀", b"x")),
            },
            {"key": b"k", "value": b"v", "headers": (("a", None),)},
            *({"key": None, "value": b"t", "timestamp_ms": stamp} for stamp in TIMESTAMPS),
        ]
        for row in wanted:
            world.append_row(p, **row)
        with self.joined(world, [p]) as member:
            member.until_reached(p, len(wanted))
            for row, record in zip(wanted, member.rows(p), strict=True):
                assert (record["key"], record["value"]) == (row["key"], row["value"])
                headers = record["headers"] and tuple((h["key"], h["value"]) for h in record["headers"])
                assert headers == row.get("headers")
                assert record["timestamp"] == row.get("timestamp_ms", 1)
                assert record["timestamp_type"] == 0

    def test_large_records_pass_a_small_budget(self, world: World) -> None:
        (p,) = world.topic()
        values = [bytes([number]) * 900_000 for number in range(20)]
        for value in values:
            world.append(p, value)
        with self.joined(world, [p], memory_bytes=2 << 20) as member:
            member.until_reached(p, 20)
            assert [row["value"] for row in member.rows(p)] == values

    def test_commits_are_found_with_their_metadata(self, world: World) -> None:
        a, b, _ = partitions = world.topic(partitions=3)
        with self.joined(world, partitions, group="commits") as member:
            offsets = {a: Committed(5, "who", 0), b: Committed(0, "")}
            member.consumer.commit(offsets, wait=PATIENCE)
            found = member.consumer.committed(partitions)
            assert {p: (found[p].next_offset, found[p].metadata) for p in found} == {a: (5, "who"), b: (0, "")}
            assert found[a].leader_epoch == 0
            member.poll()
            member.consumer.commit_answers()
            member.consumer.commit({a: Committed(7, "later")})
            answers: dict[TopicPartition, str] = {}
            member.until(lambda: answers or answers.update(member.consumer.commit_answers()))
            assert answers == {a: ""}
            assert member.consumer.committed([a])[a].next_offset == 7
            assert member.consumer.commit_answers() == {}
            assert member.consumer.committed([]) == {}

    def test_committing_inside_the_revocation_works(self, world: World) -> None:
        (p,), (other,) = world.topic(), world.topic()
        with self.joined(world, [p, other]) as member:
            consumer = member.consumer
            member.listener.before_revoked = lambda partitions: consumer.commit(
                {partition: Committed(3, "last") for partition in partitions}, wait=PATIENCE
            )
            consumer.subscribe([other.topic], member.listener)
            member.until(lambda: p not in consumer.assignment())
            assert member.of(ConsumerDisturbed) == []
            assert ("revoked", frozenset({p})) in member.listener.calls
            assert consumer.committed([p])[p].next_offset == 3
            assert member.of(ConsumerDisturbed) == []
            with pytest.raises(OwnershipLost, match="revoked"):
                consumer.start(p, 0)

    def test_a_subscription_to_nothing_leaves_the_group_and_a_later_one_joins_again(self, world: World) -> None:
        (p,) = world.topic()
        world.append(p, b"one")
        with self.joined(world, [p]) as member:
            consumer = member.consumer
            member.until_reached(p, 1)
            member.listener.before_revoked = lambda partitions: consumer.commit(
                {partition: Committed(1, "last") for partition in partitions}, wait=PATIENCE
            )
            consumer.subscribe([], member.listener)
            member.until(lambda: not consumer.assignment())
            assert member.listener.calls[-1] == ("revoked", frozenset({p}))
            assert consumer.committed([p])[p].next_offset == 1
            world.append(p, b"two")
            member.poll()
            assert member.offsets(p) == [0]
            member.listener.at = 1
            consumer.subscribe([p.topic], member.listener)
            world.rebalance(consumer)
            member.until_reached(p, 2)
            assert member.offsets(p) == [0, 1]
            assert member.of(ConsumerDisturbed) == []

    @pytest.mark.parametrize("callback", ["assigned", "revoked"])
    def test_an_exception_of_a_listener_is_reported_by_poll(self, world: World, callback: str) -> None:
        (a,), (b,) = world.topic(), world.topic()
        world.append(a, *[b"x"] * 100)
        consumer = world.member()
        member = Member(world, consumer, Listener(consumer, None, fail_in={callback}))
        try:
            consumer.subscribe([a.topic, b.topic], member.listener)
            world.rebalance(consumer)
            member.until(lambda: consumer.assignment() == {a, b})
            if callback == "revoked":
                consumer.start(a, 0)
                member.until_reached(a, 100)
                consumer.subscribe([a.topic], member.listener)
                member.until(lambda: b not in consumer.assignment())
            member.until(lambda: member.of(ConsumerDisturbed))
            (disturbed,) = member.of(ConsumerDisturbed)
            assert f"planned in {callback}" in disturbed.reason
            member.fetched.clear()
            world.append(a, b"y")
            for _ in range(3):
                member.poll()
            assert member.fetched == []  # nothing is read until it is started again
            consumer.start(a, 0)
            member.until_reached(a, 101)
            assert member.offsets(a) == list(range(101))
        finally:
            consumer.close(PATIENCE)

    def test_closing_tells_the_listener_and_leaves_the_group(self, world: World) -> None:
        (p,) = world.topic()
        with self.joined(world, [p], group="leaving") as member:
            pass
        assert member.listener.calls == [("assigned", frozenset({p})), ("revoked", frozenset({p}))]
        member.consumer.close(PATIENCE)  # again: nothing happens
        deadline = Deadline(timedelta(seconds=5))  # less than a session
        with self.joined(world, [p], group="leaving"):
            assert not deadline.expired


TIMESTAMPS = (0, 1, -1, -(2**40), 2**42, 2**62, -(2**63), 2**63 - 1)
