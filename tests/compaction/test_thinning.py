"""Which generations of control objects stay, and how the others are removed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.generation_rules import DAY, HOUR, MINUTE, RULES, SegmentHorizon, is_superseded, most_settled
from compaction.thinning import BATCH, GenerationThinner, ThinnedKind
from formats.codec import VERSION
from formats.control.keys import generations_prefix
from formats.control.packed import pack
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.segment import OffsetRange, Segment, SegmentInfo
from infra.archive.generations import Generations
from infra.runtime.crash_points import BEFORE, observe
from infra.runtime.lifecycle import Stop
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import RetentionRule
from tests.compaction.archive import PREFIX, Archive, retention
from tests.examples import property_examples
from tests.fakes.surroundings import FailingStore, HandClock
from tests.formats.sample_records import SOURCE, sample_rows, segment

NOW = datetime(2026, 3, 20, 12, 34, 56, tzinfo=UTC)
WEEK = 7 * DAY
PARTITIONS = 5
kinds = st.sampled_from(sorted(RULES))
ages = st.timedeltas(timedelta(0), 40 * DAY) | st.timedeltas(timedelta(0), 3 * HOUR)
times = st.lists(ages, max_size=60).map(lambda some: sorted(NOW - age for age in some))
horizons = st.none() | ages.map(lambda age: NOW - age)


def kept(kind: str, stored: Sequence[datetime], horizon: datetime | None, now: datetime = NOW) -> list[datetime]:
    gone = [is_superseded(one, after, RULES[kind], now, horizon) for one, after in pairwise(stored)]
    return [one for one, is_gone in zip(stored, [*gone, False], strict=False) if not is_gone]


def in_force(stored: Sequence[datetime], at: datetime) -> datetime | None:
    return max((one for one in stored if one <= at), default=None)


class TestRule:
    @property_examples()
    @given(kinds, times, horizons)
    def test_the_newest_stays_and_nothing_young_goes(
        self, kind: str, stored: list[datetime], horizon: datetime | None
    ) -> None:
        left = kept(kind, stored, horizon)
        assert left[-1:] == stored[-1:]
        if kind not in ("watermarks", "groups"):
            young = [one for one in stored if NOW - one < HOUR]
            assert [one for one in left if NOW - one < HOUR] == young

    @property_examples()
    @given(st.sampled_from(["catalog", "watermarks", "groups"]), times, horizons)
    def test_what_was_in_force_is_known_to_the_precision_of_its_age(
        self, kind: str, stored: list[datetime], horizon: datetime | None
    ) -> None:
        """At the end of every span, as long as segments are stored that it describes."""
        left = kept(kind, stored, horizon)
        for at in stored:
            span = RULES[kind].span(NOW - at) or timedelta(seconds=1)
            end = at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % span + span - timedelta(microseconds=1)
            if horizon is None or end >= horizon:
                assert in_force(left, end) == in_force(stored, end)

    @property_examples()
    @given(kinds, times, horizons, st.lists(st.timedeltas(timedelta(0), 3 * DAY), max_size=4))
    def test_runs_at_other_times_before_leave_the_same_in_the_end(
        self, kind: str, stored: list[datetime], horizon: datetime | None, earlier: list[timedelta]
    ) -> None:
        left = stored
        for before in sorted(earlier, reverse=True):
            then = NOW - before
            past = [one for one in left if one <= then]
            left = kept(kind, past, None, then) + [one for one in left if one > then]
        assert kept(kind, left, horizon) == kept(kind, stored, horizon)

    @property_examples()
    @given(kinds, times, horizons)
    def test_few_are_left(self, kind: str, stored: list[datetime], horizon: datetime | None) -> None:
        old = [one for one in kept(kind, stored, horizon) if NOW - one >= WEEK]
        assert len({one.date() for one in old}) == len(old)
        if horizon is not None:
            assert len([one for one in old if one <= horizon]) <= 1
        if kind == "heartbeat":
            assert len(old) <= 1

    def test_examples(self) -> None:
        at = [NOW - age for age in (8 * DAY, 8 * DAY - HOUR, 5 * HOUR + 2 * MINUTE, 5 * HOUR, 2 * MINUTE, MINUTE)]
        assert kept("catalog", at, None) == [at[1], at[3], at[4], at[5]]
        assert kept("watermarks", at, None) == kept("groups", at, None) == [at[1], *at[2:]]
        assert kept("heartbeat", at, None) == at[4:]
        assert kept("catalog", at, NOW - 4 * HOUR) == at[3:]


def settled_watermarks(count: int, at: datetime = NOW) -> bytes:
    """Of which so many partitions are settled."""
    ends = (7,) * PARTITIONS
    topic = TopicWatermarks(
        topic_id="", low=ends, high=ends, stable=ends, position=ends, settled=frozenset(range(count))
    )
    found = SourceWatermarks(cluster_id="", writer="", observed_at=at, topics={"t": topic}, settled_at=at)
    return encode_watermarks(found)


@given(st.lists(st.integers(0, 3)))
def test_the_most_settled_one_is_the_last_of_the_highest(counts: list[int]) -> None:
    best = most_settled(counts)
    if best is None:
        assert not any(counts)
    else:
        assert counts[best] == max(counts)
        assert all(count < counts[best] for count in counts[best + 1 :])


def info(level: int, at: datetime) -> SegmentInfo:
    return SegmentInfo(segment=Segment(SOURCE, level, OffsetRange(0, 1)), size_bytes=1, stored_at=at)


def test_the_horizon_is_the_oldest_segment_unless_a_merged_one_may_hold_older_records() -> None:
    horizon = SegmentHorizon()
    assert horizon.stored_at(NOW) == NOW
    horizon.add([info(0, NOW - WEEK), info(0, NOW - DAY), info(0, NOW)])
    assert horizon.stored_at(NOW) == NOW - WEEK
    horizon.add([info(1, NOW)])
    assert horizon.stored_at(NOW) is None


def test_a_segment_that_was_put_again_is_younger_than_its_records() -> None:
    """By a repair; the same holds of a backfill, which stores earlier offsets later."""
    follows = replace(info(0, NOW - DAY), segment=segment(2, 3))
    horizon = SegmentHorizon()
    horizon.add([follows, info(0, NOW - DAY + MINUTE)])
    assert horizon.stored_at(NOW) == NOW - DAY, "uploads finish in any order"
    horizon.add([follows, info(0, NOW)])
    assert horizon.stored_at(NOW) is None


def generation(at: datetime) -> bytes:
    """What all kinds but heartbeats have in common."""
    return pack({"observed_at": at.isoformat(), "v": VERSION})


class TestThinner:
    """Generations in a store whose clock is moved by hand."""

    def fill(self, store: FailingStore, clock: HandClock, kind: str, *stored: datetime) -> Generations:
        found = Generations(store, generations_prefix(PREFIX, SOURCE.region, kind))
        for number, at in enumerate(stored, start=1):
            clock.at = at
            assert found.put(number, b"xy" if kind == "heartbeat" else generation(at))
        clock.at = NOW
        return found

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def store(self, clock: HandClock) -> FailingStore:
        return FailingStore(clock)

    def thinner(self, store: FailingStore) -> GenerationThinner:
        return GenerationThinner(store, PREFIX, SOURCE.region, Stop())

    def test_a_plan_changes_nothing_and_says_what_the_removal_removes(
        self, store: FailingStore, clock: HandClock
    ) -> None:
        beats = [NOW - 2 * HOUR + n * MINUTE for n in range(100)]
        newest = self.fill(store, clock, "heartbeat", *beats)
        self.fill(store, clock, "catalog", NOW - 3 * DAY, NOW - 3 * DAY + MINUTE)
        store.memory.put_new(f"{newest.prefix}foreign", io.BytesIO(b"x"), 1)
        before = store.keys()
        planned = self.thinner(store).plan(NOW, None)
        assert store.keys() == before
        size_bytes = len(generation(NOW - 3 * DAY))
        assert planned == {
            "heartbeat": ThinnedKind(stored=100, superseded=61, superseded_bytes=122),
            "catalog": ThinnedKind(stored=2, superseded=1, superseded_bytes=size_bytes),
        }
        assert self.thinner(store).remove(NOW, None) == {"heartbeat": 61, "catalog": 1}
        assert len(store.keys()) == len(before) - 62
        assert store.stat(f"{newest.prefix}foreign") is not None
        assert (newest.newest(), newest.newest(100), newest.newest(3)) == (100, 100, 100)
        assert self.thinner(store).remove(NOW, None) == {}

    def test_the_most_settled_watermarks_of_a_span_stay_beside_the_last(
        self, store: FailingStore, clock: HandClock
    ) -> None:
        minute = datetime(2026, 3, 20, 10, 0, tzinfo=UTC)
        older = datetime(2026, 3, 1, tzinfo=UTC)
        spans: dict[datetime, list[int | None]] = {
            older: [3, 1, 0],
            older + 3 * HOUR: [3, 2],  # of the same day, the last of those with as many
            minute: [1, 2, 2, 0],
            minute + MINUTE: [0, 0],
            minute + 2 * MINUTE: [1, 3],
            minute + 3 * MINUTE: [2, None, 1],  # one cannot be read
        }
        found = Generations(store, generations_prefix(PREFIX, SOURCE.region, "watermarks"))
        stored: list[tuple[datetime, int | None]] = []
        for begin, counts in spans.items():
            stored += [(begin + n * timedelta(seconds=10), count) for n, count in enumerate(counts)]
        for number, (at, count) in enumerate(stored, start=1):
            clock.at = at
            assert found.put(number, b"x" if count is None else settled_watermarks(count))
        clock.at = NOW
        assert self.thinner(store).remove(NOW, None) == {"watermarks": 8}
        left = [stored[one.number - 1] for one in found.stored()]
        assert [count for _, count in left] == [3, 2, 2, 0, 0, 3, 2, 1]
        assert [at for at, _ in left[:2]] == [older + 3 * HOUR, older + 3 * HOUR + timedelta(seconds=10)]
        assert self.thinner(store).remove(NOW, None) == {}
        assert self.thinner(store).remove(NOW, NOW) == {"watermarks": 2}, "expired ones go all the same"

    def test_settled_watermarks_are_not_searched_for_beyond_one_that_is_wholly_settled(
        self, store: FailingStore, clock: HandClock
    ) -> None:
        found = Generations(store, generations_prefix(PREFIX, SOURCE.region, "watermarks"))
        for number, count in enumerate([1, 2, PARTITIONS, 0], start=1):
            clock.at = NOW - 2 * HOUR + (number // 4) * MINUTE
            assert found.put(number, settled_watermarks(count))
        clock.at = NOW
        assert self.thinner(store).remove(NOW, None) == {"watermarks": 2}
        assert store.calls["open"] == 2, "the first, for whether it is a copy, and the last that is wholly settled"

    @property_examples()
    @given(times, times, st.integers(0, 60))
    def test_a_copied_history_is_thinned_like_the_original(
        self, copied: list[datetime], own: list[datetime], horizon: int
    ) -> None:
        """Copied in one moment, before the first generation that was stored there: by their observations, which are
        older than the copy's segments. The last of the copies may stay where the original's next one supersedes it."""
        arrival = min([NOW, *own]) - MINUTE
        old = [at for at in copied if at < arrival - HOUR]
        left = []
        for stored in ([arrival] * len(old), old):
            clock = HandClock()
            store = FailingStore(clock)
            found = Generations(store, generations_prefix(PREFIX, SOURCE.region, "watermarks"))
            for number, (clock.at, observed) in enumerate(zip([*stored, *own], [*old, *own], strict=True), start=1):
                assert found.put(number, settled_watermarks(0, observed))
            clock.at = NOW
            self.thinner(store).remove(NOW, None)
            left.append([one.number for one in found.stored()])
            if stored != old:  # segments copied later than the generations
                self.thinner(store).remove(NOW, arrival + horizon * MINUTE)
                assert [one.number for one in found.stored() if one.number <= len(old)] == [
                    number for number in left[0] if number <= len(old)
                ]
        assert [number for number in left[0] if number not in left[1]] in ([], [len(old)])
        assert set(left[1]) <= set(left[0])

    @pytest.mark.parametrize("unreadable", [0, 1, 2, 3])
    def test_of_a_copy_what_cannot_be_read_stays_and_supersedes_nothing(
        self, store: FailingStore, clock: HandClock, unreadable: int
    ) -> None:
        """It may be of a newer program, and nothing else says of which minute it is."""
        minutes = [300, 300, 299, 299]
        found = Generations(store, generations_prefix(PREFIX, SOURCE.region, "watermarks"))
        clock.at = NOW - HOUR
        for index, ago in enumerate(minutes):
            data = b"newer" if index == unreadable else settled_watermarks(0, NOW - ago * MINUTE)
            assert found.put(index + 1, data)
        clock.at = NOW
        pair = {0, 1} if unreadable in {0, 1} else {2, 3}
        gone = [number for number in (1, 3) if {number - 1, number} != pair]
        assert self.thinner(store).remove(NOW, NOW) == {"watermarks": 1}
        assert [one.number for one in found.stored()] == [n for n in (1, 2, 3, 4) if n not in gone]

    def test_a_copy_of_which_nothing_can_be_read_stays(self, store: FailingStore, clock: HandClock) -> None:
        found = Generations(store, generations_prefix(PREFIX, SOURCE.region, "catalog"))
        clock.at = NOW - 3 * DAY
        assert all(found.put(number, b"newer") for number in range(1, 5))
        clock.at = NOW
        assert self.thinner(store).remove(NOW, NOW) == {}

    def test_two_that_thin_a_copy_at_once_leave_what_one_leaves(self, store: FailingStore, clock: HandClock) -> None:
        """The second finds gone what it has listed."""
        found = Generations(store, generations_prefix(PREFIX, SOURCE.region, "watermarks"))
        clock.at = NOW - 8 * DAY
        for number in range(1, 61):
            observed = NOW - timedelta(days=38 - number // 2, hours=2 - number % 2)
            assert found.put(number, settled_watermarks(0, observed))
        clock.at = NOW

        def other(_: str) -> None:
            self.thinner(store).remove(NOW, None)

        store.before["open"] = other
        self.thinner(store).remove(NOW, None)
        left = [one.number for one in found.stored()]
        assert len(left) == 31
        assert self.thinner(store).remove(NOW, None) == {}

    def test_many_go_in_requests_of_a_thousand_and_a_stop_ends_between_them(
        self, store: FailingStore, clock: HandClock
    ) -> None:
        beats = [NOW - DAY + n * timedelta(seconds=5) for n in range(2 * BATCH + 1)]
        self.fill(store, clock, "heartbeat", *beats)
        thinner = self.thinner(store)
        observe(lambda _, when: thinner.stop.set() if when == BEFORE else None)
        try:
            assert thinner.remove(NOW, None) == {"heartbeat": BATCH}
        finally:
            observe(None)
        assert self.thinner(store).remove(NOW, None) == {"heartbeat": BATCH}
        assert store.calls["delete_many"] == 2


@pytest.fixture
def archive() -> Iterator[Archive]:
    """A segment of nine days ago, another of today, and a catalogue of each day before and since."""
    made = Archive()
    rows = sample_rows(20)
    for days in range(12):
        made.time = NOW - timedelta(days=11 - days, hours=3)
        found = Generations(made.memory, generations_prefix(PREFIX, SOURCE.region, "catalog"))
        assert found.put(days + 1, generation(made.time))
        if days in {2, 11}:
            start = 10 * (days // 11)
            made.write(segment(start, start + 9), rows[start : start + 10])
    made.time = NOW
    yield made
    observe(None)


def generations(archive: Archive) -> list[int]:
    prefix = generations_prefix(PREFIX, SOURCE.region, "catalog")
    return [int(one.key[-20:]) for one in archive.memory.list(prefix)]


EVER = retention({"orders": RetentionRule()})


class TestGc:
    def test_generations_stay_as_long_as_the_oldest_segment(self, archive: Archive) -> None:
        report = archive.collector(EVER).run(archive.lease())
        assert report.generations["catalog"] == ThinnedKind(
            stored=12, superseded=2, superseded_bytes=2 * len(generation(NOW))
        )
        assert report.thinned == {"catalog": 2}
        assert generations(archive) == list(range(3, 13)), "the third was in force when the first segment was stored"

    def test_of_a_copy_none_goes_for_the_oldest_segments_sake(self, archive: Archive) -> None:
        """Segments may arrive days after the control objects that describe them."""
        copied = replace(archive.collector(EVER), is_copy=True)
        report = copied.run(archive.lease())
        assert (report.horizon, report.thinned) == (None, {})

    def test_a_stop_before_or_within_it_is_no_success(self, archive: Archive) -> None:
        lease = archive.lease()
        archive.stop.set()
        assert "stopped" in archive.collector(EVER).run(lease).failed["generations"]
        assert len(generations(archive)) == 12

    def test_a_dry_run_says_so_and_removes_nothing(self, archive: Archive) -> None:
        report = archive.collector(EVER).run(None)
        assert (report.generations["catalog"].superseded, report.thinned) == (2, {})
        assert len(generations(archive)) == 12

    def test_of_one_topic_only_leaves_them_alone(self, archive: Archive) -> None:
        report = archive.collector(EVER).run(archive.lease(), ["orders"])
        assert (report.generations, report.thinned) == ({}, {})
        assert len(generations(archive)) == 12

    def test_clocks_that_differ_remove_nothing(self, archive: Archive) -> None:
        lease = archive.lease()
        archive.time = NOW + DAY
        report = archive.collector(EVER).run(lease)
        assert report.refused
        assert len(generations(archive)) == 12

    def test_a_store_that_does_not_delete_fails_nothing_else(self, clock_store: FailingStore) -> None:
        archive = Archive(around=lambda _: clock_store)
        archive.time = NOW
        found = Generations(clock_store, generations_prefix(PREFIX, SOURCE.region, "heartbeat"))
        assert found.put(1, b"x")
        assert found.put(2, b"x")
        lease = archive.lease()
        clock_store.away = {"delete_many"}
        report = archive.collector(EVER).run(lease)
        assert "planned" in report.failed["generations"]

    @pytest.fixture
    def clock_store(self) -> FailingStore:
        """Objects that are two hours older than now."""
        store = FailingStore(HandClock(NOW))
        store.memory = MemoryObjectStore(now=lambda: NOW)
        store.older = 2 * HOUR
        return store
