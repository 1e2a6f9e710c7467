"""Pauses, seeks, moves and disturbances of a SourceConsumer in any order: nothing is lost, repeated or out of order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, PartitionFailed, Reached, Run
from tests.contracts.consumer import PATIENCE, Listener, Member, World

TOPICS = 3  # of one partition each, so that a partition moves when its topic is left
chosen = st.integers(0, TOPICS - 1)
some = st.sets(chosen, min_size=1)


@dataclass(slots=True)
class Model:
    """What is in the log of a partition, and where its reading must stand."""

    records: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    at: int | None = None  # next offset wanted; None: nothing may come before `start`
    is_paused: bool = False

    def append(self, values: list[bytes], markers: int = 0) -> None:
        self.records |= dict(enumerate(values, start=self.end))
        self.end += len(values) + markers

    def abort(self, count: int) -> None:
        self.end += count + 1

    def start(self, at: int) -> None:
        self.at, self.is_paused = at, False

    def stop(self) -> None:
        self.at, self.is_paused = None, False

    def passed(self, next_offset: int, found: dict[int, bytes]) -> None:
        """All that was wanted below `next_offset`, and nothing else, is in `found`."""
        assert self.at is not None, "it was not started"
        assert not self.is_paused, "it is paused"
        assert self.at <= next_offset <= self.end, (self.at, next_offset, self.end)
        assert found == {o: v for o, v in self.records.items() if self.at <= o < next_offset}
        self.at = next_offset


class ConsumerMix(RuleBasedStateMachine):
    """One member of a group, and a model of each of its partitions."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.partitions = [partition for _ in range(TOPICS) for partition in world.topic()]
        self.models = {partition: Model() for partition in self.partitions}
        self.values = itertools.count()
        consumer = world.member()
        self.member = Member(world, consumer, Listener(consumer, None))
        self.heard = 0  # of the calls of the listener
        self.subscribe(self.partitions)

    def subscribe(self, partitions: list[TopicPartition]) -> None:
        consumer = self.member.consumer
        consumer.subscribe([partition.topic for partition in partitions], self.member.listener)
        self.until(lambda: consumer.assignment() <= set(partitions))
        self.world.rebalance(consumer)
        self.until(lambda: consumer.assignment() == set(partitions))

    def until(self, condition: Callable[[], bool]) -> None:
        def check() -> bool:
            self.judge()
            return condition()

        self.member.until(check)
        self.judge()

    def judge(self) -> None:
        """What came since the last time is what had to come."""
        gone: set[TopicPartition] = set()
        for _, partitions in self.member.listener.calls[self.heard :]:
            gone |= partitions
        self.heard = len(self.member.listener.calls)
        for item in self.member.fetched:
            match item:
                case Run():
                    offsets, values = (item.batch.column(name).to_pylist() for name in ("offset", "value"))
                    self.models[item.partition].passed(item.last_offset + 1, dict(zip(offsets, values, strict=True)))
                case Reached():
                    self.models[item.partition].passed(item.next_offset, {})
                case ConsumerDisturbed():
                    for model in self.models.values():
                        model.stop()
                case PartitionFailed():
                    raise AssertionError(item)
        for partition in gone:
            self.models[partition].stop()
        self.member.fetched.clear()

    # --- what happens ---

    @rule(number=chosen, count=st.sampled_from([1, 3, 40, 3000]))
    def append(self, number: int, count: int) -> None:
        values = [b"%d" % next(self.values) + b"x" * 200 for _ in range(count)]
        self.world.append(self.partitions[number], *values)
        self.models[self.partitions[number]].append(values)

    @rule(number=chosen, commit=st.booleans())
    def transaction(self, number: int, commit: bool) -> None:
        partition, values = self.partitions[number], [b"%d" % next(self.values) for _ in range(2)]
        transaction = self.world.begin(partition, *values)
        if commit:
            transaction.commit()
            self.models[partition].append(values, markers=1)
        else:
            transaction.abort()
            self.models[partition].abort(len(values))

    @rule(number=chosen, back=st.sampled_from([0, 1, 50, 2500, 6000]))
    def start(self, number: int, back: int) -> None:
        partition = self.partitions[number]
        at = max(self.models[partition].end - back, 0)
        self.member.consumer.start(partition, at)
        self.models[partition].start(at)

    @rule(numbers=some)
    def pause(self, numbers: set[int]) -> None:
        self.member.consumer.pause([self.partitions[n] for n in numbers])
        for n in numbers:
            self.models[self.partitions[n]].is_paused = True

    @rule(numbers=some)
    def resume(self, numbers: set[int]) -> None:
        self.member.consumer.resume([self.partitions[n] for n in numbers])
        for n in numbers:
            self.models[self.partitions[n]].is_paused = False

    @rule(times=st.integers(1, 3))
    def poll(self, times: int) -> None:
        for _ in range(times):
            self.member.poll()
            self.judge()

    @rule(number=chosen, fails=st.booleans())
    def move(self, number: int, fails: bool) -> None:
        """Away and back again. `fails`: the listener raises when it is called."""
        if fails:
            self.member.listener.fail_in.add("revoked")
        self.subscribe([p for n, p in enumerate(self.partitions) if n != number])
        self.member.listener.fail_in.clear()
        self.subscribe(self.partitions)

    @invariant()
    def all_are_held(self) -> None:
        assert self.member.consumer.assignment() == set(self.partitions)

    def teardown(self) -> None:
        """Let go of everything, and every record that is wanted comes."""
        try:
            self.poll(1)  # a disturbance may be on its way
            for n, partition in enumerate(self.partitions):
                if self.models[partition].at is None:
                    self.start(n, 50)
            self.resume(set(range(TOPICS)))
            self.until(lambda: all(model.at == model.end for model in self.models.values()))
        finally:
            self.member.consumer.close(PATIENCE)
