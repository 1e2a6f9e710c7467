"""Merged segments hold exactly the records of their inputs; nothing is deleted without proof."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.planner import CleanPlan, CompactionPlan, MergePlan, plan_partition
from compaction.replicas import ReplicaCheck
from compaction.run import CompactionReport, CompactionStopped, JobSelection
from compaction.task_rows import PlanOutcome
from formats.footer import SegmentFooter
from formats.parquet.writer import ParquetFormat
from formats.records.digest import digest_of
from formats.segment import OffsetRange, Segment, SourcePartition, format_key, parse_key
from infra.archive.segments import SegmentStore
from infra.contracts.deployment import ReplicationRule
from infra.contracts.storage import ObjectInfo
from infra.runtime import log_fields
from infra.runtime.lifecycle import Stop
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import CompactionJob
from tests.compaction.archive import PREFIX, T0, Archive, job
from tests.fakes.surroundings import FailingStore, HandClock
from tests.formats.json_lines import JsonLinesFormat
from tests.formats.sample_records import ORIGIN, SOURCE, batch_of, rows_of, sample_rows, segment

ALL = JobSelection()
ROWS = sample_rows(40, step=2)  # offsets 0, 2, 4 … 78


def three(archive: Archive) -> list[Segment]:
    names = [segment(0, 19), segment(20, 39), segment(40, 80)]
    for name in names:
        archive.write(name, [row for row in ROWS if row["offset"] in name.offsets])
    return names


def footer_of(archive: Archive, name: Segment) -> SegmentFooter:
    return archive.format.open(io.BytesIO(archive.bytes_of(name)), name).footer


def run(archive: Archive, copies: ReplicaCheck | None = None, **settings: Any) -> CompactionReport:
    return archive.compactor(copies).run(job(**settings), ALL)


@pytest.mark.parametrize("make", [ParquetFormat, JsonLinesFormat])
def test_merged_then_cleaned(make: Callable[[], Any]) -> None:
    archive = Archive(make())
    three(archive)
    report = run(archive)
    assert archive.segments() == [segment(0, 80, 1)]
    assert archive.read() == ROWS
    assert [(o.merged, o.deleted, o.error) for o in report.outcomes] == [(3, 0, ""), (0, 3, "")]
    assert report.outcomes[0].records == 40
    footer = footer_of(archive, segment(0, 80, 1))
    assert footer.digest == digest_of([batch_of(ROWS)])
    assert run(archive).outcomes == []


def test_each_event_has_its_own_counts(caplog: pytest.LogCaptureFixture) -> None:
    archive = Archive()
    names = three(archive)
    stored_bytes = sum(len(archive.bytes_of(name)) for name in names)
    with caplog.at_level(logging.INFO):
        run(archive)
    keys = (log_fields.COUNT, log_fields.RECORDS, log_fields.STORED_BYTES)
    logged = {r.message: [getattr(r, key) for key in keys] for r in caplog.records if r.message.startswith("segments_")}
    merged_bytes = len(archive.bytes_of(segment(0, 80, 1)))
    assert logged == {"segments_merged": [3, 40, merged_bytes], "segments_deleted": [3, 40, stored_bytes]}


def test_footer_facts_are_kept_or_combined() -> None:
    archive = Archive()
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    archive.write(segment(0, 9), ROWS[:5], created_at=late, last_leader_epoch=3, source_partition_count=4)
    archive.write(
        segment(10, 19),
        ROWS[5:10],
        created_at=early,
        last_leader_epoch=7,
        source_partition_count=6,
        isolation_level="read_uncommitted",
        topic_id="",
    )
    archive.write(segment(20, 29), [], catalog_generation=None, last_leader_epoch=None)
    run(archive)
    footer = footer_of(archive, segment(0, 29, 1))
    parts = [row["timestamp"] for row in ROWS[:10]]
    assert (footer.min_timestamp_ms, footer.max_timestamp_ms) == (min(parts), max(parts))
    assert (footer.count, footer.first_offset, footer.last_offset) == (10, 0, 18)
    assert footer.origin == replace(
        ORIGIN,
        created_at=ORIGIN.created_at,
        last_leader_epoch=7,
        source_partition_count=12,
        isolation_level="read_uncommitted",
        writer="tests",
        role="compact",
        created_by="example_app",  # the merge's, not its inputs'
    )


def test_the_leader_epoch_is_the_last_records() -> None:
    """It is lower than before after an accepted fork: the source is asked whether its log continues from there."""
    archive = Archive()
    archive.write(segment(0, 9), ROWS[:5], last_leader_epoch=7)
    archive.write(segment(10, 19), ROWS[5:10], last_leader_epoch=0)
    archive.write(segment(20, 29), [], last_leader_epoch=None)
    run(archive)
    assert footer_of(archive, segment(0, 29, 1)).origin.last_leader_epoch == 0


def test_two_incarnations_in_one_path_are_not_merged() -> None:
    archive = Archive()
    archive.write(segment(0, 9), ROWS[:5], topic_id="one")
    archive.write(segment(10, 19), ROWS[5:10], topic_id="two")
    [outcome] = run(archive).outcomes
    assert "topic ids are one and two" in outcome.error
    assert len(archive.segments()) == 2


def test_an_overlap_is_trimmed_and_its_loser_deleted() -> None:
    archive = Archive()
    archive.write(segment(0, 9), ROWS[:5])
    archive.write(segment(0, 29), ROWS[:15])
    archive.write(segment(10, 49), ROWS[5:25])
    run(archive)
    assert archive.segments() == [segment(0, 49, 1)]
    assert archive.read() == ROWS[:25]


def test_a_loser_that_holds_more_stays() -> None:
    """The log was compacted between two copies: what only one has is kept."""
    archive = Archive()
    archive.write(segment(0, 9), ROWS[:5])
    archive.write(segment(0, 29), [*ROWS[:2], *ROWS[3:15]])
    archive.write(segment(30, 49), ROWS[15:25])
    report = run(archive)
    assert archive.segments() == [segment(0, 9), segment(0, 49, 1)]
    for keeper in (segment(0, 29), segment(0, 49, 1)):
        [kept] = [outcome.kept for outcome in report.outcomes if outcome.kept and outcome.segment == str(keeper)]
        assert kept == {str(segment(0, 9)): f"1 of its records are not in {keeper}"}


def test_a_loser_with_another_record_stays() -> None:
    archive = Archive()
    other = [{**ROWS[0], "value": b"other"}, *ROWS[1:5]]
    archive.write(segment(0, 9), other)
    archive.write(segment(0, 29), ROWS[:15])
    archive.write(segment(30, 49), ROWS[15:25])
    report = run(archive)
    assert segment(0, 9) in archive.segments()
    assert "record 0 differs in" in report.outcomes[-1].kept[str(segment(0, 9))]


def test_a_thinner_loser_goes() -> None:
    archive = Archive()
    archive.write(segment(0, 9), ROWS[:3])
    archive.write(segment(0, 29), ROWS[:15])
    archive.write(segment(30, 49), ROWS[15:25])
    run(archive)
    assert archive.segments() == [segment(0, 49, 1)]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_corrupt_input_fails_its_plan_by_name_and_is_left_alone(at: int) -> None:
    archive = Archive()
    names = three(archive)
    damaged = bytearray(archive.bytes_of(names[at]))
    damaged[len(damaged) // 3] ^= 1
    archive.memory.replace(format_key(PREFIX, names[at]), bytes(damaged))
    report = run(archive)
    assert list(report.quarantined) == [str(names[at])]
    assert "with CRC" in report.quarantined[str(names[at])]
    # what adjoins without it was merged all the same
    left = set(archive.segments())
    assert names[at] in left
    assert left == {0: {names[0], segment(20, 80, 1)}, 1: set(names), 2: {segment(0, 39, 1), names[2]}}[at]
    assert set(archive.control.quarantine.all(SOURCE.region)) == {names[at]}
    again = run(archive)
    assert again.outcomes == []
    assert list(again.quarantined) == [str(names[at])]
    # another object at its key is another matter
    archive.memory.delete_many([format_key(PREFIX, names[at])])
    archive.time += timedelta(seconds=1)
    archive.write(names[at], [row for row in ROWS if row["offset"] in names[at].offsets])
    run(archive, max_level=3)
    assert archive.read() == ROWS
    assert len(archive.segments()) == 1


def test_a_corrupt_input_that_is_gone_meanwhile_is_not_quarantined() -> None:
    archive = Archive()
    names = three(archive)
    damaged = bytearray(archive.bytes_of(names[0]))
    damaged[len(damaged) // 3] ^= 1
    archive.memory.replace(format_key(PREFIX, names[0]), bytes(damaged))
    compactor = archive.compactor()

    def execute(plans: Sequence[CompactionPlan], job: CompactionJob) -> Sequence[PlanOutcome]:
        outcomes = compactor.execute(plans, job)
        archive.memory.delete_many([format_key(PREFIX, names[0])])
        return outcomes

    report = replace(compactor, execute=execute).run(job(), ALL)
    assert any(outcome.bad for outcome in report.outcomes)
    assert report.failed, "it did not merge, and may in the next run"
    assert (dict(report.quarantined), dict(archive.control.quarantine.all(SOURCE.region))) == ({}, {})


def test_an_object_that_was_repaired_meanwhile_is_not_quarantined() -> None:
    archive = Archive()
    names = three(archive)
    key = format_key(PREFIX, names[0])
    sound = archive.bytes_of(names[0])
    damaged = bytearray(sound)
    damaged[len(damaged) // 3] ^= 1
    archive.memory.replace(key, bytes(damaged))
    compactor = archive.compactor()

    def execute(plans: Sequence[CompactionPlan], job: CompactionJob) -> Sequence[PlanOutcome]:
        outcomes = compactor.execute(plans, job)
        archive.time += timedelta(seconds=1)
        archive.memory.replace(key, sound)
        return outcomes

    report = replace(compactor, execute=execute).run(job(), ALL)
    assert any(outcome.bad for outcome in report.outcomes)
    assert report.failed, "it did not merge, and may in the next run"
    assert (dict(report.quarantined), dict(archive.control.quarantine.all(SOURCE.region))) == ({}, {})


class _WholeSeconds(FailingStore):
    """Tells the time of an object as HTTP does, and in a listing more finely."""

    def stat(self, key: str) -> ObjectInfo | None:
        found = super().stat(key)
        return None if found is None else replace(found, modified_at=found.modified_at.replace(microsecond=0))


def test_times_of_a_listing_may_be_finer_than_those_of_an_object() -> None:
    clock = HandClock(T0 + timedelta(milliseconds=250))
    store = _WholeSeconds(clock)
    archive = Archive(around=lambda _: store)
    archive.memory = store.memory
    names = three(archive)
    damaged = bytearray(archive.bytes_of(names[0]))
    damaged[len(damaged) // 3] ^= 1
    archive.memory.replace(format_key(PREFIX, names[0]), bytes(damaged))
    archive.time = clock.at + timedelta(minutes=1)
    assert list(run(archive).quarantined) == [str(names[0])]
    assert run(archive).outcomes == [], "left alone from then on"


def test_a_corrupt_merged_segment_keeps_nothing() -> None:
    archive = Archive()
    names = three(archive)
    run(archive, delete=False)
    merged = segment(0, 80, 1)
    damaged = bytearray(archive.bytes_of(merged))
    damaged[40] ^= 1
    archive.memory.replace(format_key(PREFIX, merged), bytes(damaged))
    report = run(archive)
    assert set(names) <= set(archive.segments())
    assert str(merged) in report.quarantined


def test_a_merged_segment_that_lost_a_record_keeps_nothing_of_that_input() -> None:
    archive = Archive()
    names = three(archive)
    archive.write(segment(0, 80, 1), [*ROWS[:12], *ROWS[13:]])
    report = run(archive)
    assert archive.segments() == [names[1], segment(0, 80, 1)]
    assert report.outcomes[-1].kept == {str(names[1]): f"1 of its records are not in {segment(0, 80, 1)}"}


def test_grace_is_by_the_stores_clock() -> None:
    archive = Archive()
    three(archive)
    run(archive, delete_grace=timedelta(hours=1))
    assert len(archive.segments()) == 4
    archive.time += timedelta(minutes=59)
    run(archive, delete_grace=timedelta(hours=1))
    assert len(archive.segments()) == 4
    archive.time += timedelta(minutes=1)
    run(archive, delete_grace=timedelta(hours=1))
    assert archive.segments() == [segment(0, 80, 1)]


class Replicating:
    """An object store whose bucket S3 replicates."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.state = "PENDING"

    def stat(self, key: str) -> ObjectInfo | None:
        info: ObjectInfo | None = self.inner.stat(key)
        return info and replace(info, replication=self.state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_inputs_wait_for_the_replication_of_the_merged_segment() -> None:
    archive = Archive(around=Replicating)
    names = three(archive)
    for state in ("PENDING", "FAILED"):
        archive.objects.state = state  # type: ignore[attr-defined]
        report = run(archive)
        assert set(names) < set(archive.segments())
        assert "replication" in report.outcomes[-1].kept[str(names[0])]
    archive.objects.state = "COMPLETED"  # type: ignore[attr-defined]
    run(archive)
    assert archive.segments() == [segment(0, 80, 1)]


class Encrypting:
    """An object store whose bucket a KMS key encrypts, and in which no object has a replication status."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def stat(self, key: str) -> ObjectInfo | None:
        info: ObjectInfo | None = self.inner.stat(key)
        return info and replace(info, encryption="aws:kms")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


LEAVES_OUT = ReplicationRule(name="own", bucket="there", prefix="data/", takes_kms=False)


def test_inputs_stay_where_the_rule_of_replication_leaves_out_what_is_encrypted() -> None:
    archive = Archive(around=Encrypting)
    names = three(archive)
    report = run(archive, ReplicaCheck(original=archive.store, rules=lambda: [LEAVES_OUT]))
    assert set(names) < set(archive.segments())
    assert "SseKmsEncryptedObjects" in report.outcomes[-1].kept[str(names[0])]
    run(archive, ReplicaCheck(original=archive.store, rules=lambda: [replace(LEAVES_OUT, takes_kms=True)]))
    assert archive.segments() == [segment(0, 80, 1)], "what has no status is from before the rule"


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [replace(LEAVES_OUT, prefix="elsewhere/")],
        [replace(LEAVES_OUT, is_narrower=True)],
        [LEAVES_OUT, replace(LEAVES_OUT, takes_kms=True)],
    ],
    ids=["none", "of other keys", "of tagged objects", "one of two takes it"],
)
def test_no_status_is_enough_where_no_rule_leaves_a_segment_out(rules: Sequence[ReplicationRule]) -> None:
    archive = Archive(around=Encrypting)
    three(archive)
    run(archive, ReplicaCheck(original=archive.store, rules=lambda: rules))
    assert archive.segments() == [segment(0, 80, 1)]


def test_rules_are_not_asked_for_what_is_not_encrypted_with_a_key() -> None:
    def asked() -> Sequence[ReplicationRule]:
        raise AssertionError

    archive = Archive()
    three(archive)
    run(archive, ReplicaCheck(original=archive.store, rules=asked))
    assert archive.segments() == [segment(0, 80, 1)]


def test_inputs_wait_for_sync_to_copy_them_or_the_merged_segment() -> None:
    archive, there = Archive(), Archive()
    names = three(archive)
    copies = ReplicaCheck(original=archive.store, copy=there.store)
    report = run(archive, copies)
    assert len(archive.segments()) == 4
    assert "copied by sync" in report.outcomes[-1].kept[str(names[1])]
    copy(archive, names[1], there)
    run(archive, copies)
    assert archive.segments() == [names[0], names[2], segment(0, 80, 1)]
    copy(archive, segment(0, 80, 1), there)
    run(archive, copies)
    assert archive.segments() == [segment(0, 80, 1)]


def test_inputs_stay_when_what_is_there_is_not_the_merged_segment() -> None:
    """Same key and same size, but one bit differs."""
    archive, there = Archive(), Archive()
    names = three(archive)
    merged = segment(0, 80, 1)
    copies = ReplicaCheck(original=archive.store, copy=there.store)
    run(archive, copies)
    copy(archive, merged, there, flip_at=100)
    copy(archive, names[1], there, flip_at=100)
    for _ in range(2):
        kept = run(archive, copies).outcomes[-1].kept
        assert set(kept) == set(map(str, names))
        assert f"the copy of {merged} is another object" in kept[str(names[0])]
        assert f"the copy of {names[1]} is another object" in kept[str(names[1])]
    there.memory.delete_many([format_key(PREFIX, merged)])  # as an operator does, who found out which one is right
    copy(archive, merged, there)
    run(archive, copies)
    assert archive.segments() == [merged]


def test_nothing_is_read_when_nothing_may_be_deleted() -> None:
    class Unread(MemoryObjectStore):
        def stat(self, key: str) -> ObjectInfo | None:
            pytest.fail(f"{key} is asked for")

    unread = SegmentStore(Unread(), PREFIX)
    assert ReplicaCheck(original=unread, copy=unread).missing(segment(0, 80, 1), {}) == {}


def copy(archive: Archive, name: Segment, there: Archive, *, flip_at: int | None = None) -> None:
    """Copies the same bytes, or with one bit flipped."""
    body = bytearray(archive.bytes_of(name))
    if flip_at is not None:
        body[flip_at] ^= 1
    there.memory.put_new(format_key(PREFIX, name), io.BytesIO(body), len(body))


def test_the_ancestors_segments_merge_with_ours() -> None:
    archive = Archive()
    root = Path(__file__).parent.parent / "golden" / "ancestor"
    files = sorted(path for path in root.rglob("*-*") if path.is_file() and path.parent.name.isdecimal())
    keys = [path.relative_to(root).as_posix() for path in files]
    names = [parse_key("data", key) for key in keys if key.startswith("data/")]
    assert names
    by_source: dict[SourcePartition, list[Segment]] = {}
    for name, path in zip(names, files, strict=True):
        data = path.read_bytes()
        archive.memory.put_new(format_key(PREFIX, name), io.BytesIO(data), len(data))
        by_source.setdefault(name.source, []).append(name)
    for source, theirs in by_source.items():
        infos = archive.store.list(source)
        before = [row for name in sorted(theirs, key=lambda s: s.offsets) for row in _rows(archive, name)]
        plans = plan_partition(infos, job(max_level=9), T0)
        outcomes = [archive.worker().execute(plan) for plan in plans]
        assert [o.error for o in outcomes if o.error] == []
        merged = [plan.output for plan in plans if isinstance(plan, MergePlan)]
        for output in merged:
            footer = footer_of(archive, output)
            assert footer.origin.fidelity == "ancestor"
            wanted = {row["offset"]: row for row in before if row["offset"] in output.offsets}
            assert _rows(archive, output) == [wanted[offset] for offset in sorted(wanted)]
            inside = {s.segment: s.size_bytes for s in infos if _within(s.segment.offsets, output.offsets)}
            cleaned = archive.worker().execute(CleanPlan(keeper=output, inside=inside))
            assert (cleaned.error, cleaned.kept, cleaned.deleted) == ("", {}, len(inside))


def _within(inner: OffsetRange, outer: OffsetRange) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _rows(archive: Archive, name: Segment) -> list[dict[str, Any]]:
    reader = archive.format.open(io.BytesIO(archive.bytes_of(name)), name)
    return rows_of(list(reader.batches()))


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=8), st.integers(1, 3), st.integers(0, 2**32))
def test_bytes_are_faithful(lengths: list[int], step: int, seed: int) -> None:
    archive = Archive()
    rows, at = [], 0
    for length in lengths:
        name = segment(at, at + length)
        inside = sample_rows(length // step + 1, first_offset=at, step=step, seed=seed)
        inside = [row for row in inside if row["offset"] in name.offsets]
        archive.write(name, inside)
        rows += inside
        at += length + 1
    run(archive)
    assert [s.level for s in archive.segments()] == [1]
    assert archive.read() == rows


def test_another_process_merged_the_same_inputs() -> None:
    """Two schedulers with the same plan: one key, one winner, both succeed."""
    archive = Archive()
    names = three(archive)
    [plan] = plan_partition(archive.store.list(SOURCE), job(), T0)
    first, second = archive.worker().execute(plan), archive.worker().execute(plan)
    assert (first.error, second.error) == ("", "")
    assert archive.segments() == [*names, segment(0, 80, 1)]


def test_a_stale_plan_finds_its_inputs_gone() -> None:
    archive = Archive()
    three(archive)
    [plan] = plan_partition(archive.store.list(SOURCE), job(), T0)
    assert isinstance(plan, MergePlan)
    run(archive)
    other = replace(plan, output=segment(0, 39, 1), inputs=plan.inputs[:2])
    assert "planned again" in archive.worker().execute(other).error
    assert archive.segments() == [segment(0, 80, 1)]


def test_only_the_selected_part() -> None:
    archive = Archive()
    three(archive)
    other = SourcePartition(SOURCE.region, "other", 0)
    for name in (Segment(other, 0, OffsetRange(0, 9)), Segment(other, 0, OffsetRange(10, 19))):
        archive.write(name, [row for row in ROWS if row["offset"] in name.offsets])
    compactor = archive.compactor()
    assert compactor.run(job(), JobSelection(topics=frozenset({"nothing"}))).outcomes == []
    assert compactor.run(job(), JobSelection(partitions=frozenset({9}))).outcomes == []
    assert compactor.run(job(), JobSelection(level=1)).outcomes == []
    [merge, _] = compactor.run(job(), JobSelection(topics=frozenset({"other"}))).outcomes
    assert merge.partition == str(other)
    assert len(archive.segments()) == 3


def test_a_dry_run_changes_nothing() -> None:
    archive = Archive()
    three(archive)
    before = archive.segments()
    report = archive.compactor().run(job(), ALL, dry_run=True)
    assert [plan.output for plan in report.plans if isinstance(plan, MergePlan)] == [segment(0, 80, 1)]
    assert archive.segments() == before
    assert (report.objects, len(report.outcomes)) == (3, 0)


def test_a_stopped_run_reports_that_it_is_incomplete() -> None:
    """Between two rounds: what is merged stays, and the next run deletes."""
    archive = Archive()
    three(archive)
    before, at_work = archive.read(), archive.compactor()

    def execute(plans: Sequence[CompactionPlan], one: CompactionJob) -> Sequence[PlanOutcome]:
        archive.stop.set()
        return at_work.execute(plans, one)

    with pytest.raises(CompactionStopped):
        replace(at_work, execute=execute).run(job(), ALL)
    archive.stop = Stop()
    assert len(archive.segments()) > 1
    archive.compactor().run(job(), ALL)
    assert len(archive.segments()) == 1
    assert archive.read() == before


def test_a_run_ends_although_egress_stores_faster_than_it_merges() -> None:
    """What came meanwhile, also of partitions that were not there before, is the next run's."""
    archive = Archive()
    three(archive)
    newer, at_work = SourcePartition(SOURCE.region, SOURCE.topic, SOURCE.partition + 1), archive.compactor()
    stored = 0

    def execute(plans: Sequence[CompactionPlan], one: CompactionJob) -> Sequence[PlanOutcome]:
        nonlocal stored
        stored += 1
        assert stored < 10, "it goes on with what comes"
        for start in (stored * 100, stored * 100 + 50):
            archive.write(Segment(SOURCE, 0, OffsetRange(start, start + 49)), [])
        archive.write(Segment(newer, 0, OffsetRange(0, stored)), [])
        return at_work.execute(plans, one)

    replace(at_work, execute=execute).run(job(), ALL)
    assert segment(0, 80, 1) in archive.segments()
    assert segment(0, 19) not in archive.segments()
    assert len(SegmentStore(archive.memory, PREFIX).list(newer)) == stored
    assert run(archive).outcomes != []
    assert archive.read() == ROWS


def test_only_the_own_region_is_listed() -> None:
    archive = Archive()
    foreign = SourcePartition("far-away", "orders", 3)
    for offsets in (OffsetRange(0, 9), OffsetRange(10, 19)):
        name = Segment(foreign, 0, offsets)
        archive.write(name, [row for row in ROWS if row["offset"] in offsets])
    assert run(archive).outcomes == []
    assert len(SegmentStore(archive.memory, PREFIX).list(foreign)) == 2
    assert len(run(archive, region="far-away", owner=True).outcomes) == 2
