"""Egress processes on a shared cluster and archive: whatever goes wrong, the archive holds the log, and no commit is
ahead of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replicator.commit_note import Note, read_note
from replicator.coverage import covered_until
from replicator.protocols import Committed, TopicPartition
from replicator.segment import Segment
from tests.egress.world import AGE, Process, World
from tests.examples import machine
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_consumer import FakeLog, FakeTransaction

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
POOLS = ("encoders", "uploads", "pool", "asks")
SMALL = 600  # bytes of memory: a few records press it

partitions = st.sampled_from(PARTITIONS)
processes = st.sampled_from((0, 1))
pools = st.sampled_from(POOLS)


class EgressProcesses(RuleBasedStateMachine):
    """Two members of one group. What a lost or crashed one had begun to upload may still arrive: a zombie's."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.world = World(Path(self.directory.name))
        self.world.broker.create("t", partitions=2)
        self.verified: set[Segment] = set()
        self.logs: dict[tuple[str, TopicPartition], FakeLog] = {}  # of every life, dead ones too
        self.born()
        self.zombies: list[HandExecutor] = []
        self.transactions: dict[TopicPartition, list[FakeTransaction]] = {p: [] for p in PARTITIONS}
        self.owner: dict[TopicPartition, int | None] = dict.fromkeys(PARTITIONS)

    @initialize(small=st.booleans(), on_disk=st.booleans())
    def begin(self, small: bool, on_disk: bool) -> None:
        self.options = {
            "memory_bytes": SMALL if small else 1 << 20,
            "spool_memory_bytes": -1 if on_disk else 1 << 20,
            "shutdown_seconds": 0.0,
        }
        self.running = [self.started(), self.started()]
        for number, p in enumerate(PARTITIONS):
            self.give(p, number)

    def started(self) -> Process:
        process = self.world.process(**self.options)
        process.turn(2)
        return process

    def born(self) -> None:
        self.life = self.world.admin.describe(["t"])["t"].topic_id
        self.logs |= {(self.life, p): self.world.broker.logs[p] for p in PARTITIONS}

    def place(self, life: str) -> str:
        """Which incarnation of the archive's partitions a life is filed under; the life's name, if it never was."""
        plain = self.world.control_peek.place("a", "t")
        return "" if plain is not None and plain.topic_id == life else life

    def committed(self, p: TopicPartition) -> Committed | None:
        """Of this life: a commit that was under way when the topic was deleted is nobody's."""
        committed = self.world.committed(p)
        note = None if committed is None else read_note(committed)
        return committed if note is not None and note.life == self.life else None

    # --- work: most of what happens ---

    @rule(
        counts=st.tuples(st.integers(0, 12), st.integers(0, 12)), turns=st.integers(1, 3), per_poll=st.integers(1, 20)
    )
    def work(self, counts: tuple[int, int], turns: int, per_poll: int) -> None:
        for p, count in zip(PARTITIONS, counts, strict=True):
            self.world.produce(p, count)
        for process in self.running:
            process.consumer.per_poll = per_poll
            process.turn(turns)

    @rule(seconds=st.sampled_from([0.5, 1, 3, AGE, 30, 300]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        for process in self.running:
            process.turn(2)

    @rule(count=st.integers(1, 3))
    def work_unhindered(self, count: int) -> None:
        """Whoever waits for the store, or for a pool, goes on."""
        self.world.objects.away = set()
        for process in self.running:
            process.consumer.unavailable = False
            for pool in POOLS:
                self.go_on(getattr(process, pool), 0, all_=True)
        self.time_passes(30)
        self.work((count, 2 * count), 2, 20)

    # --- the log ---

    @rule(p=partitions, count=st.integers(1, 4))
    def hole(self, p: TopicPartition, count: int) -> None:
        self.world.broker.hole(p, count)

    @rule(p=partitions, count=st.integers(1, 3))
    def begin_transaction(self, p: TopicPartition, count: int) -> None:
        first = self.world.broker.logs[p].high
        values = [b"transaction %d of %s" % (first + i, self.life.encode()) for i in range(count)]
        self.transactions[p].append(self.world.broker.begin(p, *values))

    @precondition(lambda self: any(self.transactions.values()))
    @rule(commit=st.booleans())
    def end_transactions(self, commit: bool) -> None:
        for some in self.transactions.values():
            while some:
                transaction = some.pop()
                if commit:
                    transaction.commit()
                else:
                    transaction.abort()

    @rule(p=partitions)
    def retention(self, p: TopicPartition) -> None:
        """Takes what is archived."""
        if (committed := self.committed(p)) and committed.next_offset > self.world.broker.logs[p].low:
            self.verify()
            self.world.broker.trim(p, committed.next_offset)

    @rule(longer=st.booleans(), late=st.booleans())
    def create_again(self, longer: bool, late: bool) -> None:
        """No consumer is told. What was not stored of the life before is gone. `late`: the broker deletes the topic's
        offsets with it, and then takes commits that were under way."""
        commits = dict(self.world.broker.committed("group"))
        ends = {p: self.world.broker.logs[p].high for p in PARTITIONS}
        for some in self.transactions.values():
            some.clear()
        self.world.broker.recreate("t", partitions=2)
        self.born()
        if late:
            self.world.broker.committed("group").update(commits)
        for p in PARTITIONS:
            self.world.produce(p, ends[p] + 3 if longer else 1)

    # --- processes and their partitions ---

    @rule(number=processes, orderly=st.booleans(), to=processes)
    def restart(self, number: int, orderly: bool, to: int) -> None:
        gone = self.running[number]
        self.zombies.append(gone.uploads)
        if orderly:
            gone.stop()
        else:
            gone.crash()
        self.running[number] = self.started()
        for p in PARTITIONS:
            if self.owner[p] == number:
                self.owner[p] = None
                self.give(p, to)

    @rule(p=partitions, to=processes)
    def give(self, p: TopicPartition, to: int) -> None:
        before = self.owner[p]
        if before is not None:
            self.running[before].consumer.revoke(p)
            self.running[before].turn()
        self.running[to].consumer.assign(p)
        self.running[to].turn(2)
        self.owner[p] = to

    @rule(p=partitions, to=processes)
    def lose(self, p: TopicPartition, to: int) -> None:
        if (before := self.owner[p]) is not None:
            self.running[before].consumer.lose(p)
            self.running[before].turn()
            self.owner[p] = None
            self.give(p, to)

    # --- what goes wrong ---

    @rule(number=processes, pool=pools)
    def hold(self, number: int, pool: str) -> None:
        """Encoding, uploads or answers take their time."""
        getattr(self.running[number], pool).holding = True

    @rule(number=processes, pool=pools, all_=st.booleans(), other=st.integers(0, 3))
    def answer(self, number: int, pool: str, all_: bool, other: int) -> None:
        self.go_on(getattr(self.running[number], pool), other if pool == "uploads" else 0, all_=all_)

    @precondition(lambda self: any(z.waiting for z in self.zombies))
    @rule(other=st.integers(0, 3))
    def zombie_goes_on(self, other: int) -> None:
        self.go_on(next(z for z in self.zombies if z.waiting), other, all_=False)

    def go_on(self, pool: HandExecutor, other: int, *, all_: bool) -> None:
        """`other`: not the first, but one behind it."""
        pool._jobs.rotate(-other)
        if pool.waiting and not all_:
            pool.run_next()
            return
        pool.holding = False
        pool.run_all()

    @rule(number=processes, kind=st.sampled_from(["disturbed", "dropped", "unavailable", "spool"]))
    def trouble(self, number: int, kind: str) -> None:
        process = self.running[number]
        match kind:
            case "disturbed" | "dropped":
                process.consumer.disturb(drop=kind == "dropped")
            case "unavailable":
                process.consumer.unavailable = True
            case "spool":
                for path in process.spool.directory.iterdir():
                    if path.name != "lock":
                        path.unlink()

    @rule(p=partitions, kind=st.sampled_from(["refused", "commit"]))
    def trouble_with_one(self, p: TopicPartition, kind: str) -> None:
        if (owner := self.owner[p]) is not None:
            consumer = self.running[owner].consumer
            if kind == "refused":
                consumer.fail(p, "TOPIC_AUTHORIZATION_FAILED")
            else:
                consumer.fail_commits(p)

    @rule(away=st.sets(st.sampled_from(["list", "open", "put_new"])))
    def store_away(self, away: set[str]) -> None:
        self.world.objects.away = away

    # --- what must hold ---

    @invariant()
    def committed_is_stored_without_a_seam(self) -> None:
        for p in PARTITIONS:
            committed = self.committed(p)
            if committed is not None:
                place = self.place(self.life)
                assert covered_until(self.world.segments(p, place), 0) >= committed.next_offset
                assert read_note(committed) == Note(0, 2, self.life)

    @invariant()
    def verify(self) -> None:
        """Each segment holds exactly its life's records of its range, so that overlapping ones agree."""
        for (life, p), log in self.logs.items():
            for segment in self.world.segments(p, self.place(life)):
                if segment not in self.verified:
                    wanted = {o: r.value for o, r in log.records.items() if o in segment.offsets}
                    found = {o: v for o, v in self.world.read(segment).items() if o >= log.low}
                    assert found == wanted, segment
                    assert segment.offsets.next_offset <= log.stable
                    self.verified.add(segment)

    @invariant()
    def nothing_is_refused(self) -> None:
        """One log: no segment contradicts another, and no position is out of range."""
        for process in getattr(self, "running", ()):
            for reason in process.stopped.values():
                assert "TOPIC_AUTHORIZATION_FAILED" in reason, reason

    def teardown(self) -> None:
        try:
            if hasattr(self, "running"):
                self._heal()
        finally:
            self.world.close()
            self.directory.cleanup()

    def _heal(self) -> None:
        """All is well again: everything is archived and committed, and nothing is left behind."""
        world = self.world
        self.end_transactions(commit=True)
        world.objects.away = set()
        for number, process in enumerate(self.running):
            process.consumer.unavailable = False
            process.consumer._failing_commits.clear()
            process.consumer.per_poll = 1000
            for pool in POOLS:
                self.answer(number, pool, all_=True, other=0)
            process.turn()
        for p in PARTITIONS:
            if self.owner[p] is None:
                self.give(p, 0)
        for _ in range(8):
            for process in self.running:
                process.turn(4)
            world.clock.advance(300)
        for process in self.running:
            process.turn(4)
        for zombie in self.zombies:
            zombie.run_all()
        self.verify()
        for p in PARTITIONS:
            end, place = world.broker.logs[p].stable, self.place(self.life)
            assert covered_until(world.segments(p, place), 0) == end, (p, world.ranges(p, place))
            assert world.position(p) == end
            assert self.committed(p) is not None
        for process in self.running:
            assert process.stopped == {}
            assert process.assembly.held_bytes == 0
            assert process.assembly.spool_bytes == 0, "spool files are left behind"


TestEgressProcesses = EgressProcesses.TestCase
TestEgressProcesses.settings = machine(100)
