"""Delivery that keeps the source's offsets, on a broker: the same records at the same offsets, whatever happens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import Filled
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.producer.departure_log import DepartureLog
from infra.kafka.producer.preserved_log import Stillness, TargetLogs
from infra.kafka.producer.preserving import PreserveLimits, PreservingWriter
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.crash_points import BEFORE, Step, observe
from tests.contracts.target import STAMP, never, row, run_of, run_to
from tests.infra.cluster import Cluster
from tests.infra.target_on_broker import OnBroker

MIB = 1 << 20
WAIT = timedelta(seconds=1)
LONG = timedelta(minutes=10)  # longer than any test


def test_stillness() -> None:
    still = Stillness(5, 100.0)
    still.seen(5, 104.0)
    assert still.lasts(104.0) == timedelta(seconds=4)
    still.seen(6, 104.0)
    assert still.lasts(105.0) == timedelta(seconds=1)


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Kill:
    """Ends the process at the nth durable step from now on."""

    after: int

    def __call__(self, step: Step, moment: str) -> None:
        self.after -= 1
        if self.after < 0:
            raise Killed(f"{moment} {step}")


def kill_at(wanted: Step) -> Callable[[Step, str], None]:
    def observer(step: Step, moment: str) -> None:
        if step is wanted:
            raise Killed(f"{moment} {step}")

    return observer


def once_before(wanted: Step, act: Callable[[], None]) -> Callable[[Step, str], None]:
    done: list[Step] = []

    def observer(step: Step, moment: str) -> None:
        if step is wanted and moment == BEFORE and not done:
            done.append(step)
            act()

    return observer


@pytest.mark.integration
class TestPreservingWriter(OnBroker):
    @pytest.fixture
    def partition(self, cluster: Cluster, unique: Callable[[str], str]) -> TopicPartition:
        return cluster.create(unique("target"), 1, {"retention.ms": "-1"})[0]

    @pytest.fixture
    def make(
        self, cluster: Cluster, checkpoint_topic: str, offset_map_topic: str, unique: Callable[[str], str]
    ) -> Iterator[Callable[..., PreservingWriter]]:
        made: list[PreservingWriter] = []
        name = unique("ids")

        def make(
            *,
            hands_over: bool = False,
            owns: Callable[[], bool] = lambda: True,
            wait: timedelta = WAIT,
            hole_limit: int = 10**6,
            holes_per_second: int = 10**6,
        ) -> PreservingWriter:
            given = cluster.properties | {"log_level": 0}
            handover = DepartureLog(KafkaCheckpointStore(cluster.properties, checkpoint_topic)) if hands_over else None
            made.append(
                PreservingWriter(
                    given,
                    transactional_id=name,
                    logs=TargetLogs(KafkaAdmin(cluster.properties), cluster.properties),
                    owns=owns,
                    limits=PreserveLimits(
                        transaction_timeout=timedelta(seconds=10),
                        take_over_wait=wait,
                        expires_after=timedelta(seconds=10),
                        hole_limit=hole_limit,
                        holes_per_second=holes_per_second,
                    ),
                    checkpoint_topic=checkpoint_topic,
                    offset_map_topic=offset_map_topic,
                    memory_bytes=16 * MIB,
                    handover=handover,
                )
            )
            return made[-1]

        yield make
        observe(None)
        for writer in made:
            writer.close(timedelta(seconds=1))

    def found(self, partition: TopicPartition) -> list[tuple[int, bytes | None]]:
        return [(m.offset() or 0, m.value()) for m in self._cluster.messages(partition)]

    def end(self, partition: TopicPartition) -> int:
        return KafkaAdmin(self._cluster.properties).watermarks([partition])[partition].high

    def test_runs_and_holes_arrive_at_their_offsets(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        offsets = [0, 1, 2, 4, 5, 8, 20, 1000, 1001]
        run = run_to(partition, offsets, position=0, next_offset=1003)
        assert deliver(make(), run) == []
        assert self.found(partition) == [(offset, b"%d" % offset) for offset in offsets]
        assert self.end(partition) == 1003
        assert self.mapped(partition) == [(offset, offset) for offset in offsets]
        assert [c.next_offset for c in self.checkpoints().values()] == [1003]

    def test_what_lies_beyond_the_checkpoint_is_compared_and_not_sent_again(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        first = run_to(partition, [0, 1, 5], position=0, next_offset=6)
        assert deliver(make(), first) == []
        whole = run_to(partition, [0, 1, 5, 6, 9], position=0, next_offset=12)
        assert deliver(make(), whole) == []
        assert [offset for offset, _ in self.found(partition)] == [0, 1, 5, 6, 9]
        assert self.end(partition) == 12
        assert deliver(make(), whole) == [], "all of it is there"
        assert self.end(partition) == 12

    @pytest.mark.parametrize("hole", [0, 3])
    def test_others_that_write_are_detected_and_the_first_difference_stands(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition, hole: int
    ) -> None:
        writer = make()
        assert deliver(writer, run_to(partition, [0, 1], position=0, next_offset=2)) == []
        intrude(self._cluster, partition)
        following = run_to(partition, [2 + hole, 3 + hole], position=2, next_offset=4 + hole)
        for each in (writer, make()):  # the same after a restart
            failures = deliver(each, following)
            assert [(f.code, f.kind) for f in failures] == [("PRESERVE_BROKEN", FailureKind.DENIED)]
            assert failures[0].reason.startswith("preserve broken at 2: ")
            assert "checkpoints seed" in failures[0].reason
            assert "offsets = 'map'" in failures[0].reason
        assert [c.next_offset for c in self.checkpoints().values()] == [2]

    def test_what_is_right_before_the_difference_is_checkpointed(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        """A crash between records and checkpoint, and then another writer: map mode goes on from the difference."""
        observe(kill_at(Step.PRODUCE_OFFSET_MAP))
        with pytest.raises(Killed):
            deliver(make(wait=timedelta()), run_to(partition, [0, 1, 2], position=0, next_offset=3))
        observe(None)
        intrude(self._cluster, partition)
        (failed,) = deliver(make(), run_to(partition, list(range(9)), position=0, next_offset=9))
        assert failed.reason.startswith("preserve broken at 3: ")
        assert [c.next_offset for c in self.checkpoints().values()] == [3]
        assert self.mapped(partition) == [(0, 0), (1, 1), (2, 2)]

    def test_a_log_without_its_tail_is_not_filled_up(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        run = replace(run_to(partition, [7], position=7, next_offset=8), filled=Filled(7))
        (failed,) = deliver(make(), run)
        assert failed.reason.startswith("preserve broken at 0: ")
        assert self.end(partition) == 0

    def test_the_prefix_is_filled_and_removed(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        run = run_to(partition, [], position=250_003, next_offset=250_003)
        run = replace(run, checkpoint=replace(run.checkpoint, begun_at=250_003))
        assert deliver(make(), run) == []
        marks = KafkaAdmin(self._cluster.properties).watermarks([partition])[partition]
        assert (marks.low, marks.high) == (250_003, 250_003)

    def test_a_hole_above_the_limit_waits_for_an_operator(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        (failed,) = deliver(make(hole_limit=10), run_to(partition, [11], position=0, next_offset=12))
        assert (failed.code, failed.kind) == ("LONG_HOLE", FailureKind.DENIED)
        assert "preserve_hole_limit" in failed.reason
        assert self.end(partition) == 0

    def test_a_source_with_too_many_holes_stops_and_stays_stopped(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        """Two holes in each second of the source; of one in a second, ten minutes' worth may wait."""
        rows = [row(offset, b"%d" % offset, stamp=STAMP + 250 * offset) for offset in range(0, 2500, 2)]
        run = run_to(partition, [0], position=0, next_offset=2500)
        run = replace(run, batches=run_of(partition, rows).batches, count=len(rows))
        writer = make(holes_per_second=1)
        for _ in range(2):
            (failed,) = deliver(writer, run)
            assert (failed.code, failed.kind) == ("TOO_MANY_HOLES", FailureKind.DENIED)
            assert "preserve_holes_per_second" in failed.reason
            assert "offsets = 'map'" in failed.reason
        assert self.end(partition) == 0

    def test_nothing_is_sent_by_a_process_that_may_have_lost_its_partitions(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        with pytest.raises(BrokerUnavailable, match="frozen"):
            deliver(make(owns=lambda: False), run_to(partition, [0], position=0, next_offset=1))
        assert self.end(partition) == 0

    def test_an_owner_waits_while_records_of_an_earlier_one_arrive(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        writer, run = make(), run_to(partition, [0, 1], position=0, next_offset=2)
        assert [f.code for f in writer.deliver([run], should_stop=never)] == ["TAKEN_OVER"]
        earlier = make(wait=timedelta())
        deliver(earlier, run_to(partition, [0], position=0, next_offset=1))
        assert [f.code for f in writer.deliver([run], should_stop=never)] == ["TAKEN_OVER"]
        assert deliver(writer, run) == []
        assert [offset for offset, _ in self.found(partition)] == [0, 1]

    def test_each_ownership_waits_and_so_does_one_that_may_have_been_lost(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        owned = True
        writer = make(owns=lambda: owned)
        assert deliver(writer, run_to(partition, [0], position=0, next_offset=1)) == []
        again = replace(run_to(partition, [1], position=1, next_offset=2), epoch=9)
        assert [f.code for f in writer.deliver([again], should_stop=never)] == ["TAKEN_OVER"]
        assert deliver(writer, again) == []
        owned, following = False, replace(run_to(partition, [2], position=2, next_offset=3), epoch=9)
        with pytest.raises(BrokerUnavailable, match="frozen"):
            writer.deliver([following], should_stop=never)
        owned = True
        assert [f.code for f in writer.deliver([following], should_stop=never)] == ["TAKEN_OVER"]
        assert deliver(writer, following) == []
        assert [offset for offset, _ in self.found(partition)] == [0, 1, 2]

    def test_an_owner_begins_at_once_where_the_one_before_has_left(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        """By the end of its process, or of one ownership."""
        first = make(hands_over=True)
        assert deliver(first, run_to(partition, [0, 3], position=0, next_offset=5)) == []
        first.close(timedelta(seconds=1))
        second = make(hands_over=True, wait=LONG)
        following = replace(run_to(partition, [5], position=5, next_offset=7), epoch=4)
        assert second.deliver([following], should_stop=never) == []
        second.leave({3})
        again = replace(run_to(partition, [7], position=7, next_offset=8), epoch=5)
        assert [f.code for f in second.deliver([again], should_stop=never)] == ["TAKEN_OVER"], "of another ownership"
        third = make(hands_over=True, wait=LONG)
        assert [f.code for f in third.deliver([again], should_stop=never)] == ["TAKEN_OVER"]
        assert [offset for offset, _ in self.found(partition)] == [0, 3, 5]

    def test_one_that_leaves_late_ends_the_wait(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        """A group gives a partition away before its last owner has written that it left."""
        first, second = make(hands_over=True), make(hands_over=True, wait=LONG)
        assert deliver(first, replace(run_to(partition, [0], position=0, next_offset=1), epoch=7)) == []
        run = run_to(partition, [1], position=1, next_offset=2)
        assert [f.code for f in second.deliver([run], should_stop=never)] == ["TAKEN_OVER"]
        first.leave({7})
        assert second.deliver([run], should_stop=never) == []

    @pytest.mark.parametrize("step", [Step.PRODUCE_OFFSET_MAP, Step.PRODUCE_CHECKPOINT])
    def test_what_an_earlier_owner_has_reported_does_not_hold_for_one_that_was_killed(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition, step: Step
    ) -> None:
        """Though the log ends where the earlier one has left it: the killed one's record may still arrive."""
        first = make(hands_over=True)
        assert deliver(first, run_to(partition, [0], position=0, next_offset=1)) == []
        first.close(timedelta(seconds=1))
        observe(kill_at(step))
        with pytest.raises(Killed):
            # of a run without records, so that the log stays as it is
            make(hands_over=True, wait=LONG).deliver(
                [run_to(partition, [], position=1, next_offset=1)], should_stop=never
            )
        observe(None)
        third, run = make(hands_over=True, wait=LONG), run_to(partition, [1], position=1, next_offset=2)
        assert [f.code for f in third.deliver([run], should_stop=never)] == ["TAKEN_OVER"]

    def test_one_that_is_killed_before_it_says_that_it_leaves(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        first = make(hands_over=True)
        assert deliver(first, run_to(partition, [0], position=0, next_offset=1)) == []
        observe(kill_at(Step.LEAVE_PARTITION))
        with pytest.raises(Killed):
            first.close(timedelta(seconds=1))
        observe(None)
        second, run = make(hands_over=True, wait=LONG), run_to(partition, [1], position=1, next_offset=2)
        assert [f.code for f in second.deliver([run], should_stop=never)] == ["TAKEN_OVER"]

    def test_one_that_left_does_not_hold_where_others_have_written_since(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        first = make(hands_over=True)
        assert deliver(first, run_to(partition, [0], position=0, next_offset=1)) == []
        first.close(timedelta(seconds=1))
        intrude(self._cluster, partition)
        second, run = make(hands_over=True, wait=LONG), run_to(partition, [1], position=1, next_offset=2)
        assert [f.code for f in second.deliver([run], should_stop=never)] == ["TAKEN_OVER"]

    def test_a_process_that_may_have_lost_its_partitions_says_nothing(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        owned = True
        first = make(hands_over=True, owns=lambda: owned)
        assert deliver(first, run_to(partition, [0], position=0, next_offset=1)) == []
        owned = False
        with pytest.raises(BrokerUnavailable, match="frozen"):
            first.deliver([run_to(partition, [1], position=1, next_offset=2)], should_stop=never)
        first.close(timedelta(seconds=1))
        second, run = make(hands_over=True, wait=LONG), run_to(partition, [1], position=1, next_offset=2)
        assert [f.code for f in second.deliver([run], should_stop=never)] == ["TAKEN_OVER"]

    @pytest.mark.parametrize("hole", [4, 9])
    def test_a_marker_that_is_written_again_into_a_hole_is_no_difference(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition, unique: Callable[[str], str], hole: int
    ) -> None:
        """As a coordinator does that takes the place of one that died: here another one's record, aborted, and its
        marker."""
        other = Producer({**self._cluster.properties, "transactional.id": unique("other")})
        other.init_transactions()

        def abort_one() -> None:
            other.begin_transaction()
            other.produce(partition.topic, b"aborted", partition=partition.partition)
            other.flush(10)
            end = self._cluster.end(partition)
            other.abort_transaction()  # is answered before the marker is in the log
            assert wait_until(lambda: self._cluster.end(partition) > end, timedelta(seconds=30))

        writer = make()
        assert deliver(writer, run_to(partition, [0], position=0, next_offset=1)) == []
        observe(once_before(Step.FILL_HOLE, abort_one))
        assert deliver(writer, run_to(partition, [1 + hole], position=1, next_offset=2 + hole)) == []
        assert [offset for offset, _ in self.found(partition)] == [0, 1 + hole]

    @pytest.mark.parametrize("hole", [2, 4, 9])
    def test_a_record_of_others_in_a_hole_is_detected(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition, hole: int
    ) -> None:
        writer = make()
        assert deliver(writer, run_to(partition, [0], position=0, next_offset=1)) == []
        observe(once_before(Step.FILL_HOLE, lambda: intrude(self._cluster, partition)))
        (failed,) = deliver(writer, run_to(partition, [1 + hole], position=1, next_offset=2 + hole))
        assert failed.reason.startswith("preserve broken at 1: ")
        assert [c.next_offset for c in self.checkpoints().values()] == [1]

    def test_an_owner_waits_for_an_open_transaction(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition, unique: Callable[[str], str]
    ) -> None:
        """What an aborted one leaves is a hole like any other."""
        other = Producer({**self._cluster.properties, "transactional.id": unique("other")})
        other.init_transactions()
        other.begin_transaction()
        other.produce(partition.topic, b"open", partition=partition.partition)
        assert other.flush(10) == 0
        writer, run = make(wait=timedelta()), run_to(partition, [2], position=0, next_offset=3)
        for _ in range(3):
            assert [f.code for f in writer.deliver([run], should_stop=never)] == ["TAKEN_OVER"]
        other.abort_transaction()
        assert deliver(writer, run) == []
        assert self.found(partition) == [(2, b"2")]

    def test_what_the_target_has_deleted_is_not_compared(
        self, make: Callable[..., PreservingWriter], partition: TopicPartition
    ) -> None:
        observe(kill_at(Step.PRODUCE_OFFSET_MAP))
        with pytest.raises(Killed):
            deliver(make(wait=timedelta()), run_to(partition, [0, 1, 2], position=0, next_offset=3))
        observe(None)
        KafkaAdmin(self._cluster.properties).delete_records({partition: 2})
        assert deliver(make(), run_to(partition, [0, 1, 2, 3], position=0, next_offset=4)) == []
        assert [offset for offset, _ in self.found(partition)] == [2, 3]

    @pytest.mark.parametrize("seed", range(2))
    def test_any_log_has_the_same_offsets_wherever_a_writer_is_killed(
        self,
        stack: LocalStack,
        make: Callable[..., PreservingWriter],
        partition: TopicPartition,
        unique: Callable[[str], str],
        seed: int,
    ) -> None:
        """Plain, committed, aborted and interleaved records at the source, and ranges that compaction removed; each
        writer is killed one step later than the one before, until one comes to the end."""
        chance = random.Random(seed)
        source = Cluster(stack.brokers["a"])
        origin = source.create(unique("source"), 1, {"retention.ms": "-1"})[0]
        write_mix(source, origin, chance, unique("mix"))
        end = KafkaAdmin(source.properties).watermarks([origin])[origin].high
        records = [(m.offset() or 0, m.value()) for m in source.messages(origin)]
        gone = range(len(records) // 3, len(records) // 3 + 7)
        records = [record for n, record in enumerate(records) if n not in gone]
        cuts = sorted({0, end, *chance.sample(range(end), 5)})
        runs = [
            run_with(partition, [r for r in records if start <= r[0] < until], position=start, next_offset=until)
            for start, until in itertools.pairwise(cuts)
        ]
        kills = 0
        while True:
            observe(Kill(kills))
            try:
                failures = deliver(make(wait=timedelta(milliseconds=150)), *runs)
                break
            except Killed:
                kills += 1 + kills // 8
        observe(None)
        assert failures == []
        assert kills > 8
        assert self.found(partition) == records
        assert self.end(partition) == end
        assert self.mapped(partition) == [(offset, offset) for offset, _ in records]


def intrude(cluster: Cluster, partition: TopicPartition) -> None:
    """Another program writes a record."""
    producer = Producer(cluster.properties)
    producer.produce(partition.topic, b"foreign", partition=partition.partition)
    assert producer.flush(10) == 0
    producer.close()


def write_mix(cluster: Cluster, partition: TopicPartition, chance: random.Random, name: str) -> None:
    plain = Producer({**cluster.properties, "linger.ms": 0})
    pair = [Producer({**cluster.properties, "transactional.id": f"{name}-{n}", "linger.ms": 0}) for n in range(2)]
    for producer in pair:
        producer.init_transactions()
    sent = 0

    def send(producer: Producer) -> None:
        nonlocal sent
        producer.produce(partition.topic, b"%d" % sent, b"k", partition.partition)
        producer.flush()
        sent += 1

    for _ in range(12):
        match chance.choice(["plain", "commit", "abort", "interleaved"]):
            case "plain":
                for _ in range(chance.choice([1, 2, 30])):
                    send(plain)
            case "interleaved":
                for producer in pair:
                    producer.begin_transaction()
                for _ in range(8):
                    send(chance.choice([*pair, plain]))
                for producer in pair:
                    chance.choice([producer.commit_transaction, producer.abort_transaction])()
            case ending:
                pair[0].begin_transaction()
                for _ in range(chance.choice([1, 2, 20])):
                    send(pair[0])
                (pair[0].commit_transaction if ending == "commit" else pair[0].abort_transaction)()
    send(plain)
    for producer in (plain, *pair):
        producer.close()


def run_with(
    partition: TopicPartition, records: Sequence[tuple[int, bytes | None]], *, position: int, next_offset: int
) -> TargetRun:
    made = run_to(partition, [offset for offset, _ in records], position=position, next_offset=next_offset)
    if not records:
        return made
    return replace(made, batches=run_of(partition, [row(offset, value) for offset, value in records]).batches)


def deliver(writer: PreservingWriter, *runs: TargetRun) -> Sequence[RunFailed]:
    """Until neither a take-over nor a long hole lets it wait."""
    while True:
        failures = writer.deliver(runs, should_stop=never)
        if not failures or not {f.code for f in failures} & {"TAKEN_OVER", "UNFINISHED", "MOVED"}:
            return failures
