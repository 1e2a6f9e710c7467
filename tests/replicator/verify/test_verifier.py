"""Verification of an archive that changes meanwhile, that contradicts itself, or of which nothing is selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.control.fork import LogFork
from formats.control.gap import RETENTION, RecordedGap
from formats.errors import DataError
from formats.int_range import IntRange
from formats.records.lineage_header import with_lineage
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.contracts.cluster import TopicPartition
from replicator.verify.proven import Proven
from replicator.verify.report import check, entry_of, line_of, report
from replicator.verify.verifier import ArchiveVerdict, SourceVerdict, Verifier
from tests.ingress.world import FORMAT, REGION, World, records

SOURCE = SourcePartition(REGION, "t", 0)
MONTH = timedelta(days=30)


def verifier(world: World) -> Verifier:
    return Verifier(stored=Archive(world.store, world.control, FORMAT), clock=world.clock)


def verify(world: World, proven: dict[Segment, Proven] | None = None) -> ArchiveVerdict:
    return verifier(world).archive(SOURCE, proven or {}, read_again_after=MONTH)


def test_segments_that_are_merged_meanwhile_are_not_missing() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]

    def merge(_: str) -> None:
        world.put(0, 29, level=1)
        world.remove(*small, notify=False)

    world.objects.before["open"] = merge
    verdict = verify(world)
    assert (verdict.is_whole, verdict.offsets, verdict.objects) == (True, OffsetRange(0, 29), 1)


def test_segments_that_retention_removes_meanwhile_are_a_recorded_gap() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]

    def expire(_: str) -> None:
        world.record_gap(10, 19)
        world.remove(small[1], notify=False)

    world.objects.before["open"] = expire
    verdict = verify(world)
    assert (verdict.is_whole, len(verdict.recorded)) == (True, 1)


def test_what_egress_reported_as_archived_is_missing_without_a_later_segment() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]

    def missing(reported_end: int) -> Sequence[OffsetRange]:
        return verifier(world).archive(SOURCE, {}, read_again_after=MONTH, reported_end=reported_end).missing

    assert (missing(0), missing(25), missing(30), missing(34)) == ([], [], [], [OffsetRange(30, 33)])
    world.record_gap(30, 31)
    assert missing(34) == [OffsetRange(32, 33)]
    world.remove(*small[1:], notify=False)
    assert missing(30) == [OffsetRange(10, 29)]
    world.remove(small[0], notify=False)
    assert missing(30) == [OffsetRange(0, 29)]
    begin = ArchiveBegin(offset=20, reason="start policy", recorded_at=world.clock.at)
    world.control.begins.record(SOURCE, begin)
    assert (missing(20), missing(30)) == ((), [OffsetRange(20, 29)])


def test_segments_that_stay_absent_are_missing() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]
    world.remove(small[1], notify=False)
    assert verify(world).missing == [OffsetRange(10, 19)]


def test_contradicting_segments_are_reported_in_every_run() -> None:
    world = World()
    world.put(0, 9)
    world.put(0, 9, level=1, value=b"another")
    other = world.put(10, 19)
    first = verify(world)
    assert (len(first.disagreeing), set(first.read)) == (1, {other})
    assert len(verify(world, dict(first.read)).disagreeing) == 1
    assert world.store.stat(other) is not None


def test_a_proven_segment_is_compared_with_a_new_one() -> None:
    world = World()
    world.put(0, 9)
    before = verify(world)
    world.put(0, 9, level=1, value=b"another")
    after = verify(world, dict(before.read))
    assert (after.skipped, len(after.disagreeing), len(after.unsettled)) == (1, 1, 2)


def test_a_topic_that_is_not_there_is_not_equal() -> None:
    world = World()
    world.put(0, 9)
    topic = TopicPartition("t", 0)
    verdict = verifier(world).compare_with_source(
        SOURCE, topic, None, iter(()), source_compacted=False, unreadable="not there"
    )
    assert not verdict.is_equal
    assert verifier(world).compare_with_source(SOURCE, topic, None, iter(()), source_compacted=False).is_equal


class Became(Enum):
    """The state of ten archived offsets."""

    KEPT = "kept"
    REMOVED = "removed by retention"
    PUT_BACK = "removed by retention, and put back"
    GIVEN_UP = "given up by an operator"
    LOST = "lost at the source, as egress wrote down"
    GONE = "gone, for an unknown reason"


TEN = 10
COSTS_NOTHING = {Became.KEPT, Became.REMOVED, Became.PUT_BACK, Became.GIVEN_UP}


@given(blocks=st.lists(st.sampled_from(Became), min_size=1, max_size=12), low=st.integers(0, 60))
@settings(deadline=None)
def test_compared_with_its_topic_only_decided_gaps_are_passed_over(blocks: list[Became], low: int) -> None:
    """The topic still holds everything from `low` on, as when `gc` removes segments before the topic's retention
    does."""
    world, before = World(), World()
    for number, became in enumerate(blocks):
        start, end = number * TEN, number * TEN + TEN - 1
        before.put(start, end)
        if became in (Became.KEPT, Became.PUT_BACK):
            world.put(start, end)
        if became not in (Became.KEPT, Became.GONE):
            gap = RecordedGap(
                source=SOURCE,
                offsets=OffsetRange(start, end),
                reason="test" if became in (Became.LOST, Became.GIVEN_UP) else RETENTION,
                low=0,
                high=end + 1,
                recorded_at=world.clock.at,
                is_accepted=became is Became.GIVEN_UP,
            )
            world.control.gaps.record(gap)
    stored = [n for n, became in enumerate(blocks) if became in (Became.KEPT, Became.PUT_BACK)]
    held = None
    if stored and max(low, stored[0] * TEN) <= stored[-1] * TEN + TEN - 1:
        held = OffsetRange(max(low, stored[0] * TEN), stored[-1] * TEN + TEN - 1)
    records = verifier(before).records(SOURCE, RecordFilter(), held) if held else iter(())
    verdict = verifier(world).compare_with_source(SOURCE, TopicPartition("t", 0), held, records, source_compacted=False)
    inside = [b for n, b in enumerate(blocks) if held and held.overlaps(OffsetRange(n * TEN, n * TEN + TEN - 1))]
    assert verdict.is_equal == (set(inside) <= COSTS_NOTHING)
    assert len(verdict.recorded) == sum(b in (Became.REMOVED, Became.PUT_BACK, Became.GIVEN_UP) for b in inside)
    entry = entry_of(verdict)
    assert "48,960 records equal" in line_of({**entry, "records": 48_960})
    line = line_of(entry)
    assert line.startswith("ok  " if verdict.is_equal else "BAD ")
    assert ("recorded gap" in line) == bool(verdict.recorded)


# --- beside the topic it came from ------------------------------------------------------------------------------------

ARCHIVED = [o for o in range(10) if o != 5]


def beside(*offsets: int, source_compacted: bool, value: bytes = b"") -> SourceVerdict:
    """Compare an archive of ARCHIVED with a topic that holds `offsets`."""
    world = World()
    world.put(0, 9, holes=(5,))
    topic = [records(offsets, value=value)] if offsets else []
    held = OffsetRange(0, 9)
    return verifier(world).compare_with_source(
        SOURCE, TopicPartition("t", 0), held, iter(topic), source_compacted=source_compacted
    )


@pytest.mark.parametrize("source_compacted", [False, True])
def test_a_topic_that_holds_the_same_is_equal(source_compacted: bool) -> None:
    verdict = beside(*ARCHIVED, source_compacted=source_compacted)
    assert (verdict.is_equal, verdict.comparison.both) == (True, len(ARCHIVED))


@pytest.mark.parametrize("source_compacted", [False, True])
def test_offsets_that_neither_has_are_missing(source_compacted: bool) -> None:
    """The archive may have lost a record there that compaction has removed from the topic since."""
    world = World()
    world.put(0, 9)
    world.put(20, 29)
    held, topic = [*range(10), *range(20, 30)], TopicPartition("t", 0)
    verdict = verifier(world).compare_with_source(
        SOURCE, topic, OffsetRange(0, 29), iter([records(held)]), source_compacted=source_compacted
    )
    assert not verdict.is_equal
    assert "missing: [10,19]" in line_of(entry_of(verdict))


@pytest.mark.parametrize("source_compacted", [False, True])
def test_a_record_that_only_the_topic_has_is_lost_under_any_policy(source_compacted: bool) -> None:
    verdict = beside(*range(10), source_compacted=source_compacted)
    entry = entry_of(verdict)
    assert (entry["equal"], entry["only_in_source"], entry["only_in_archive"]) == (False, 1, 0)


@pytest.mark.parametrize("source_compacted", [False, True])
def test_a_record_that_only_the_archive_has_is_legal_in_a_compacted_topic_alone(source_compacted: bool) -> None:
    verdict = beside(*ARCHIVED[1:], source_compacted=source_compacted)
    entry = entry_of(verdict)
    assert (entry["equal"], entry["only_in_source"], entry["only_in_archive"]) == (source_compacted, 0, 1)


def test_a_record_that_differs_is_not_equal() -> None:
    verdict = beside(*ARCHIVED, source_compacted=True, value=b"another")
    assert (verdict.is_equal, verdict.comparison.offset) == (False, 0)


@pytest.mark.parametrize(
    ("function", "delivered", "equal"),
    [
        ("masked_even", [(0, b"***"), (2, b"***"), (4, b"***")], True),
        ("masked_even", [(0, b"***"), (2, b""), (4, b"***")], False),
        ("masked_even", [(0, b"***"), (2, b"***")], False),
        ("only_even", [(0, b""), (2, b""), (4, b"")], True),
        ("nothing", [], True),
        ("nothing", [(0, b"")], False),
        ("", [(n, b"") for n in range(6)], True),
        ("", [(0, b""), (2, b""), (4, b"")], False),
    ],
)
def test_a_topic_is_compared_with_what_the_transform_makes_of_the_archive(
    function: str, delivered: list[tuple[int, bytes]], equal: bool
) -> None:
    world = World()
    world.put(0, 5)
    name = function and f"tests.formats.records.user_transforms:{function}"
    theirs = iter([records([offset], value=value) for offset, value in delivered])
    verdict = verifier(world).compare_with_target(SOURCE, TopicPartition("copy", 0), RecordFilter(), theirs, name)
    assert verdict.is_equal is equal
    entry = entry_of(verdict)
    assert entry["transform"] == name
    assert (f"after transform {name}" in line_of(entry)) is bool(name)


@pytest.mark.parametrize(
    ("header", "value", "equal"),
    [("from", b"", True), ("from", b"another", False), ("other", b"", False), ("", b"", False)],
)
def test_a_topic_is_compared_without_the_lineage_header(header: str, value: bytes, equal: bool) -> None:
    """Also where some records were delivered before it was set."""
    world = World()
    world.put(0, 5)
    with_header = with_lineage(records(range(3, 6), value=value), "from", "c", SOURCE)
    verdict = verifier(world).compare_with_target(
        SOURCE,
        TopicPartition("copy", 0),
        RecordFilter(),
        iter([records(range(3)), with_header]),
        without_header=header,
    )
    assert verdict.is_equal is equal
    entry = entry_of(verdict)
    assert entry["without_header"] == header
    assert (f"without header {header}" in line_of(entry)) is bool(header)


def test_a_transform_that_fails_while_it_is_compared_makes_it_unequal() -> None:
    world = World()
    world.put(0, 9)
    name = "tests.formats.records.user_transforms:fails_for_7"
    verdict = verifier(world).compare_with_target(SOURCE, TopicPartition("copy", 0), RecordFilter(), iter(()), name)
    assert not verdict.is_equal
    assert "ValueError: unlucky" in verdict.unreadable
    line = line_of(entry_of(verdict))
    assert "are not compared: " in line
    assert "records equal" not in line


# --- what was proven before -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "read"), [(MONTH - timedelta(seconds=1), 0), (MONTH, 1)])
def test_an_object_is_read_again_from_the_given_age_on(age: timedelta, read: int) -> None:
    world = World()
    world.put(0, 9)
    before = verify(world)
    world.clock.advance(age.total_seconds())
    after = verify(world, dict(before.read))
    assert (len(after.read), after.skipped) == (read, 1 - read)


def test_an_object_of_any_age_is_skipped_without_an_age() -> None:
    world = World()
    world.put(0, 9)
    before = verify(world)
    world.clock.advance(10 * MONTH.total_seconds())
    assert verifier(world).archive(SOURCE, dict(before.read), read_again_after=None).skipped == 1


@pytest.mark.parametrize("same_size", [False, True])
def test_another_object_at_a_proven_key_is_read(same_size: bool) -> None:
    """The same size at a later time, or another size at the same time: each alone means another object."""
    world = World()
    segment = world.put(0, 9)
    [info] = world.peek.list(SOURCE)
    before = verify(world)
    if same_size:
        world.clock.advance(1)
    world.damage(segment, b"x" * (info.size_bytes if same_size else info.size_bytes - 1))
    after = verify(world, dict(before.read))
    assert (after.skipped, list(after.corrupt)) == (0, [segment])


@pytest.mark.parametrize(("entries", "equal"), [([], False), ([{"equal": True}], True), ([{"equal": False}], False)])
def test_a_report_without_entries_is_not_equal(entries: list[dict[str, bool]], equal: bool) -> None:
    assert report(entries, World().clock.at, program="test")["equal"] == equal


def test_an_archive_whose_first_segments_are_missing() -> None:
    """The start of the archive is recorded, so offsets before its first segment are known to be missing."""
    world = World()
    world.put(20, 29)
    assert verify(world).is_whole, "nothing says where it begins: an ancestor's"
    control = ControlStore(world.objects, "data")
    control.begins.record(SOURCE, ArchiveBegin(offset=5, reason="start policy", recorded_at=world.clock.now()))
    verdict = verify(world)
    assert (verdict.missing, verdict.is_whole) == ([OffsetRange(5, 19)], False)
    world.record_gap(5, 19)
    assert verify(world).is_whole


def test_a_fork_is_named_until_it_is_resolved() -> None:
    world = World()
    world.put(0, 9)
    control = ControlStore(world.objects, "data")
    fork = LogFork(
        source=SOURCE, next_offset=10, leader_epoch=0, end_offset=5, found_at=world.clock.now(), evidence="the evidence"
    )
    control.forks.record(fork)
    verdict = verify(world)
    assert (verdict.forks, verdict.is_whole) == ([fork], False)
    entry = entry_of(verdict)
    assert not entry["equal"]
    line = line_of(entry)
    assert line.startswith("BAD archive")
    for words in ("the evidence", "replicator adopt --fork t", f"replicator gaps accept {SOURCE} 5-9"):
        assert words in line
    claim = TopicClaim(topic_id="id", cluster_id="c", number=0, claimed_at=world.clock.now())
    control.claims.record(REGION, "t", claim)
    control.claims.record(REGION, "t@other", replace(claim, topic_id="other", number=1))
    assert not verify(world).is_whole
    control.claims.record(REGION, "t@id-fork1", replace(claim, number=2, fork=1, forked_from="t"))
    assert verify(world).is_whole


def test_a_fork_that_was_accepted_is_a_recorded_gap() -> None:
    world = World()
    world.put(0, 9)
    control = ControlStore(world.objects, "data")
    now = world.clock.now()
    fork = LogFork(source=SOURCE, next_offset=10, leader_epoch=0, end_offset=5, found_at=now)
    control.forks.record(fork)
    gap = RecordedGap(
        source=SOURCE, offsets=fork.contested, reason="x", low=0, high=9, recorded_at=now, is_accepted=True
    )
    control.gaps.record(gap)
    verdict = verify(world)
    assert (verdict.is_whole, list(verdict.recorded)) == (True, [gap])


def written(*equal: bool) -> dict[str, Any]:
    entries = [{"source": f"a/t/{n}", "equal": one} for n, one in enumerate(equal)]
    return dict(report(entries, World().clock.at, program="test", key=b"key"))


def test_a_report_is_equal_if_every_entry_is() -> None:
    for equal in ([True], [True, True], [True, False], [False, True], [False]):
        signed = written(*equal)
        assert signed["equal"] == all(equal)
        check(signed, b"key")


@pytest.mark.parametrize(
    "forged",
    [
        {"equal": True},
        {"chain": "0" * 64},
        {"program": "another"},
        {"entries": []},
        {"signature": "0" * 64},
        {"signature": None},
        {"v": 0},
        {"entries": None},
    ],
    ids=str,
)
def test_a_report_that_was_changed_is_refused(forged: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        check(written(True, False) | forged, b"key")


def test_the_records_of_an_archive_begin_with_the_first() -> None:
    world = World()
    world.put(0, 9)
    for low, high in ((0, 9), (0, 3), (4, 9), (-5, 2)):
        batches = verifier(world).records(SOURCE, RecordFilter(offsets=IntRange(low, high)))
        found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert found == list(range(max(low, 0), high + 1))
