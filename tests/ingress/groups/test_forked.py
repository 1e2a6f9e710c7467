"""Offsets of groups where a log has forked: what lies before the fork is in the old archive path only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.claim import TopicClaim
from formats.errors import CheckpointConflict
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.messages.map_key import MapKey
from formats.segment import SourcePartition
from infra.contracts.cluster import LogEnds, TopicPartition
from ingress.groups.lookup import MapLookup, NotKnownNow
from ingress.groups.translation import Exactness, Translation
from ingress.routing.archived import ArchivedTopic, forked_from
from ingress.routing.succession import ArchivedIncarnation
from tests.examples import property_examples
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.ingress.groups.offset_maps import Row, page
from tests.ingress.world import source_settings

AT = datetime(2026, 3, 4, tzinfo=UTC)
HERE = TopicPartition("us.orders", 3)
OLD, NEW, NEWEST = (
    CheckpointKey(SourcePartition("us", "orders", 3, path), HERE.topic) for path in ("", "id-fork1", "id-fork2")
)
EXACT, REPEATED, CLAMPED = Exactness.EXACT, Exactness.REPEATED, Exactness.CLAMPED
TRIMMED, UNKNOWN = Exactness.TRIMMED, Exactness.UNKNOWN

Delivered = tuple[CheckpointKey, int, list[Row]]  # path, where it begins, its runs


def checkpoint(next_offset: int, begun_at: int, topic_id: str = "here") -> Checkpoint:
    return Checkpoint(next_offset, topic_id, AT, Author.EXACTLY_ONCE, begun_at=begun_at)


@contextmanager
def lookup(
    *paths: Delivered, low: int = 0, high: int, positions: Mapping[CheckpointKey, Checkpoint] | None = None
) -> Iterator[MapLookup]:
    """Of what was delivered, path after path. `positions`: in place of those that follow from it."""
    offset_map = FakeOffsetMap()
    for key, begin, rows in paths:
        if rows:
            offset_map.put(page(begin, rows, MapKey(key, "here")))
    ends = {key: checkpoint(rows[-1][0] + rows[-1][2] if rows else begin, begin) for key, begin, rows in paths}
    incarnations = [
        ArchivedIncarnation(
            incarnation=Incarnation("orders", path),
            claim=TopicClaim(topic_id="id", cluster_id="c", number=number, claimed_at=AT, fork=number),
        )
        for number, path in enumerate(("", "id-fork1", "id-fork2"))
    ]
    route = ArchivedTopic(
        region="us", incarnations=incarnations, settings=source_settings("orders", HERE.topic, region="us")
    )
    try:
        yield MapLookup(
            offset_map.read(),
            ends if positions is None else positions,
            {HERE: LogEnds(low=low, stable=high, high=high)},
            {HERE.topic: "here"},
            forked=forked_from({HERE.topic: [route]}),
        )
    finally:
        offset_map.close()


def test_a_group_that_had_not_reached_the_fork_reads_what_lies_before_it() -> None:
    """It was moved to the first record behind the fork, past all that it had not read."""
    with lookup((OLD, 0, [(0, 0, 520)]), (NEW, 500, [(500, 520, 400)]), high=920) as found:
        assert found.targets_of(NEW, [450, 499, 500, 519, 700]) == [
            Translation(450, REPEATED),
            Translation(499, REPEATED),
            Translation(520, EXACT),
            Translation(539, EXACT),
            Translation(720, EXACT),
        ]
        assert found.target_of(NEW, 901) == Translation(920, CLAMPED)


def test_the_other_way_round_nothing_is_beyond_the_fork_before_its_records() -> None:
    with lookup((OLD, 0, [(0, 0, 520)]), (NEW, 500, [(500, 520, 400)]), high=920) as found:
        opened = found.partition(NEW)
        assert not isinstance(opened, str)
        assert [opened.source_of(one).offset for one in (450, 499, 500, 510, 519, 520, 521)] == [
            450,
            499,
            500,
            500,
            500,
            500,
            501,
        ]


def test_a_partition_that_did_not_fork_goes_on_where_it_ended() -> None:
    with lookup((OLD, 0, [(0, 0, 500)]), (NEW, 500, [(500, 501, 10)]), high=512) as found:
        assert found.targets_of(NEW, [450, 500, 505]) == [
            Translation(450, EXACT),
            Translation(501, EXACT),
            Translation(506, EXACT),
        ]


def test_what_retention_took_before_the_new_path_began_is_a_hole() -> None:
    with lookup((OLD, 0, [(0, 0, 500)]), (NEW, 600, [(600, 500, 10)]), high=510) as found:
        assert found.targets_of(NEW, [499, 550, 600]) == [
            Translation(499, EXACT),
            Translation(500, EXACT),
            Translation(500, EXACT),
        ]


@pytest.mark.parametrize("is_begun", [True, False])
def test_until_the_new_path_has_a_record_all_is_translated_by_the_old_one(*, is_begun: bool) -> None:
    old = (OLD, 0, [(0, 0, 500)])
    with lookup(old, *([(NEW, 500, [])] if is_begun else []), high=500) as found:
        assert found.targets_of(NEW, [450, 500, 505]) == [
            Translation(450, EXACT),
            Translation(500, EXACT),
            Translation(500, CLAMPED),
        ]


def test_a_second_fork() -> None:
    paths = (OLD, 0, [(0, 0, 520)]), (NEW, 500, [(500, 520, 100)]), (NEWEST, 580, [(580, 620, 50)])
    with lookup(*paths, high=670) as found:
        assert [found.target_of(NEWEST, one) for one in (450, 550, 590)] == [
            Translation(450, REPEATED),
            Translation(570, REPEATED),
            Translation(630, EXACT),
        ]
        opened = found.partition(NEWEST)
        assert not isinstance(opened, str)
        assert [opened.source_of(one).offset for one in (450, 510, 540, 610, 620)] == [450, 500, 520, 580, 580]


def test_which_path_has_an_offset() -> None:
    """A rehearsal compares the record there with the one of that path."""
    paths = (OLD, 0, [(0, 0, 520)]), (NEW, 500, [(500, 520, 100)]), (NEWEST, 580, [(580, 620, 50)])
    with lookup(*paths, high=670) as found:
        assert [found.path_of(NEWEST, one) for one in (499, 500, 579, 580)] == [OLD, NEW, NEW, NEWEST]
        assert found.path_of(NEW, 700) == NEW
    with lookup(paths[0], (NEW, 500, []), high=520) as found:
        assert found.path_of(NEW, 510) == OLD, "nothing of the new path is here"
    with lookup(paths[0], high=520) as found:
        assert [found.path_of(key, 510) for key in (OLD, NEW)] == [OLD, OLD]


def test_records_before_the_fork_that_were_removed_here_are_trimmed() -> None:
    with lookup((OLD, 0, [(0, 0, 500)]), (NEW, 500, [(500, 500, 10)]), low=500, high=510) as found:
        assert found.target_of(NEW, 450) == Translation(500, TRIMMED)


def test_an_error_about_the_old_path_says_nothing_of_what_lies_before_the_fork() -> None:
    with lookup((OLD, 0, [(0, 0, 500)]), (NEW, 500, [(500, 500, 10)]), high=510) as found:
        conflict = CheckpointConflict("both cannot be true")
        torn = replace(found, positions={**found.positions, OLD: conflict}, _partitions={})
        assert torn.target_of(NEW, 450) == str(conflict)
        lost = replace(found, ends={}, _partitions={})
        assert isinstance(lost.target_of(NEW, 450), NotKnownNow)


def test_an_old_path_of_which_nothing_is_in_this_destination_does_not_matter() -> None:
    """The destination was created again, and only the new path is delivered to it."""
    positions = {OLD: checkpoint(520, 0, "before"), NEW: checkpoint(510, 500)}
    new = (NEW, 500, [(500, 0, 10)])
    for known in (positions, {NEW: positions[NEW]}):
        with lookup(new, high=10, positions=known) as found:
            assert found.target_of(NEW, 505) == Translation(5, EXACT)


gaps = st.lists(st.sampled_from([0, 0, 1, 3]), min_size=1, max_size=6)


def records(begin: int, target: int, holes: list[int]) -> tuple[list[Row], int]:
    """One record after each number of offsets without one, at consecutive targets; and the next source offset."""
    rows, source = list[Row](), begin
    for hole in holes:
        source += hole
        rows.append((source, target + len(rows), 1))
        source += 1
    return rows, source


@property_examples()
@given(gaps, gaps, st.integers(0, 12), st.integers(0, 3), st.integers(0, 12))
def test_no_record_of_the_log_is_skipped(old: list[int], new: list[int], back: int, marker: int, removed: int) -> None:
    """In either direction, wherever the log forked, and whatever was removed here."""
    before, end = records(0, 0, old)
    begin = max(end - back, 0) if back < 10 else end + back
    after, _ = records(begin, len(before) + marker, new)
    log = {(source, target) for source, target, _ in before if source < begin} | {row[:2] for row in after}
    high = after[-1][1] + 1
    low = min(removed, high)
    with lookup((OLD, 0, before), (NEW, begin, after), low=low, high=high) as found:
        opened = found.partition(NEW)
        assert not isinstance(opened, str)
        for source in range(after[-1][0] + 3):
            there = opened.target_of(source)
            assert there.offset is not None
            wanted = [target for at, target in log if at >= source and target >= low]
            assert all(target >= there.offset for target in wanted), source
            if there.exactness is EXACT:
                rest = [row[:2] for row in (*before, *after) if row[1] >= there.offset]
                assert sorted(target for _, target in rest) == sorted(wanted), source
        assert opened.targets_of(range(9)) == [opened.target_of(one) for one in range(9)]
        for target in range(low, high + 1):
            there = opened.source_of(target)
            assert there.offset is not None
            assert all(source >= there.offset for source, at in log if at >= target), target
