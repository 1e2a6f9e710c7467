"""The offset map against a list of records: each offset is translated both ways, whatever happened to the partition."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from formats.messages import offset_map
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey, encode_map_key
from formats.messages.offset_map import MapPage, encode_page, encode_page_key, pages
from formats.records.offset_runs import OffsetRuns, offset_runs
from formats.segment import SourcePartition
from infra.archive.map_pages import PagedMaps
from infra.contracts.internal_topics import PartitionPages
from ingress.groups.translation import DeliveredRange, Exactness, PartitionMap, Translation
from tests.examples import machine

EXACT, REPEATED, TRIMMED = Exactness.EXACT, Exactness.REPEATED, Exactness.TRIMMED
CLAMPED, UNKNOWN = Exactness.CLAMPED, Exactness.UNKNOWN
KEY = MapKey(CheckpointKey(SourcePartition("us", "orders", 3), "us.orders"), "second")
OTHER = MapKey(KEY.delivery, "first")  # the destination before it was created again

gaps = st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=1, max_size=5)
"""Of each record of a delivery: how many offsets of the source before it have none."""


@dataclass(frozen=True, slots=True)
class Record:
    source: int
    target: int
    page: int | None  # number of the page that has it; None: none has


@dataclass(slots=True)
class Model:
    """What is at the target, record by record."""

    log: list[Record] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)  # of pages
    kept: set[int] = field(default_factory=set)  # pages that are still in the topic
    log_start: int = 0
    log_end: int = 0
    applied: int = 0
    begun_at: int | None = 0
    given_up: set[int] = field(default_factory=set)  # offsets that an operator passed over

    @property
    def mapped(self) -> list[Record]:
        return [one for one in self.log if one.page in self.kept]

    def is_first(self, record: Record) -> bool:
        return all(one.page != record.page or one.target >= record.target for one in self.log)

    def is_whole(self, page: int | None) -> bool:
        assert page is not None
        return page == min(self.kept) and self.begun_at is not None and self.positions[page] <= self.begun_at

    def target_of(self, source: int) -> Translation:
        mapped = self.mapped
        if not mapped:
            if self.log_start < self.log_end:
                return Translation(None, UNKNOWN)
            if source > self.applied:
                return Translation(self.log_end, CLAMPED)
            return Translation(self.log_end, TRIMMED if self.log_end and source < self.applied else EXACT)
        found = next((one for one in mapped if one.target >= self.log_start and one.source >= source), None)
        if found is None:
            end = max(mapped[-1].target + 1, self.log_start)
            highest = max(one.source for one in mapped) + 1
            if source < highest:
                return Translation(end, TRIMMED)
            return Translation(end, CLAMPED if source > max(highest, self.applied) else EXACT)
        lowest = min(one.source for one in mapped if one.target >= found.target)
        exact = EXACT if lowest >= source else REPEATED
        earlier = [one for one in mapped if one.target < found.target]
        assert found.page is not None
        if found.source == source:
            return Translation(found.target, exact)
        if not self.is_first(found):
            if source > earlier[-1].source:
                return Translation(found.target, exact)
            return Translation(self.log_start, TRIMMED)
        if source >= self.positions[found.page] or self.is_whole(found.page):
            return Translation(found.target, exact)
        if found.target == self.log_start:
            return Translation(self.log_start, TRIMMED)
        if not earlier:
            return Translation(None, UNKNOWN)
        after = max(earlier[-1].target + 1, self.log_start)
        return Translation(after, exact if source > earlier[-1].source else TRIMMED)

    def source_of(self, target: int) -> Translation:
        mapped = self.mapped
        if not mapped:
            if self.log_end or self.begun_at is None:
                return Translation(None, UNKNOWN)
            return Translation(self.begun_at, CLAMPED if target else EXACT)
        at = max(target, self.log_start)
        earlier = [one for one in mapped if one.target < at]
        rest = [one for one in mapped if one.target >= at]
        if not rest:
            source = earlier[-1].source + 1
        else:
            source = min(one.source for one in rest)
            if self.is_first(rest[0]) and rest[0].target > at:
                if earlier:
                    source = min(source, earlier[-1].source + 1)
                elif not self.is_whole(rest[0].page):
                    return Translation(None, UNKNOWN)
        if target > self.log_end:
            return Translation(source, CLAMPED)
        if target < self.log_start:
            return Translation(source, TRIMMED)
        return Translation(source, EXACT if all(one.source < source for one in earlier) else REPEATED)


class OffsetMapMachine(RuleBasedStateMachine):
    """A partition is delivered in transactions, or at least once, by one owner after the other; positions are set by
    hand; the target is trimmed, and so is the map; the map's topic is compacted and read from its start."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        for name, value in (("FULL_RUNS", 3), ("MAX_RUNS", 4)):
            self.stack.enter_context(patch.object(offset_map, name, value))
        self.model = Model()
        self.existing: set[int] = set()  # offsets of the source that have a record
        self.holes: set[int] = set()
        self.topic: list[tuple[bytes, bytes | None]] = []
        self.read = 0  # records of the topic that the reader has
        self.reader = PagedMaps(waste_bytes=50)
        self.tail: MapPage | None = None  # of the owner
        self.is_mapped = True
        self.starts: dict[int, int] = {}  # by the start of a page: the model's number of it

    def teardown(self) -> None:
        try:
            self.compare()
        finally:
            self.reader.close()
            self.stack.close()

    @initialize(begun=st.sampled_from([0, 0, 7]), is_known=st.booleans(), before=st.lists(gaps, max_size=2))
    def begin(self, begun: int, is_known: bool, before: list[list[int]]) -> None:
        """`before`: deliveries before there was a map."""
        self.model.applied = begun
        self.model.begun_at = begun if is_known else None
        self.put(next(pages(OTHER, 0, offset_runs([(0, 0, 99)]))))
        self.is_mapped = not before
        for some in before:
            self.deliver(some, 0, 0)
        self.is_mapped = True

    # --- deliveries ---

    def put(self, page: MapPage) -> None:
        self.topic.append((encode_page_key(page), encode_page(page)))

    def produced(self, some: Sequence[int], others: int) -> OffsetRuns:
        """Records, `others` of somebody else before the second."""
        model, source, rows = self.model, self.model.applied, []
        for number, gap in enumerate(some):
            source = self.after_holes(source, gap)
            while source in self.holes:
                source += 1
            self.existing.add(source)
            model.log_end += others if number == 1 else 0
            rows.append((source, model.log_end, 1))
            source, model.log_end = source + 1, model.log_end + 1
        return offset_runs(rows)

    def after_holes(self, source: int, count: int) -> int:
        """Up to so many offsets from `source` on have no record, for good."""
        for _ in range(count):
            if source in self.existing:
                break
            self.holes.add(source)
            source += 1
        return source

    def write_pages(self, position: int, runs: OffsetRuns) -> None:
        tail = self.tail
        made = tail.extended(runs) if tail and not tail.is_full else pages(KEY, position, runs)
        for page in made:
            self.put(page)
            self.tail = page
            number = self.starts.setdefault(page.start, len(self.starts))
            self.model.positions[number] = page.position
            self.model.kept.add(number)
            known = {one.target for one in self.model.log}
            for source, target, count in page.runs.rows():
                new = [Record(source + n, target + n, number) for n in range(count) if target + n not in known]
                self.model.log += new

    def record(self, runs: OffsetRuns) -> None:
        """At the target, in no page."""
        self.model.log += [Record(s + n, t + n, None) for s, t, count in runs.rows() for n in range(count)]

    @rule(some=gaps, others=st.sampled_from([0, 0, 2]), after=st.sampled_from([0, 0, 1, 2]))
    def deliver(self, some: list[int], others: int, after: int) -> None:
        """A transaction; `after` its last record come offsets without one."""
        position, runs = self.model.applied, self.produced(some, others)
        self.model.log_end += 1
        if self.is_mapped:
            self.write_pages(position, runs)
        else:
            self.record(runs)
        self.model.applied = self.after_holes(runs.rows()[-1][0] + 1, after)

    @rule(some=gaps)
    def deliver_at_least_once(self, some: list[int]) -> None:
        position, runs = self.model.applied, self.produced(some, 0)
        if self.is_mapped:
            self.write_pages(position, runs)
        else:
            self.record(runs)
        self.model.applied = runs.rows()[-1][0] + 1

    @rule(some=gaps, is_written=st.booleans())
    def die_before_the_checkpoint(self, some: list[int], is_written: bool) -> None:
        """At least once: the records are there, perhaps their pages, and are delivered again."""
        position, runs = self.model.applied, self.produced(some, 0)
        if is_written and self.is_mapped:
            self.write_pages(position, runs)
        else:
            self.record(runs)
        self.tail = None

    @rule(count=st.integers(1, 3))
    def abort(self, count: int) -> None:
        self.model.log_end += count

    @rule(count=st.integers(1, 4))
    def deliver_a_hole(self, count: int) -> None:
        self.model.applied = self.after_holes(self.model.applied, count)

    @rule()
    def move_to_another_owner(self) -> None:
        self.tail = None

    @precondition(lambda self: self.is_mapped)
    @rule(distance=st.integers(-8, 8))
    def seed(self, distance: int) -> None:
        """An operator sets the position; the next owner reads it."""
        model = self.model
        model.given_up |= set(range(model.applied, model.applied + distance))
        model.applied = max(model.applied + distance, 0)
        if model.begun_at is not None and model.applied < model.begun_at:
            model.begun_at = None
        self.tail = None

    @precondition(lambda self: not self.is_mapped or self.is_in_order())
    @rule()
    def switch(self) -> None:
        """Programs without a map deliver for a while, but nothing that was delivered before."""
        self.is_mapped = not self.is_mapped
        self.tail = None

    def is_in_order(self) -> bool:
        return all(one.source < self.model.applied for one in self.model.log)

    # --- trimming ---

    @rule(share=st.floats(0, 1))
    def trim_the_target(self, share: float) -> None:
        self.model.log_start += int((self.model.log_end - self.model.log_start) * share)

    @rule()
    def trim_the_map(self) -> None:
        """Pages go whose next page begins at the log start or below it."""
        kept = sorted(self.model.kept)
        starts = {number: start for start, number in self.starts.items()}
        for page, later in pairwise(kept):
            if starts[later] <= self.model.log_start:
                self.model.kept.remove(page)
                self.topic.append((encode_map_key(KEY, starts[page]), None))

    # --- the reader ---

    @rule()
    def compact_the_topic(self) -> None:
        last = {key: number for number, (key, _) in enumerate(self.topic)}
        unread = self.topic[self.read :]
        kept = [one for number, one in enumerate(self.topic[: self.read]) if last[one[0]] == number]
        self.topic, self.read = [*kept, *unread], len(kept)

    @rule()
    def restart_the_reader(self) -> None:
        self.reader.close()
        self.reader, self.read = PagedMaps(waste_bytes=50), 0

    @rule()
    def read_again(self) -> None:
        self.reader.clear()
        self.read = 0

    def pages(self) -> PartitionPages | None:
        for key, value in self.topic[self.read :]:
            self.reader.put(key, value)
        self.read = len(self.topic)
        return self.reader.maps.get(KEY)

    # --- the proof ---

    @rule()
    def compare(self) -> None:
        model, stored = self.model, self.pages()
        assert (stored is not None) == bool(model.kept)
        if stored is None:
            return
        found = PartitionMap(
            stored,
            DeliveredRange(
                log_start=model.log_start, log_end=model.log_end, applied=model.applied, begun_at=model.begun_at
            ),
        )
        highest = max([model.applied, *(one.source for one in model.log)])
        sources = range(highest + 3)
        together = found.targets_of(sources)
        assert found.targets_of(reversed(sources)) == together[::-1], "in any order"
        for source, there in zip(sources, together, strict=True):
            assert there == found.target_of(source) == model.target_of(source), source
            self.check_target(source, there)
        for target in range(model.log_end + 3):
            there = found.source_of(target)
            assert there == model.source_of(target), target
            self.check_source(target, there)

    def check_target(self, source: int, found: Translation) -> None:
        """What the translation promises, whatever the rules are."""
        model = self.model
        readable = [one for one in model.log if one.target >= model.log_start]
        if found.offset is None:
            assert found.exactness is UNKNOWN
            assert source < self.model.positions[min(model.kept)], "in the map"
            assert not model.is_whole(min(model.kept)), "nothing was delivered before the map"
            return
        follow = [one for one in readable if one.target >= found.offset]
        missing = {one.source for one in readable if one.source >= source} - {one.source for one in follow}
        missing -= {one for one in missing if one >= model.applied or one in model.given_up}  # delivered again, or not
        assert not missing, f"{source} -> {found}: skips {missing}"
        if found.exactness is EXACT:
            again = [one for one in follow if one.source < source and one.page in model.kept]
            assert not again, f"{source} -> {found}: reads {again} again"
        if found.exactness is TRIMMED:
            assert found.offset >= model.log_start
        if found.exactness is CLAMPED:
            assert not any(one.source >= source for one in readable if one.page in model.kept)

    def check_source(self, target: int, found: Translation) -> None:
        model = self.model
        if found.offset is None:
            assert found.exactness is UNKNOWN
            return
        at = max(target, model.log_start)
        read = {one.source for one in model.log if one.target < at}
        unread = {one.source for one in model.log if one.target >= at and one.source < model.applied} - read
        unread -= model.given_up
        assert all(one >= found.offset for one in unread), f"{target} -> {found}: skips {unread}"
        if found.exactness is EXACT:
            again = [one for one in model.mapped if one.target < target and one.source >= found.offset]
            assert not again, f"{target} -> {found}: reads {again} again"


TestOffsetMap = OffsetMapMachine.TestCase
TestOffsetMap.settings = machine(30)
