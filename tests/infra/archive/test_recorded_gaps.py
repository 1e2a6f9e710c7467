"""Recorded gaps of a partition, read while `gc` joins them: a listing may name records that no longer exist."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import BinaryIO

import pytest

from formats.control.gap import RecordedGap
from formats.errors import SegmentNotFound
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.gaps import LIST_ATTEMPTS
from infra.storage.memory_and_folder import MemoryObjectStore

SOURCE = SourcePartition("a", "t", 0)
GAP = RecordedGap(
    source=SOURCE,
    offsets=OffsetRange(0, 9),
    reason="lost",
    low=0,
    high=20,
    recorded_at=datetime(2026, 3, 5, tzinfo=UTC),
)


class Joining(MemoryObjectStore):
    """`gone` times, a listed object has another name when it is opened."""

    gone = 0
    opened = 0

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.opened += 1
        if self.opened <= self.gone:
            raise SegmentNotFound(key)
        return super().open(key, tail_bytes=tail_bytes)


@pytest.fixture
def objects() -> Joining:
    objects = Joining()
    ControlStore(objects, "data").gaps.record(GAP)
    objects.opened = 0
    return objects


@pytest.mark.parametrize("gone", range(LIST_ATTEMPTS))
def test_gaps_joined_meanwhile_are_listed_again(objects: Joining, gone: int) -> None:
    objects.gone = gone
    assert ControlStore(objects, "data").gaps.of(SOURCE) == [GAP]
    assert objects.opened == gone + 1


@pytest.mark.parametrize("name", ["no topic/0", "t@a@b/0", "t/x", "t@/0"])
def test_foreign_keys_are_left_out_of_the_sources(objects: Joining, name: str) -> None:
    objects.put_new(f"data/a/_control/v1/gaps/{name}/{0:020d}-{9:020d}", io.BytesIO(b"{}"), 2)
    assert ControlStore(objects, "data").gaps.sources("a") == [SOURCE]


def test_few_sources_are_all_of_them_or_unknown(objects: Joining) -> None:
    control = ControlStore(objects, "data")
    assert control.gaps.few_sources("a", most=2) == frozenset(control.gaps.sources("a")) == {SOURCE}
    assert control.gaps.few_sources("a", most=1) is None, "there may be more"
    assert control.forks.few_sources("a", most=1) == frozenset()


def test_few_ranges_are_those_of_each_partition_or_unknown(objects: Joining) -> None:
    control = ControlStore(objects, "data")
    control.gaps.record(ACCEPTED)  # a second record of the same range
    control.gaps.record(replace(GAP, source=SourcePartition("a", "t", 7), offsets=OffsetRange(30, 39)))
    control.gaps.record(replace(GAP, source=SourcePartition("a", "t2", 1)))
    a_range = f"{0:020d}-{9:020d}"
    for name in ("t/x/1", "t/7/no range", "t/7", f"t/007/{a_range}", f"t/\u0667/{a_range}"):
        objects.put_new(f"data/a/_control/v1/gaps/{name}", io.BytesIO(b"{}"), 2)
    found = control.gaps.few_ranges("a", "t", most=100)
    assert found == {SOURCE.partition: [GAP.offsets], 7: [OffsetRange(30, 39)]}
    for number, ranges in found.items():
        assert list(ranges) == list(control.gaps.ranges(SourcePartition("a", "t", number)))
    assert control.gaps.few_ranges("a", "t", most=7) is None, "there may be more"
    assert control.gaps.few_ranges("a", "t3", most=1) == {}


def test_foreign_keys_are_not_claims(objects: Joining) -> None:
    for name in ("t", "t@id", "t@a@b", "t@", "t t", "tt@id"):
        objects.put_new(f"data/a/_control/v1/places/{name}", io.BytesIO(b"{}"), 2)
    control = ControlStore(objects, "data")
    assert control.claims.later_ids("a", "t") == ["id"]
    assert list(map(str, control.claims.incarnations("a"))) == ["t", "t@id", "tt@id"]


def test_a_gap_that_is_always_absent_is_an_error_in_the_end(objects: Joining) -> None:
    objects.gone = 1_000
    with pytest.raises(SegmentNotFound):
        ControlStore(objects, "data").gaps.of(SOURCE)
    assert objects.opened == LIST_ATTEMPTS


def test_only_gaps_that_adjoin_others_are_read(objects: Joining) -> None:
    control = ControlStore(objects, "data")
    assert list(control.gaps.adjoining(SOURCE, "lost")) == []
    assert objects.opened == 0, "the listing says that it adjoins none"
    next_one = replace(GAP, offsets=OffsetRange(10, 14))
    control.gaps.record(next_one)
    control.gaps.record(replace(GAP, offsets=OffsetRange(30, 39)))
    assert [list(group) for group in control.gaps.adjoining(SOURCE, "lost")] == [[GAP, next_one]]
    assert objects.opened == 2


def test_gaps_that_adjoin_only_gaps_with_another_reason_are_not_joined(objects: Joining) -> None:
    control = ControlStore(objects, "data")
    control.gaps.record(replace(GAP, offsets=OffsetRange(10, 14), reason="retained"))
    assert [list(group) for group in control.gaps.adjoining(SOURCE, "lost")] == []


ACCEPTED = replace(GAP, reason="the old records are the truth", is_accepted=True)


def test_what_was_recorded_for_another_reason_can_be_accepted(objects: Joining) -> None:
    control = ControlStore(objects, "data")
    control.gaps.record(ACCEPTED)
    assert control.gaps.of(SOURCE) == [ACCEPTED]
    assert control.gaps.ranges(SOURCE) == [GAP.offsets], "one gap, however many records it has"
    assert control.gaps.sources("a") == [SOURCE]
    keys = [item.key for item in objects.list("")]
    control.gaps.record(replace(ACCEPTED, reason="again"))
    control.gaps.record(GAP)
    assert control.gaps.of(SOURCE) == [ACCEPTED]
    assert [item.key for item in objects.list("")] == keys


def test_a_gap_that_was_accepted_first_keeps_its_one_record() -> None:
    objects = MemoryObjectStore()
    control = ControlStore(objects, "data")
    for gap in (ACCEPTED, GAP, replace(ACCEPTED, reason="again")):
        control.gaps.record(gap)
    assert control.gaps.of(SOURCE) == [ACCEPTED]
    assert len(list(objects.list(""))) == 1


def test_an_accepted_gap_is_not_joined_with_others_and_outlives_its_first_record(objects: Joining) -> None:
    control = ControlStore(objects, "data")
    next_one, last = (replace(GAP, offsets=OffsetRange(start, start + 4)) for start in (10, 15))
    control.gaps.record(next_one)
    control.gaps.record(last)
    control.gaps.record(ACCEPTED)
    assert [list(group) for group in control.gaps.adjoining(SOURCE, "lost")] == [[next_one, last]]
    control.gaps.remove([GAP])  # by a `gc` that listed it before it was accepted
    assert control.gaps.of(SOURCE) == [ACCEPTED, next_one, last]


def test_a_gap_joined_while_it_is_accepted_is_accepted(objects: Joining) -> None:
    objects.gone = 1
    control = ControlStore(objects, "data")
    control.gaps.record(ACCEPTED)
    assert control.gaps.of(SOURCE) == [ACCEPTED]
