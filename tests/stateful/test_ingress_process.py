"""Ingress processes on a shared archive, event log and target: whatever goes wrong, records arrive in order, none is
passed over, and each incident repeats one run of a partition at most, none at all with transactions."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.coverage import covered_until
from formats.segment import Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from tests.examples import machine
from tests.fakes.kafka_target import Crashed
from tests.formats.json_lines import JsonLinesFormat
from tests.ingress.process import POOLS, Process
from tests.ingress.world import LOST, RELIST, World, key, source_settings

RUN = 3  # records
PARTITIONS = (0, 1)
SOURCES = {p: SourcePartition("a", "t", p) for p in PARTITIONS}
TARGETS = {p: TopicPartition("copy", p) for p in PARTITIONS}

partitions = st.sampled_from(PARTITIONS)
processes = st.sampled_from((0, 1))


class _Losses(logging.Handler):
    """Gaps that were given up, as an operator reads of them."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: dict[int, set[int]] = {p: set() for p in PARTITIONS}

    def emit(self, record: logging.LogRecord) -> None:
        fields = record.__dict__
        if record.getMessage() == "segment_lost" and fields["skipped"]:
            self.skipped[fields["partition"]].update(range(fields["start"], fields["end"] + 1))


class IngressProcesses(RuleBasedStateMachine):
    """The source's log is cut into segments in order; they are stored in any order, overlap, and are merged."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = _Losses()
        self.logger = logging.getLogger("ingress")
        self.logger.addHandler(self.losses)

    @initialize(
        skip=st.booleans(), exactly_once=st.booleans(), begun=st.booleans(), written=st.booleans(), old=st.booleans()
    )
    def begin(self, skip: bool, exactly_once: bool, begun: bool, written: bool, old: bool) -> None:
        """`begun`: something was delivered before; `written`: where the archive begins is; `old`: every object is a
        replica of one that is older than any timeout."""
        self.world = World(source_settings(on_lost="skip" if skip else "stop"), format=JsonLinesFormat())
        self.world.target.exactly_once = exactly_once
        self.world.objects.older = timedelta(seconds=LOST * 10 if old else 0)
        self.holes: dict[int, set[int]] = {p: set() for p in PARTITIONS}
        self.end = dict.fromkeys(PARTITIONS, 0)
        self.pending: list[tuple[int, int, int]] = []  # partition, start, end: cut and not stored
        self.stored: set[Segment] = set()
        self.gone: list[Segment] = []
        self.damaged: dict[Segment, bytes] = {}
        self.budget: Counter[int] = Counter()  # repeats that incidents explain
        for p in PARTITIONS:
            if begun:
                self.world.set_checkpoint(0, p)
            if written:
                self.world.record_begin(0, partition=p)
            self.cut(p, 2, holes=set())
            self.store(0, notify=True)
        self.owner: dict[int, int | None] = dict.fromkeys(PARTITIONS)
        self.running = [self.started(), self.started()]
        for p in PARTITIONS:
            self.give(p, p)

    def started(self) -> Process:
        world = self.world
        away, world.objects.away = world.objects.away, set()
        was_away, world.log.away = world.log.away, False
        silent, world.target.away = world.target.away, False  # no process is a member before the topic is its group's
        process = Process(world, run_records=RUN)
        process.turn(2)
        world.objects.away, world.log.away, world.target.away = away, was_away, silent
        return process

    def turn(self, number: int) -> None:
        target = self.world.target
        failing, stopping, crashing = set(target._failing), target._stopping, target._crashing
        try:
            self.running[number].turn()
        except Crashed:
            self.replace(number, 1 - number)
        for p in PARTITIONS:  # what has happened to it in this turn
            fired = TARGETS[p] in failing - set(target._failing)
            ended = stopping != target._stopping or crashing != target._crashing
            if not target.exactly_once:
                self.budget[p] += fired or ended

    # --- the archive ---

    @rule(p=partitions, length=st.integers(1, 7), holes=st.sets(st.integers(0, 6), max_size=3))
    def cut(self, p: int, length: int, holes: set[int]) -> None:
        start = self.end[p]
        self.end[p] += length
        self.holes[p] |= {start + hole for hole in holes if hole < length}
        self.pending.append((p, start, start + length - 1))

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 100), notify=st.booleans())
    def store(self, which: int, notify: bool) -> None:
        p, start, end = self.pending.pop(which % len(self.pending))
        self.put(p, start, end, 0, notify=notify)

    def put(self, p: int, start: int, end: int, level: int, *, notify: bool) -> None:
        segment = next((s for s in self.stored if (s.offsets.start, s.offsets.end, s.level) == (start, end, level)
                        and s.source.partition == p), None)  # fmt: skip
        if segment is None:
            segment = self.world.put(start, end, level=level, partition=p, holes=self.holes[p], notify=notify)
            self.stored.add(segment)

    @rule(p=partitions, start=st.integers(0, 200), length=st.integers(1, 9), notify=st.booleans())
    def overlap(self, p: int, start: int, length: int, notify: bool) -> None:
        """An old owner finishing late: any range below the log's end."""
        if self.end[p]:
            start %= self.end[p]
            self.put(p, start, min(start + length, self.end[p]) - 1, 0, notify=notify)

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), count=st.integers(1, 4), published=st.sampled_from(["all", "created", "removed", "none"]))
    def merge(self, data: st.DataObject, count: int, published: str) -> None:
        first = data.draw(st.sampled_from(sorted(self.stored)))
        here = sorted((s for s in self.stored if s.source == first.source), key=lambda s: s.offsets)
        inputs, end = [first], first.offsets.end
        for segment in here:
            follows = first.offsets.start <= segment.offsets.start <= end + 1 and segment.offsets.end > end
            if len(inputs) < count and follows:
                inputs.append(segment)
                end = segment.offsets.end
        level = max(s.level for s in inputs) + 1
        p = first.source.partition
        self.put(p, first.offsets.start, end, level, notify=published in ("all", "created"))
        self.world.remove(*inputs, notify=published in ("all", "removed"))
        self.stored.difference_update(inputs)
        self.gone += inputs
        for segment in inputs:
            self.damaged.pop(segment, None)

    @precondition(lambda self: self.stored or self.gone)
    @rule(data=st.data())
    def notify_again_or_late(self, data: st.DataObject) -> None:
        self.world.notify(data.draw(st.sampled_from(sorted(self.stored | set(self.gone)))))

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(sorted(self.stored)))
        if segment not in self.damaged:
            with self.world.peek.open(segment) as body:
                self.damaged[segment] = body.read()
            self.world.damage(segment)

    def repair(self) -> None:
        for segment, data in self.damaged.items():
            self.world.damage(segment, data)
        self.damaged.clear()

    # --- work: most of what happens ---

    @rule(
        lengths=st.tuples(st.integers(0, 12), st.integers(0, 12)),
        holes=st.sets(st.integers(0, 6), max_size=3),
        notify=st.sampled_from([True, True, True, False]),
        turns=st.integers(1, 6),
    )
    def work(self, lengths: tuple[int, int], holes: set[int], notify: bool, turns: int) -> None:
        for p, length in zip(PARTITIONS, lengths, strict=True):
            if length:
                self.cut(p, length, holes)
                self.store(-1, notify=notify)
        self.turns(turns)

    @rule(count=st.integers(1, 6))
    def turns(self, count: int) -> None:
        for _ in range(count):
            for number in (0, 1):
                self.turn(number)

    @rule(seconds=st.sampled_from([0.5, 1, 3, 10, 40, RELIST, LOST]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.turns(2)

    @rule(seconds=st.sampled_from([3, 10, RELIST]))
    def work_unhindered(self, seconds: float) -> None:
        """What waits for the store, the brokers, or a pool, continues."""
        self.repair()
        self.world.objects.away = set()
        self.world.target.away = self.world.log.away = False
        for number in (0, 1):
            for pool in POOLS:
                self.answer(number, pool, all_=True)
        self.time_passes(seconds)
        self.work((3, 4), set(), notify=True, turns=4)

    # --- processes and their partitions ---

    @rule(number=processes, orderly=st.booleans(), to=processes)
    def restart(self, number: int, orderly: bool, to: int) -> None:
        self.running[number].end(orderly=orderly)
        self.replace(number, to)

    def replace(self, number: int, to: int) -> None:
        self.running[number] = self.started()
        for p in PARTITIONS:
            if self.owner[p] == number:
                self.owner[p] = None
                self.give(p, to)

    @rule(p=partitions, to=processes)
    def give(self, p: int, to: int) -> None:
        before = self.owner[p]
        if before is not None:
            self.running[before].placement.revoke(TARGETS[p])
            self.running[before].control()
            self.produce_on(before)
        self.running[to].placement.assign(TARGETS[p])
        self.running[to].control()
        self.owner[p] = to

    def produce_on(self, number: int) -> None:
        """The delivery thread does not know yet what the controller's thread knows."""
        process = self.running[number]
        before = {p: len(self.world.offsets(TARGETS[p])) for p in PARTITIONS}
        failing = self.world.target._failing, self.world.target._stopping, self.world.target._crashing
        self.world.target._failing, self.world.target._stopping, self.world.target._crashing = {}, None, False
        process.delivery.run_round()
        self.world.target._failing, self.world.target._stopping, self.world.target._crashing = failing
        for p in PARTITIONS:
            if TARGETS[p] not in process.placement.held:
                assert len(self.world.offsets(TARGETS[p])) == before[p], "produced after it was given up"

    @rule(p=partitions, to=processes)
    def lose(self, p: int, to: int) -> None:
        if (before := self.owner[p]) is not None:
            self.running[before].placement.lose(TARGETS[p])
            self.running[before].control()
            self.produce_on(before)
            self.owner[p] = None
            self.give(p, to)

    # --- what goes wrong ---

    @rule(number=processes, pool=st.sampled_from(POOLS))
    def hold(self, number: int, pool: str) -> None:
        """Listings, reads or checkpoints take their time."""
        getattr(self.running[number], pool).holding = True

    @rule(number=processes, pool=st.sampled_from(POOLS), all_=st.booleans())
    def answer(self, number: int, pool: str, all_: bool) -> None:
        self.running[number].answer(pool, all_=all_)

    @rule(p=partitions, kind=st.sampled_from(FailureKind), keep=st.integers(0, RUN))
    def fail_next(self, p: int, kind: FailureKind, keep: int) -> None:
        self.world.target.fail_next(TARGETS[p], kind=kind, keep=keep)

    @rule(keep=st.integers(-1, RUN))
    def stop_or_crash_next(self, keep: int) -> None:
        if keep < 0:
            self.world.target.crash_next()
        else:
            self.world.target.stop_next(keep=keep)

    @rule(target_=st.booleans(), log=st.booleans(), store=st.sets(st.sampled_from(["list", "open"])))
    def away(self, target_: bool, log: bool, store: set[str]) -> None:
        self.world.target.away, self.world.log.away, self.world.objects.away = target_, log, store

    @rule()
    def log_loses(self) -> None:
        self.world.log.lose()

    # --- what must hold ---

    def records(self, p: int) -> list[int]:
        return [o for o in range(self.end[p]) if o not in self.holes[p]]

    @invariant()
    def in_order_without_a_skip(self) -> None:
        if not hasattr(self, "running"):
            return
        for p in PARTITIONS:
            records, budget = self.records(p), self.budget[p]
            index = {offset: i for i, offset in enumerate(records)}
            seen: set[int] = set()
            at = 0
            for offset in self.world.offsets(TARGETS[p]):
                i = index[offset]
                passed = [o for o in records[at:i] if o not in self.losses.skipped[p]]
                assert not passed, f"partition {p}: {passed} passed over before {offset}"
                if i < at:
                    budget -= 1
                    assert budget >= 0, f"partition {p}: {offset} again without an incident"
                    assert sum(o in seen for o in records[i:at]) <= RUN, "more than a run again"
                seen.add(offset)
                at = i + 1

    @invariant()
    def checkpoint_is_never_ahead(self) -> None:
        if not hasattr(self, "running"):
            return
        for p in PARTITIONS:
            checkpoint = self.world.checkpoint(p) or 0
            delivered = set(self.world.offsets(TARGETS[p])) | self.losses.skipped[p]
            assert {o for o in self.records(p) if o < checkpoint} <= delivered

    def teardown(self) -> None:
        """All is well again, nothing more is notified: everything arrives."""
        self.logger.removeHandler(self.losses)
        if not hasattr(self, "running"):
            return
        self.logger.addHandler(self.losses)
        try:
            self._heal()
        finally:
            self.logger.removeHandler(self.losses)

    def _heal(self) -> None:
        world = self.world
        self.repair()
        while self.pending:
            self.store(0, notify=False)
        world.target.away = world.log.away = world.target._crashing = False
        world.target._failing.clear()
        world.target._stopping = None
        world.objects.away = set()
        for number, process in enumerate(self.running):
            for pool in POOLS:
                self.answer(number, pool, all_=True)
            process.turn(2)
        for p in PARTITIONS:
            if self.owner[p] is None:
                self.give(p, p)
        for _ in range(12):
            for process in self.running:
                process.turn(3)
            world.clock.advance(RELIST)
        for p in PARTITIONS:
            for _ in range(100):
                before = len(world.offsets(TARGETS[p]))
                for process in self.running:
                    process.turn(2)
                if len(world.offsets(TARGETS[p])) == before:
                    break
        self.in_order_without_a_skip()
        for p in PARTITIONS:
            assert covered_until((s for s in self.stored if s.source == SOURCES[p]), 0) == self.end[p]
            missing = set(self.records(p)) - set(world.offsets(TARGETS[p])) - self.losses.skipped[p]
            assert not missing, (p, missing)
            assert world.checkpoint(p) == self.end[p]
        for p in PARTITIONS:
            assert world.target.checkpoints[key(p)].begun_at in (0, None)
        assert world.target.waiting == {}
        for process in self.running:
            assert process.stopped == {}
            assert process.problems == {}
            process.end(orderly=True)


TestIngressProcesses = IngressProcesses.TestCase
TestIngressProcesses.settings = machine(100)
