"""The rules of a restore plan: what is read, what is missing, and its conflicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.footer import SegmentFooter, SegmentOrigin
from formats.incarnation import Incarnation
from formats.int_range import ANY_OFFSET, IntRange
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.contracts.cluster import TopicFacts, TopicPartition, Watermarks
from infra.kafka.client.topic_configs import NO_LIMIT
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.conflicts import (
    ACCEPTED,
    BATCH_OVERHEAD_BYTES,
    Conflict,
    ConflictKind,
    accepted,
    against_creation,
    against_gaps,
    against_settings,
    against_topic,
)
from replicator.restore.partition_plan import PartitionPlan, plan_partition
from replicator.restore.plan import BYTES_PER_SECOND, RECORDS_PER_SECOND, START, RestorePlan, TopicPlan
from tests.examples import property_examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
SOURCE, TARGET = SourcePartition("a", "t", 0), TopicPartition("copy", 0)
END = 30  # of the offsets that properties are tried with


def info(start: int, end: int, level: int = 0, size_bytes: int = 1) -> SegmentInfo:
    return SegmentInfo(Segment(SOURCE, level, OffsetRange(start, end)), size_bytes, NOW)


def planned(
    infos: Iterable[SegmentInfo],
    *,
    recorded: Iterable[OffsetRange] = (),
    wanted: IntRange = ANY_OFFSET,
    checkpoint: Checkpoint | None = None,
    partition: int = 0,
) -> PartitionPlan:
    return plan_partition(
        source=SourcePartition("a", "t", partition),
        target=TopicPartition("copy", partition),
        infos=infos,
        recorded=recorded,
        wanted=wanted,
        listed_at=NOW,
        checkpoint=checkpoint,
    )


def at(next_offset: int, topic_id: str = "id") -> Checkpoint:
    return Checkpoint(next_offset, topic_id, NOW)


# --- what is read -----------------------------------------------------------------------------------------------------

_range = st.builds(lambda a, b: OffsetRange(min(a, b), max(a, b)), st.integers(0, END - 1), st.integers(0, END - 1))
_infos = st.lists(
    st.builds(lambda r, level: info(r.start, r.end, level), _range, st.integers(0, 2)), max_size=8, unique=True
)
_wanted = st.just(ANY_OFFSET) | st.builds(IntRange, st.integers(0, END + 5), st.integers(0, END + 5))


def offsets_of(ranges: Iterable[OffsetRange]) -> list[int]:
    return [offset for r in ranges for offset in range(r.start, r.end + 1)]


@property_examples()
@given(infos=_infos, recorded=st.lists(_range, max_size=4), wanted=_wanted)
def test_plan_equals_brute_force(infos: list[SegmentInfo], recorded: list[OffsetRange], wanted: IntRange) -> None:
    plan = planned(iter(infos), recorded=iter(recorded), wanted=wanted)
    stored = {offset for i in infos for offset in offsets_of([i.segment.offsets])}
    within = {o for o in range(END) if stored and min(stored) <= o <= max(stored) and wanted.low <= o <= wanted.high}
    assert (plan.offsets is None) == (not within)
    assert set(offsets_of([plan.offsets] if plan.offsets else [])) == within

    read, position = list[int](), min(within, default=0)
    for chosen in plan.infos:  # as a reader goes through them
        assert position in chosen.segment.offsets or not stored & set(range(position, chosen.segment.offsets.start))
        read += [o for o in offsets_of([chosen.segment.offsets]) if o >= position and o in within]
        position = max(position, chosen.segment.offsets.next_offset)
    assert read == sorted(within & stored), "each once, in order"

    explained = set(offsets_of(recorded))
    missing = offsets_of(plan.missing)
    assert missing == sorted(within - stored - explained), "neither stored nor recorded, between what is stored"
    in_the_way = [r for r in recorded if within and r.end >= wanted.low and r.start <= max(within)]
    assert list(plan.recorded) == in_the_way


@property_examples()
@given(infos=_infos, recorded=st.lists(_range, max_size=4), wanted=_wanted, seed=st.randoms())
def test_plan_is_the_same_for_the_same_listing(
    infos: list[SegmentInfo], recorded: list[OffsetRange], wanted: IntRange, seed: Random
) -> None:
    first = planned(infos, recorded=recorded, wanted=wanted)
    assert planned(infos, recorded=recorded, wanted=wanted) == first
    shuffled = infos[:]
    seed.shuffle(shuffled)
    again = planned(shuffled, recorded=recorded, wanted=wanted)
    assert (again.offsets, again.infos, again.missing) == (first.offsets, first.infos, first.missing)


def test_the_newest_segment_is_the_one_with_the_last_offsets() -> None:
    infos = [info(10, 19), info(20, 29), info(0, 9)]
    assert planned(infos).newest == infos[1]
    assert planned(infos, wanted=IntRange(0, 9)).newest == infos[1], "selected or not"
    assert planned([]).newest is None


def test_offsets_before_the_archive_are_no_gap() -> None:
    plan = planned([info(100, 199)], recorded=[OffsetRange(0, 49)])
    assert (plan.offsets, plan.missing) == (OffsetRange(100, 199), [])
    assert plan.recorded == [OffsetRange(0, 49)], "but it is reported"


def test_a_range_that_ends_in_a_gap_misses_its_end() -> None:
    plan = planned([info(0, 9), info(20, 29)], wanted=IntRange(0, 14))
    assert (plan.offsets, plan.missing) == (OffsetRange(0, 14), [OffsetRange(10, 14)])


def test_an_empty_archive_leaves_nothing_to_do() -> None:
    plan = planned([])
    assert (plan.offsets, plan.next_offset, plan.is_done, plan.size_bytes) == (None, None, True, 0)


def test_a_range_beyond_the_archive_begins_at_its_first_offset() -> None:
    plan = planned([info(0, 9)], wanted=IntRange(100))
    assert (plan.offsets, plan.next_offset, plan.is_done) == (None, 100, True)


def test_the_rest_begins_at_the_checkpoint() -> None:
    infos = [info(0, 9, size_bytes=1), info(10, 19, size_bytes=10), info(20, 29, size_bytes=100)]
    plan = planned(infos, checkpoint=at(15))
    assert (plan.next_offset, plan.size_bytes, plan.left) == (15, 110, infos[1:])
    assert not plan.is_done
    assert planned(infos, checkpoint=at(30)).is_done


# --- conflicts -------------------------------------------------------------------------------------------------------


def kinds(conflicts: Iterable[Conflict]) -> list[ConflictKind]:
    return [conflict.kind for conflict in conflicts]


def why(conflicts: Iterable[Conflict]) -> str:
    [conflict] = conflicts
    return conflict.reason


GAPPY = [info(0, 9), info(20, 29)]


def test_unrecorded_gaps_are_a_conflict() -> None:
    assert not kinds(against_gaps([planned(GAPPY, recorded=[OffsetRange(10, 19)]), planned([info(0, 9)])]))
    conflicts = list(against_gaps([planned(GAPPY)]))
    assert kinds(conflicts) == [ConflictKind.MISSING]
    assert "a/t/0 [10,19]" in why(conflicts)
    assert "search for them in a copy of the bucket" in why(conflicts)


def test_many_gaps_are_counted() -> None:
    plan = planned([info(n, n) for n in range(0, 20, 2)])
    assert len(plan.missing) == 9
    assert "and 6 more" in why(against_gaps([plan]))


FACTS = TopicFacts("copy", "id", 2)
EMPTY = {TopicPartition("copy", p): Watermarks(7, 7) for p in range(2)}
FILLED = {**EMPTY, TopicPartition("copy", 1): Watermarks(7, 8)}


def test_an_empty_destination_is_no_conflict() -> None:
    plans = [planned([info(0, 9)], partition=p) for p in range(2)]
    assert not list(against_topic(FACTS, EMPTY, plans, False))


def test_foreign_data_is_a_conflict() -> None:
    conflicts = list(against_topic(FACTS, FILLED, [planned([info(0, 9)])], False))
    assert kinds(conflicts) == [ConflictKind.FOREIGN_DATA]
    assert "in partition 1:" in why(conflicts)
    assert "--rename" in why(conflicts)
    assert not list(against_topic(FACTS, FILLED, [planned([info(0, 9)])], True)), "its own is none"


def test_many_filled_partitions_are_counted() -> None:
    marks = {TopicPartition("copy", p): Watermarks(0, 1) for p in range(7)}
    assert "partitions 0, 1, 2, 3, 4 and 2 more" in why(against_topic(TopicFacts("copy", "id", 7), marks, [], False))


def test_another_incarnation_of_the_destination_is_a_conflict() -> None:
    conflicts = list(against_topic(FACTS, FILLED, [planned([info(0, 9)], checkpoint=at(5, "other"))], False))
    assert kinds(conflicts) == [ConflictKind.OTHER_TARGET]
    assert "it was other" in why(conflicts)
    assert "--id" in why(conflicts)


@pytest.mark.parametrize(("recorded_id", "topic_id"), [("id", "id"), ("", "id"), ("other", "")])
def test_the_same_or_an_unknown_topic_id_is_no_conflict(recorded_id: str, topic_id: str) -> None:
    plan = planned([info(0, 9)], checkpoint=at(5, recorded_id))
    assert not list(against_topic(replace(FACTS, topic_id=topic_id), FILLED, [plan], True))


def test_fewer_partitions_are_a_conflict() -> None:
    plans = [planned([info(0, 9)], partition=p) for p in (1, 2, 4)]
    conflicts = list(against_topic(FACTS, EMPTY, plans, False))
    assert kinds(conflicts) == [ConflictKind.FEWER_PARTITIONS]
    assert "copy has 2 partitions" in why(conflicts)
    assert "at least 5" in why(conflicts)


def test_fewer_partitions_are_not_created_either() -> None:
    plans = [planned([info(0, 9)], partition=p) for p in (1, 2)]
    assert not list(against_creation("copy", 3, plans))
    conflicts = list(against_creation("copy", 2, plans))
    assert kinds(conflicts) == [ConflictKind.FEWER_PARTITIONS]
    assert "--partition-count 3" in why(conflicts)


def test_a_destination_deleted_meanwhile_is_a_conflict() -> None:
    conflicts = list(against_creation("copy", 1, [planned([info(0, 9)], checkpoint=at(5))]))
    assert kinds(conflicts) == [ConflictKind.OTHER_TARGET]
    assert "--id" in why(conflicts)


def footer(*, largest: int = 100, stamps: tuple[int, int] | None = (NOW_MS, NOW_MS)) -> SegmentFooter:
    return SegmentFooter(
        segment=info(0, 9).segment,
        origin=SegmentOrigin(created_at=NOW, writer="test"),
        count=10,
        first_offset=0,
        last_offset=9,
        raw_bytes=1000,
        largest_record_bytes=largest,
        min_timestamp_ms=stamps[0] if stamps else None,
        max_timestamp_ms=stamps[1] if stamps else None,
        digest=None,
    )


def against(
    configs: Mapping[str, str], *footers: SegmentFooter, limits: tuple[int, int] = (NO_LIMIT, NO_LIMIT)
) -> list[Conflict]:
    return list(against_settings("copy", configs, limits, footers, NOW))


def test_configs_that_accept_everything_are_no_conflict() -> None:
    assert not against({}, footer())
    assert not against({"max.message.bytes": "1000"})
    assert not against({"retention.ms": "1"}, footer(stamps=None))


@pytest.mark.parametrize(("limit", "is_conflict"), [(100 + BATCH_OVERHEAD_BYTES, 0), (99 + BATCH_OVERHEAD_BYTES, 1)])
def test_large_records_are_a_conflict(limit: int, is_conflict: int) -> None:
    conflicts = against({"max.message.bytes": str(limit)}, footer(largest=5), footer(largest=100))
    assert kinds(conflicts) == [ConflictKind.LARGE_RECORDS] * is_conflict
    assert all("has 100 bytes" in c.reason and "raise it" in c.reason for c in conflicts)


def test_append_time_is_a_conflict_and_timestamps_are_not_checked() -> None:
    configs = {"message.timestamp.type": "LogAppendTime", "retention.ms": "1"}
    conflicts = against(configs, footer(stamps=(0, 0)), limits=(0, 0))
    assert kinds(conflicts) == [ConflictKind.TIMESTAMPS]
    assert "set it to CreateTime" in why(conflicts)


@pytest.mark.parametrize(("oldest", "is_conflict"), [(0, 1), (1, 0), (-1, 0)])
def test_timestamp_0_is_a_conflict_whatever_the_topic_takes(oldest: int, is_conflict: int) -> None:
    """Below 0 it is not known whether a record has 0: it stops there then."""
    conflicts = against({}, footer(stamps=(oldest, NOW_MS)))
    assert kinds(conflicts) == [ConflictKind.TIMESTAMPS] * is_conflict
    assert all("--map" in c.reason for c in conflicts)


@pytest.mark.parametrize(
    ("stamps", "is_conflict"),
    [
        ((NOW_MS - 100, NOW_MS + 10), False),
        ((NOW_MS - 101, NOW_MS), True),
        ((NOW_MS, NOW_MS + 11), True),
    ],
)
def test_timestamps_that_the_topic_rejects_are_a_conflict(stamps: tuple[int, int], is_conflict: bool) -> None:
    conflicts = against({}, footer(stamps=None), footer(stamps=stamps), limits=(100, 10))
    assert kinds(conflicts) == [ConflictKind.TIMESTAMPS] * is_conflict
    assert all("raise its message.timestamp.before.max.ms" in c.reason for c in conflicts)


@pytest.mark.parametrize(
    ("configs", "is_conflict"),
    [
        ({"retention.ms": "1000"}, True),
        ({"retention.ms": "1001"}, False),
        ({"retention.ms": "-1"}, False),
    ],
)
def test_records_that_the_broker_would_delete_are_a_conflict(configs: Mapping[str, str], is_conflict: bool) -> None:
    conflicts = against(configs, footer(stamps=(NOW_MS - 1001, NOW_MS)))
    assert kinds(conflicts) == [ConflictKind.RETENTION] * is_conflict
    assert all("-1" in c.reason for c in conflicts)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("delete", [ConflictKind.RETENTION]),
        ("compact", [ConflictKind.COMPACTED]),
        ("compact,delete", [ConflictKind.COMPACTED, ConflictKind.RETENTION]),
    ],
)
def test_a_compacted_destination_is_a_conflict(policy: str, wanted: list[ConflictKind]) -> None:
    configs = {"retention.ms": "1000", "cleanup.policy": policy}
    assert kinds(against(configs, footer(stamps=(NOW_MS - 1001, NOW_MS)))) == wanted


# --- what is accepted -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(found=st.sets(st.sampled_from(ConflictKind)), accept=st.sets(st.sampled_from(ConflictKind)))
def test_only_named_and_acceptable_conflicts_are_accepted(
    found: set[ConflictKind], accept: Collection[ConflictKind]
) -> None:
    answer = accepted([Conflict(kind=what, reason="why") for what in sorted(found)], accept)
    assert kinds(answer) == sorted(found)
    assert {c.kind for c in answer if c.accepted} == found & set(accept) & set(ACCEPTED)


def topic_plan(*conflicts: Conflict, partitions: Sequence[PartitionPlan] = ()) -> TopicPlan:
    return TopicPlan(
        incarnation=ArchivedIncarnation(incarnation=Incarnation("t")),
        destination="copy",
        facts=None,
        partition_count=1,
        partitions=partitions,
        conflicts=conflicts,
    )


@pytest.mark.parametrize("what", ConflictKind)
def test_a_plan_is_refused_until_every_conflict_is_accepted(what: ConflictKind) -> None:
    against_it = Conflict(kind=what, reason="why")
    for_it = replace(against_it, accepted=True)
    plan = RestorePlan(id="x", checkpoint_topic="x", topics=[topic_plan(), topic_plan(for_it)])
    assert not plan.refused
    assert replace(plan, topics=[topic_plan(for_it), topic_plan(for_it, against_it)]).refused
    assert replace(plan, conflicts=[against_it]).refused


def test_a_plan_reports_size_and_duration() -> None:
    parts = [planned([info(0, 9, size_bytes=60_000_000)]), planned([info(0, 9, size_bytes=30_000_000)], partition=1)]
    topic = replace(topic_plan(partitions=parts), compression_ratio=3.0)
    plan = RestorePlan(id="x", checkpoint_topic="x", topics=[topic])
    assert (plan.objects, plan.size_bytes) == (2, 90_000_000)
    assert plan.estimated_duration(None) == START + timedelta(seconds=3 * 90_000_000 / BYTES_PER_SECOND)
    assert plan.estimated_duration(1_000_000) == START + timedelta(seconds=270)
    small = [planned([info(0, 9 * RECORDS_PER_SECOND - 1, size_bytes=1)])]
    assert replace(plan, topics=[topic_plan(partitions=small)]).estimated_duration(1) == START + timedelta(seconds=9)
