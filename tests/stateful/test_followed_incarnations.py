"""Ingress processes follow a topic that is created again: whatever goes wrong, all records of an incarnation arrive, in
order and once, and only then those of the next one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.segment import Segment
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from tests.examples import machine
from tests.fakes.kafka_target import Crashed
from tests.formats.json_lines import JsonLinesFormat
from tests.ingress.process import POOLS, Process
from tests.ingress.world import DELAY, LOST, RELIST, World, source_settings

TARGET = TopicPartition("copy", 0)
RUN = 3  # records
MOST = 4  # incarnations
processes = st.sampled_from((0, 1))


@dataclass(slots=True)
class Log:
    """Of one incarnation at the source."""

    id: str
    claimed_at: datetime
    end: int = 0
    holes: set[int] = field(default_factory=set)

    @property
    def records(self) -> list[tuple[str, int]]:
        return [(self.id, offset) for offset in range(self.end) if offset not in self.holes]


class FollowedIncarnations(RuleBasedStateMachine):
    """Of the log before it, everything is stored before a later incarnation has been claimed for as long as ingress
    waits with it; values of records are the incarnation's id."""

    @initialize(is_begin_recorded=st.booleans())
    def begin(self, is_begin_recorded: bool) -> None:
        self.world = World(source_settings(on_recreate="follow"), format=JsonLinesFormat())
        self.world.claim(0)
        if is_begin_recorded:
            self.world.record_begin(0)
        self.logs = [Log("", self.world.clock.at)]
        self.pending: list[tuple[Log, int, int]] = []  # start, end: cut and not stored
        self.stored: set[Segment] = set()
        self.cut(3, set())
        self.store(0, notify=True)
        self.running = [self.started(), self.started()]
        self.owner: int | None = None
        self.give(0)

    def started(self) -> Process:
        world = self.world
        before = world.objects.away, world.log.away, world.target.away
        world.objects.away, world.log.away, world.target.away = set(), False, False
        process = Process(world, run_records=RUN)
        process.turn(2)
        world.objects.away, world.log.away, world.target.away = before
        return process

    # --- the archive ---

    @rule(length=st.integers(1, 7), holes=st.sets(st.integers(0, 6), max_size=3))
    def cut(self, length: int, holes: set[int]) -> None:
        log = self.logs[-1]
        start = log.end
        log.end += length
        log.holes |= {start + hole for hole in holes if hole < length}
        self.pending.append((log, start, log.end - 1))

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 50), notify=st.booleans())
    def store(self, which: int, notify: bool) -> None:
        log, start, end = self.pending.pop(which % len(self.pending))
        self.put(log, start, end, 0, notify=notify)

    def put(self, log: Log, start: int, end: int, level: int, *, notify: bool) -> None:
        self.stored.add(
            self.world.put(
                start,
                end,
                level=level,
                incarnation=log.id,
                holes=log.holes,
                notify=notify,
                value=log.id.encode(),
            )
        )

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), count=st.integers(1, 4), published=st.sampled_from(["all", "created", "removed", "none"]))
    def merge(self, data: st.DataObject, count: int, published: str) -> None:
        first = data.draw(st.sampled_from(sorted(self.stored)))
        inputs = [first]
        for segment in sorted((one for one in self.stored if one.source == first.source), key=lambda one: one.offsets):
            if len(inputs) < count and segment.offsets.start == inputs[-1].offsets.next_offset:
                inputs.append(segment)
        [log] = [one for one in self.logs if one.id == first.source.incarnation]
        level = max(one.level for one in inputs) + 1
        self.put(log, first.offsets.start, inputs[-1].offsets.end, level, notify=published in ("all", "created"))
        self.world.remove(*inputs, notify=published in ("all", "removed"))
        self.stored.difference_update(inputs)

    @precondition(lambda self: len(self.logs) < MOST and self.logs[-1].end)
    @rule(last=st.integers(0, 3), length=st.integers(1, 5), is_begin_recorded=st.booleans(), wait=st.booleans())
    def create_again(self, last: int, length: int, is_begin_recorded: bool, wait: bool) -> None:
        """`last`: offsets of the earlier one that are stored after it is known that there is a later one; with `wait`,
        long after."""
        if last:
            self.cut(last, set())
        log = Log(f"i{len(self.logs)}", self.world.clock.at)
        self.world.claim(len(self.logs), log.id)
        self.logs.append(log)
        if is_begin_recorded:
            self.world.record_begin(0, incarnation=log.id)
        self.cut(length, set())
        if wait:
            self.time_passes(DELAY * 0.6)
            self.turns(3)

    # --- work ---

    @rule(count=st.integers(1, 6))
    def turns(self, count: int) -> None:
        for _ in range(count):
            for number in (0, 1):
                try:
                    self.running[number].turn()
                except Crashed:
                    self.replace(number, 1 - number)

    @rule(seconds=st.sampled_from([0.5, 1, 3, 10, 40, RELIST, LOST / 3]))
    def time_passes(self, seconds: float) -> None:
        """The first segment of each log, and all of earlier ones, are stored in time."""
        at = self.world.clock.at + timedelta(seconds=seconds)
        followed = [log for log in self.logs[1:] if at >= log.claimed_at + timedelta(seconds=DELAY)]
        earlier = self.logs[: self.logs.index(followed[-1])] if followed else []
        for one in [one for one in self.pending if one[0] in earlier or one[1] == 0]:
            self.pending.remove(one)
            self.put(*one, 0, notify=False)
        self.world.clock.advance(seconds)
        self.turns(2)

    @rule()
    def work_unhindered(self) -> None:
        self.heal()
        self.time_passes(DELAY + 1)
        self.turns(4)

    def heal(self) -> None:
        self.world.objects.away = set()
        self.world.target.away = self.world.log.away = False
        for number in (0, 1):
            for pool in POOLS:
                self.answer(number, pool, all_=True)

    # --- processes and their partition ---

    @rule(number=processes, orderly=st.booleans(), to=processes)
    def restart(self, number: int, orderly: bool, to: int) -> None:
        self.running[number].end(orderly=orderly)
        self.replace(number, to)

    def replace(self, number: int, to: int) -> None:
        self.running[number] = self.started()
        if self.owner == number:
            self.owner = None
            self.give(to)

    @rule(to=processes)
    def give(self, to: int) -> None:
        if self.owner is not None:
            self.running[self.owner].placement.revoke(TARGET)
            self.running[self.owner].control()
        self.running[to].placement.assign(TARGET)
        self.running[to].control()
        self.owner = to

    @rule(to=processes)
    def lose(self, to: int) -> None:
        if self.owner is not None:
            self.running[self.owner].placement.lose(TARGET)
            self.running[self.owner].control()
            self.owner = None
            self.give(to)

    # --- what goes wrong ---

    @rule(number=processes, pool=st.sampled_from(POOLS))
    def hold(self, number: int, pool: str) -> None:
        """Listings, reads or checkpoints take their time."""
        getattr(self.running[number], pool).holding = True

    @rule(number=processes, pool=st.sampled_from(POOLS), all_=st.booleans())
    def answer(self, number: int, pool: str, all_: bool) -> None:
        self.running[number].answer(pool, all_=all_)

    @rule(kind=st.sampled_from(FailureKind))
    def fail_next(self, kind: FailureKind) -> None:
        self.world.target.fail_next(TARGET, kind=kind)

    @rule(keep=st.integers(-1, 1))
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

    def records(self) -> list[tuple[str, int]]:
        return [record for log in self.logs for record in log.records]

    def arrived(self) -> list[tuple[str, int]]:
        return [((one.value or b"").decode(), one.source_offset) for one in self.world.target.records(TARGET)]

    @invariant()
    def each_once_and_in_order(self) -> None:
        if hasattr(self, "running"):
            arrived = self.arrived()
            assert arrived == self.records()[: len(arrived)]

    def teardown(self) -> None:
        """All is well again: everything arrives."""
        if not hasattr(self, "running"):
            return
        while self.pending:
            self.store(0, notify=False)
        target = self.world.target
        target._failing.clear()
        target._stopping, target._crashing = None, False
        self.heal()
        self.turns(2)
        for _ in range(25):
            self.turns(4)
            self.world.clock.advance(RELIST)
        self.turns(90)
        assert self.arrived() == self.records()
        for process in self.running:
            assert process.stopped == {}
            assert process.problems == {}
            process.end(orderly=True)


TestFollowedIncarnations = FollowedIncarnations.TestCase
TestFollowedIncarnations.settings = machine(100)
