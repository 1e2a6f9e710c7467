"""A restore of any history, with failures and restarts at any moment, as a state machine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.producer import FailureKind
from replicator.restore.executor import PATIENCE
from replicator.restore.progress import RestoringPartition
from tests.examples import machine
from tests.fakes.kafka_target import Crashed
from tests.formats.json_lines import JsonLinesFormat
from tests.ingress.world import REGION, STAMP
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

PARTITIONS, UNTOUCHED = (0, 1), 2
COUNT = 40
RUN = 3  # records
partitions = st.sampled_from(PARTITIONS)


def numbered(ranges: Iterable[OffsetRange]) -> set[int]:
    return {o for r in ranges for o in range(r.start, r.next_offset)}


class RestoreMachine(RuleBasedStateMachine):
    """An archive that is compacted, damaged and reduced while a restore of it fails, crashes and starts again.

    The records stored at the beginning are expected. Only those that retention or an accident removed may be missing.
    """

    @initialize(
        data=st.data(),
        skip=st.booleans(),
        offsets=st.just(ANY_OFFSET) | st.builds(IntRange, st.integers(0, COUNT), st.integers(COUNT // 2, COUNT)),
        timestamps=st.just(ANY_TIME) | st.builds(IntRange, st.integers(STAMP, STAMP + COUNT // 2)),
        width=st.integers(1, 3),
    )
    def begin(self, data: st.DataObject, skip: bool, offsets: IntRange, timestamps: IntRange, width: int) -> None:
        self.world = restorable(JsonLinesFormat())
        self.skip, self.offsets, self.timestamps, self.width = skip, offsets, timestamps, width
        self.stored: set[Segment] = set()
        self.garbage: list[Segment] = []  # merged, not deleted yet
        self.damaged: dict[Segment, bytes] = {}
        self.corrupted: set[Segment] = set()  # at any time
        self.removals = 0
        self.gone: dict[int, set[int]] = {p: set() for p in PARTITIONS}
        self.holes: dict[int, set[int]] = {}
        self.ever: dict[int, set[int]] = {p: set() for p in PARTITIONS}
        self.world.put(0, COUNT - 1, partition=UNTOUCHED)
        for p in PARTITIONS:
            self.holes[p] = data.draw(st.sets(st.integers(0, COUNT - 1), max_size=6))
            cuts = data.draw(st.sets(st.integers(1, COUNT - 1), max_size=8))
            edges = sorted({data.draw(st.integers(0, 3)), *cuts, COUNT})
            self.world.record_begin(edges[0], partition=p)
            for start, next_ in pairwise(edges):
                match data.draw(st.sampled_from(["stored", "stored", "stored", "stored", "recorded", "missing"])):
                    case "stored":
                        self.put(p, start, next_ - 1)
                    case "recorded":
                        self.world.record_gap(start, next_ - 1, partition=p)
            for _ in range(data.draw(st.integers(0, 2))):
                self.overlap(p, data.draw(st.integers(0, COUNT - 1)), data.draw(st.integers(1, 15)))
        self.restart()

    def put(self, p: int, start: int, end: int, level: int = 0) -> Segment:
        taken = [s for s in [*self.stored, *self.garbage] if s.source.partition == p]
        segment = next((s for s in taken if (s.offsets, s.level) == (OffsetRange(start, end), level)), None)
        if segment is None:
            segment = self.world.put(start, end, level=level, partition=p, holes=self.holes[p])
        self.stored.add(segment)
        self.ever[p].update(range(start, end + 1))
        return segment

    def overlap(self, p: int, start: int, length: int) -> None:
        """A segment of a late owner, over offsets of other segments."""
        covered, end = self.held(p), start
        while end + 1 in covered and end < start + length:
            end += 1
        if start in covered:
            self.put(p, start, end)

    def restart(self) -> None:
        """Another process resumes from the checkpoints. The earlier owner of the transactional id is fenced."""
        away, self.world.target.away = self.world.target.away, False  # else it does not begin
        self.running = Restoring(
            self.world,
            offsets=self.offsets,
            timestamps=self.timestamps,
            records=RUN,
            width=self.width,
            skip_missing=self.skip,
        )
        self.world.target.away = away

    # --- the archive ---

    @property
    def sound(self) -> list[Segment]:
        return sorted(self.stored - set(self.damaged))

    @precondition(lambda self: self.sound)
    @rule(data=st.data(), count=st.integers(1, 4), at_once=st.booleans())
    def merge(self, data: st.DataObject, count: int, at_once: bool) -> None:
        first = data.draw(st.sampled_from(self.sound))
        inputs, end = [first], first.offsets.end
        for segment in sorted((s for s in self.sound if s.source == first.source), key=lambda s: s.offsets):
            follows = first.offsets.start <= segment.offsets.start <= end + 1 and segment.offsets.end > end
            if len(inputs) < count and follows:
                inputs.append(segment)
                end = segment.offsets.end
        level = max(s.level for s in inputs) + 1
        output = self.put(first.source.partition, first.offsets.start, end, level)
        self.stored.difference_update(set(inputs) - {output})
        self.garbage += [s for s in inputs if s != output and s not in self.garbage]
        if at_once:
            self.collect()

    @rule()
    def collect(self) -> None:
        self.world.remove(*self.garbage)
        self.garbage.clear()

    @precondition(lambda self: self.sound)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(self.sound))
        with self.world.peek.open(segment) as body:
            self.damaged[segment] = body.read()
        self.world.damage(segment)
        self.corrupted.add(segment)

    @rule()
    def mend(self) -> None:
        for segment, data in self.damaged.items():
            self.world.damage(segment, data)
        self.damaged.clear()

    @precondition(lambda self: self.removals < 2 and self.stored)
    @rule(data=st.data(), recorded=st.sampled_from([True, True, False]))
    def remove(self, data: st.DataObject, recorded: bool) -> None:
        """Retention or an accident removes a segment."""
        segment = data.draw(st.sampled_from(sorted(self.stored)))
        p, offsets = segment.source.partition, segment.offsets
        self.removals += 1
        if recorded:
            self.world.record_gap(offsets.start, offsets.end, partition=p)
        self.world.remove(segment)
        self.stored.discard(segment)
        self.damaged.pop(segment, None)
        held = self.held(p)
        self.gone[p] |= {o for o in range(offsets.start, offsets.next_offset) if o not in held}

    def held(self, p: int) -> set[int]:
        segments = [s for s in self.stored if s.source.partition == p]
        return {o for s in segments for o in range(s.offsets.start, s.offsets.next_offset)}

    # --- the restore ---

    @rule(count=st.integers(1, 8), seconds=st.sampled_from([0, 0, 1, 15]))
    def turn(self, count: int, seconds: float) -> None:
        for _ in range(count):
            try:
                self.running.turn(seconds=seconds)
            except Crashed:
                self.restart()

    @rule()
    def go_on(self) -> None:
        self.turn(3, 1)

    @rule(seconds=st.sampled_from([1, 40, PATIENCE.total_seconds() + 1]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def crash(self) -> None:
        self.restart()

    @rule(pool=st.sampled_from(["pool", "reading"]))
    def hold(self, pool: str) -> None:
        """Listings or reads are delayed."""
        getattr(self.running, pool).holding = True

    @rule(pool=st.sampled_from(["pool", "reading"]), all_=st.booleans())
    def answer(self, pool: str, all_: bool) -> None:
        held = getattr(self.running, pool)
        if held.waiting and not all_:
            held.run_next()
            return
        held.holding = False
        held.run_all()

    @rule(p=partitions, kind=st.sampled_from(FailureKind))
    def fail_next(self, p: int, kind: FailureKind) -> None:
        self.world.target.fail_next(TARGETS[p], kind=kind)

    @rule(how=st.sampled_from(["committed", "not committed", "crashed"]))
    def stop_next(self, how: str) -> None:
        if how == "crashed":
            self.world.target.crash_next()
        else:
            self.world.target.stop_next(keep=how == "committed")

    @rule(target_=st.booleans(), store=st.sets(st.sampled_from(["list", "open"])))
    def away(self, target_: bool, store: set[str]) -> None:
        self.world.target.away, self.world.objects.away = target_, store

    # --- what must hold ---

    def wanted(self, p: int) -> list[int]:
        return self.within(sorted(self.ever[p] - self.holes[p]))

    def within(self, offsets: Iterable[int]) -> list[int]:
        span, timestamps = self.offsets, self.timestamps
        return [o for o in offsets if span.low <= o <= span.high and timestamps.low <= STAMP + o <= timestamps.high]

    @invariant()
    def once_and_in_order_and_nothing_is_left_out(self) -> None:
        for p in PARTITIONS if hasattr(self, "running") else ():
            found, wanted = self.world.offsets(TARGETS[p]), self.wanted(p)
            assert found == sorted(set(found)), "once and in order"
            assert set(found) <= set(wanted), "nothing that was not wanted"
            until = max([*found, (self.world.checkpoint(p) or 0) - 1])
            left_out = {o for o in wanted if o <= until} - set(found)
            assert left_out <= self.gone[p], "nothing was left out"
            assert left_out <= self.written_down(p), "every offset left out is recorded for later readers"

    def written_down(self, p: int) -> set[int]:
        """Offsets recorded as missing: by the process that lost them, or by the one that passed over them."""
        source, target = SourcePartition(REGION, "t", p), self.world.target
        recorded = ControlStore(self.world.objects.memory, "data").gaps.ranges(source)
        return numbered([*recorded, *(s.offsets for s in target.skipped if s.key.source == source)])

    def teardown(self) -> None:
        """Without further faults every incomplete partition has a reason. After repair the next restore completes
        it."""
        if not hasattr(self, "running"):
            return
        target = self.world.target
        target._failing.clear()
        target._stopping, target._crashing, target.away = None, False, False
        self.world.objects.away = set()
        for pool in ("pool", "reading"):
            self.answer(pool, all_=True)
        self.running.finish()
        self.once_and_in_order_and_nothing_is_left_out()
        for p, partition in self.running.partitions.items():
            if p == UNTOUCHED:
                assert partition.is_done or "no progress" in partition.failed
            elif partition.failed:
                self.check_reason(p, partition)
            else:
                missed = set(self.wanted(p)) - set(self.world.offsets(TARGETS[p]))
                assert missed <= self.gone[p]
                assert not missed & self.planned(partition) - numbered([*partition.recorded, *partition.missing]), (
                    "it says what it passed over"
                )
        self.mend()
        self.skip = True
        self.restart()
        self.running.finish()
        self.once_and_in_order_and_nothing_is_left_out()
        assert not self.running.failed
        assert self.world.offsets(TARGETS[UNTOUCHED]) == self.within(range(COUNT))
        for p in PARTITIONS:
            assert set(self.wanted(p)) - set(self.world.offsets(TARGETS[p])) <= self.gone[p]

    def planned(self, partition: RestoringPartition) -> set[int]:
        begin, offsets = partition.plan.next_offset, partition.plan.offsets
        return set() if begin is None or offsets is None else set(range(begin, offsets.next_offset))

    def check_reason(self, p: int, partition: RestoringPartition) -> None:
        at, reason = partition.next_offset, partition.failed
        if reason.startswith("corrupt segment"):
            assert any(at in s.offsets and str(s) in reason for s in self.corrupted), reason
        elif reason.startswith("no segment holds"):
            assert not self.skip
        else:
            assert "no progress" in reason or "is refused" in reason or "injected by the test" in reason, reason


TestRestoreMachine = RestoreMachine.TestCase
TestRestoreMachine.settings = machine(100)
