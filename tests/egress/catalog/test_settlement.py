"""Settled partitions split no transaction, however a cluster and two collections of its log ends are interleaved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from egress.catalog.settlement import may_be_settled, settled_partitions
from formats.errors import TargetError
from infra.contracts.cluster import LogEnds, TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
BROKER = 2  # beside producers 0 and 1
SEEDS = 4_000


@dataclass
class Log:
    """Of the leader. `end` is beyond `high` while records are not on all replicas in sync."""

    end: int = 0
    high: int = 0
    records: dict[int, int] = field(default_factory=dict)  # transaction by offset
    open: dict[int, int] = field(default_factory=dict)  # first offset by transaction without a marker
    unreplicated: dict[int, int] = field(default_factory=dict)  # first offset by transaction, by the marker's offset

    @property
    def stable(self) -> int:
        """As Kafka has it: a transaction is complete once its marker is below the high watermark."""
        return min([self.high, *self.open.values(), *self.unreplicated.values()])

    def append(self, transaction: int) -> None:
        self.open.setdefault(transaction, self.end)
        self.records[self.end] = transaction
        self.end += 1

    def mark(self, transaction: int) -> None:
        self.unreplicated[self.end] = self.open.pop(transaction)
        self.end += 1

    def replicate(self) -> None:
        self.high = self.end
        self.unreplicated.clear()


@dataclass
class Transaction:
    number: int
    written: set[TopicPartition] = field(default_factory=set)
    left: list[TopicPartition] | None = None  # partitions without a marker, once it was decided


@dataclass
class Model:
    """Producers with one transaction each at a time, and a cluster; `step` does any one thing that may happen next."""

    logs: dict[TopicPartition, Log] = field(default_factory=lambda: {p: Log() for p in PARTITIONS})
    running: dict[int, Transaction] = field(default_factory=dict)  # by producer
    numbers: Iterator[int] = field(default_factory=count)

    def step(self, producer: int, choice: int) -> None:
        partition = PARTITIONS[choice % len(PARTITIONS)]
        if producer == BROKER:
            self.logs[partition].replicate()
            return
        running = self.running.setdefault(producer, Transaction(next(self.numbers)))
        if running.left is None and choice < 2 * len(PARTITIONS):
            running.written.add(partition)
            self.logs[partition].append(running.number)
            return
        if running.left is None:
            for one in running.written:  # a producer ends its transaction when all is acknowledged
                if max(n for n, t in self.logs[one].records.items() if t == running.number) >= self.logs[one].high:
                    return
            running.left = sorted(running.written)
        if running.left:
            self.logs[running.left.pop(choice % len(running.left))].mark(running.number)
        if not running.left:
            del self.running[producer]

    def splits(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether a transaction has a record below these ends, and a record or no marker beyond them."""
        below = {t for p, end in ends.items() for n, t in self.logs[p].records.items() if n < end}
        beyond = {t for p, end in ends.items() for n, t in self.logs[p].records.items() if n >= end}
        return bool(below & beyond)


def collected(model: Model, batch: int, meanwhile: Callable[[], None]) -> dict[TopicPartition, LogEnds]:
    """As the admin client does it: of each batch the stable offsets, then the high watermarks."""
    found: dict[TopicPartition, LogEnds] = {}
    for start in range(0, len(PARTITIONS), batch):
        some = PARTITIONS[start : start + batch]
        stables = {}
        for partition in some:
            meanwhile()
            stables[partition] = model.logs[partition].stable
        for partition in some:
            meanwhile()
            found[partition] = LogEnds(low=0, stable=stables[partition], high=model.logs[partition].high)
    return found


@dataclass
class Observed:
    """What one interleaving of two collections and a cluster came to."""

    settled: int
    splits: bool  # the ends of settled partitions
    once_splits: bool  # those that one collection would call settled
    unstable_splits: bool  # those of which both agree, open transactions or not


def observed(seed: int) -> Observed:
    random, model = Random(seed), Model()
    quiet = random.random()  # how often nothing happens before a read

    def meanwhile() -> None:
        while random.random() > quiet:
            producer = random.choice((0, 0, 1, BROKER, BROKER, BROKER))
            model.step(producer, random.randrange(3 * len(PARTITIONS)))

    batch = random.randint(1, len(PARTITIONS))
    first = collected(model, batch, meanwhile)
    second = collected(model, batch, meanwhile)
    settled = settled_partitions(first, second)
    for _ in range(30):  # a transaction that has begun ends
        model.step(random.choice((0, 1, BROKER)), random.randrange(3 * len(PARTITIONS)))
    return Observed(
        settled=len(settled),
        splits=model.splits({p: first[p].high for p in settled}),
        once_splits=model.splits({p: first[p].high for p in may_be_settled(first)}),
        unstable_splits=model.splits({p: first[p].high for p in PARTITIONS if first[p].high == second[p].high}),
    )


def test_settled_partitions_split_no_transaction() -> None:
    found = [observed(seed) for seed in range(SEEDS)]
    assert not [seed for seed, one in enumerate(found) if one.splits]
    assert sum(one.settled > 1 for one in found) > SEEDS // 20, "it happens"
    assert any(one.once_splits for one in found), "the model shows what one collection would get wrong"
    assert any(one.unstable_splits for one in found), "and what high watermarks alone would"


@given(st.integers(min_value=SEEDS))
def test_other_interleavings_do_neither(seed: int) -> None:
    assert not observed(seed).splits


def test_what_was_not_answered_is_not_settled() -> None:
    ends, no = LogEnds(low=0, stable=5, high=5), TargetError("no")
    a, b, c = PARTITIONS
    assert settled_partitions({a: ends, b: ends, c: no}, {a: ends, b: no, c: ends}) == {a}
    assert settled_partitions({a: ends}, {a: LogEnds(low=0, stable=4, high=5)}) == frozenset()
    assert settled_partitions({a: LogEnds(low=0, stable=4, high=5)}, {a: ends}) == frozenset()
