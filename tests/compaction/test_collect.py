"""A run of gc over an archive: what goes, in which order, and when nothing does."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from compaction.collect import Report
from compaction.copies import Copies
from compaction.lease import NAME
from compaction.planner import plan_cleaning
from compaction.run import Selection
from infra.objects import MemoryObjectStore
from replicator.config import RetentionRule
from replicator.control import RETENTION, Quarantined, lease_prefix, quarantine_key
from replicator.coverage import Gap, explained_until, steps
from replicator.durable import AFTER, BEFORE, Step, observe
from replicator.errors import StoreUnavailable
from replicator.protocols import ObjectInfo, UploadInfo
from replicator.segment import OffsetRange, Segment, SourcePartition, format_key, region_prefix
from replicator.store import SegmentStore
from tests.compaction.archive import PREFIX, T0, Archive, job, ranges, retention
from tests.formats.records import SOURCE, sample_rows, segment

DAY = timedelta(days=1)
WEEK = retention({"orders": RetentionRule(max_age=7 * DAY)}, max_delete_percent=100)
ROWS = sample_rows(100)


def filled(*names: Segment, archive: Archive | None = None) -> Archive:
    """One a day, of which the last was stored just now."""
    archive = archive or Archive()
    for n, name in enumerate(names):
        archive.time = T0 + n * DAY
        archive.write(name, [row for row in ROWS if row["offset"] in name.offsets])
    return archive


def ten_days(archive: Archive | None = None) -> Archive:
    return filled(*(segment(10 * n, 10 * n + 9) for n in range(10)), archive=archive)


OLD, KEPT = [segment(0, 9), segment(10, 19), segment(20, 29)], [segment(10 * n, 10 * n + 9) for n in range(3, 10)]


def collected(archive: Archive, settings: Any = WEEK, copies: Copies | None = None, **run: Any) -> Report:
    return archive.collector(settings, copies).run(archive.lease(), **run)


def test_what_is_too_old_is_written_down_and_then_deleted() -> None:
    archive = ten_days()
    did: list[tuple[Step, str, int]] = []
    observe(lambda step, when: did.append((step, when, len(archive.segments()))))
    try:
        report = collected(archive)
    finally:
        observe(None)
    assert [plan.segments for plan in report.removed] == [OLD]
    assert archive.segments() == KEPT
    assert archive.read() == ROWS[30:]
    [gap] = archive.control.gaps(SOURCE)
    assert (gap.offsets, gap.reason, gap.low, gap.high, gap.is_loss) == (OffsetRange(0, 29), RETENTION, 0, 100, False)
    assert [one for one in did if one[0] is not Step.TAKE_LEASE] == [
        (Step.RECORD_GAP, BEFORE, 10),
        (Step.RECORD_GAP, AFTER, 10),
        (Step.EXPIRE_SEGMENTS, BEFORE, 10),
        (Step.EXPIRE_SEGMENTS, AFTER, 7),
    ]


def test_done_is_done_and_the_next_day_goes_on() -> None:
    archive = ten_days()
    collected(archive)
    again = collected(archive)
    assert (again.plans, again.removed, again.refused) == ([], [], {})
    archive.time += DAY
    collected(archive)
    assert archive.segments() == KEPT[1:]
    assert archive.control.gap_ranges(SOURCE) == ranges((0, 29), (30, 39))


def test_a_dry_run_changes_nothing() -> None:
    archive = ten_days()
    report = archive.collector(WEEK).run(None)
    assert [plan.segments for plan in report.plans] == [OLD]
    assert (report.removed, len(archive.segments()), archive.control.gap_ranges(SOURCE)) == ([], 10, [])


def test_topics_without_a_rule_and_regions_of_others_are_never_touched() -> None:
    archive = ten_days()
    assert collected(archive, retention({"other": RetentionRule(max_age=DAY)})).plans == []
    others = [Segment(SourcePartition(r, t, 0), 0, OffsetRange(0, 9)) for r, t in (("eu-2", "orders"), ("eu-1", "x"))]
    archive.time = T0
    for name in others:
        archive.write(name, ROWS[:10])
    archive.time = T0 + 30 * DAY
    collected(archive)
    assert all(archive.store.stat(name) for name in others)


def test_a_later_life_of_the_topic_has_the_same_rule() -> None:
    later = replace(SOURCE, incarnation="abc")
    archive = filled(*(Segment(later, 0, OffsetRange(10 * n, 10 * n + 9)) for n in range(10)))
    [plan] = collected(archive, topics=["orders"]).removed
    assert (plan.source, len(plan.deletions)) == (later, 3)
    assert archive.control.gap_ranges(later) == ranges((0, 29))


def test_only_the_topics_asked_for() -> None:
    archive = ten_days()
    report = collected(archive, topics=["another"])
    assert (report.segments, report.plans, len(archive.segments())) == (0, [], 10)


class TestRefused:
    """Nothing goes while anything is unsure."""

    def refused(self, archive: Archive, settings: Any = WEEK, **run: Any) -> str:
        report = collected(archive, settings, **run)
        assert report.removed == []
        assert len(archive.segments()) == 10
        assert archive.control.gap_ranges(SOURCE) == []
        [why] = report.refused.values()
        return why

    def test_too_much_at_once(self) -> None:
        archive = ten_days()
        careful = replace(WEEK, max_delete_percent=29)
        assert "--allow-large" in self.refused(archive, careful)
        assert [p.segments for p in collected(archive, careful, allow_large=True).removed] == [OLD]

    def test_a_clock_that_differs_from_the_stores(self) -> None:
        archive = ten_days()
        lease = archive.lease()
        archive.time += timedelta(minutes=6)
        report = archive.collector(WEEK).run(lease)
        assert "clock" in report.refused["eu-1"]
        assert report.plans == []

    def test_a_lease_that_was_lost(self) -> None:
        archive = ten_days()
        lease = archive.lease()
        archive.memory.delete_many([f"{lease_prefix(PREFIX, 'eu-1', NAME)}{lease.token:020d}"])
        assert "took the lease" in archive.collector(WEEK).run(lease).refused["eu-1"]

    def test_a_quarantined_segment(self) -> None:
        archive = ten_days()
        found = Quarantined(stored_at=T0, reason="damaged", found_at=T0)
        archive.control.quarantine(OLD[1], found)
        assert "is quarantined" in self.refused(archive)

    def test_a_quarantine_that_cannot_be_read(self) -> None:
        archive = ten_days()
        archive.memory.put_new(quarantine_key(PREFIX, OLD[0]), io.BytesIO(b"{"), 1)
        assert "cannot be read" in self.refused(archive)

    def test_what_was_to_stay_is_gone(self) -> None:
        archive = ten_days()
        collector, lease = archive.collector(WEEK), archive.lease()
        report = collector.run(None)
        archive.memory.delete_many([format_key(PREFIX, KEPT[-1])])
        collector._remove(report)
        assert "is gone since it was listed" in report.refused[str(SOURCE)]
        assert OLD[0] in archive.segments()
        assert lease.token

    def test_a_listing_that_fails(self) -> None:
        class Failing:
            def __init__(self, memory: MemoryObjectStore) -> None:
                self.memory = memory

            def __getattr__(self, name: str) -> Any:
                return getattr(self.memory, name)

            def list(self, prefix: str, *, start_after: str = "") -> Any:
                for n, item in enumerate(self.memory.list(prefix, start_after=start_after)):
                    if n == 8 and prefix == region_prefix(PREFIX, "eu-1"):
                        raise StoreUnavailable("the second page")
                    yield item

        archive = ten_days(Archive(around=Failing))
        with pytest.raises(StoreUnavailable):
            collected(archive)
        assert len(archive.segments()) == 10


class Replicating:
    """A bucket whose replication is at different stages."""

    def __init__(self, store: SegmentStore, stages: dict[Segment, str]) -> None:
        self.store, self.stages = store, stages

    def stat(self, name: Segment) -> ObjectInfo | None:
        info = self.store.stat(name)
        return None if info is None else replace(info, replication=self.stages.get(name, "COMPLETED"))


class TestCopies:
    @pytest.mark.parametrize(("stage", "word"), [("PENDING", "not complete"), ("FAILED", "failed")])
    def test_what_the_bucket_has_not_replicated_keeps_all_behind_it(self, stage: str, word: str) -> None:
        archive = ten_days()
        here: Any = Replicating(archive.store, {OLD[1]: stage})
        report = collected(archive, copies=Copies(here=here))
        assert list(report.kept) == [OLD[1]]
        assert word in report.kept[OLD[1]]
        assert archive.segments() == [*OLD[1:], *KEPT]
        assert archive.control.gap_ranges(SOURCE) == ranges((0, 9))

    def test_what_sync_carries_must_be_there(self) -> None:
        archive = ten_days()
        there = SegmentStore(MemoryObjectStore(), "")
        there.store(OLD[0], io.BytesIO(b"x"), 1)
        copies = Copies(here=archive.store, there=there)
        assert set(collected(archive, copies=copies).kept) == set(OLD[1:])
        assert archive.segments() == [*OLD[1:], *KEPT]
        not_carried = replace(copies, carried=lambda _: False)
        assert collected(archive, copies=not_carried).kept == {}
        assert archive.segments() == KEPT

    def test_what_vanished_meanwhile_is_no_error(self) -> None:
        """A lifecycle rule of the bucket expires objects, too."""
        archive = ten_days()
        collector = archive.collector(WEEK)
        report = collector.run(None)
        archive.memory.delete_many([format_key(PREFIX, OLD[0])])
        assert collector.copies.uncopied(OLD[0]) == ""
        collector._remove(report)
        assert (report.failed, report.refused, archive.segments()) == ({}, {}, KEPT)


def upload(name: str, age: timedelta) -> UploadInfo:
    return UploadInfo(key=name, upload_id=name, begun_at=T0 + 9 * DAY - age)


class TestGarbage:
    def test_abandoned_uploads_of_segments_are_aborted(self) -> None:
        archive = ten_days()
        key = format_key(PREFIX, segment(100, 199))
        foreign = format_key(PREFIX, Segment(SourcePartition("eu-2", "orders", 0), 0, OffsetRange(0, 9)))
        old, young = upload(key, timedelta(days=2)), upload(key, timedelta(hours=23))
        others = [upload("data/eu-1/orders/notes.txt", timedelta(days=2)), upload(foreign, timedelta(days=2))]
        archive.uploads.begun = [old, young, *others]
        assert archive.collector(WEEK).run(None).uploads == [old]
        assert collected(archive, topics=["another"]).aborted == []
        assert collected(archive).aborted == [old]
        assert archive.uploads.begun == [young, *others]

    def test_uploads_that_cannot_be_asked_about_keep_no_segment(self) -> None:
        archive = ten_days()

        def refuse(_: str) -> Sequence[UploadInfo]:
            raise StoreUnavailable("allow s3:ListBucketMultipartUploads")

        archive.uploads.list = refuse  # type: ignore[method-assign,assignment]
        report = collected(archive)
        assert "allow" in report.failed["uploads"]
        assert archive.segments() == KEPT

    def test_a_key_that_is_no_segments_is_told_and_stays(self) -> None:
        archive = ten_days()
        archive.memory.put_new("data/eu-1/orders/3/notes.txt", io.BytesIO(b"x"), 1)
        [told] = collected(archive).malformed
        assert "notes.txt" in told
        assert archive.memory.stat("data/eu-1/orders/3/notes.txt")

    def test_what_a_larger_segment_holds_goes_without_a_merge(self) -> None:
        names = [segment(0, 9), segment(0, 19), segment(20, 29), segment(30, 39)]
        archive = filled(*names)
        compactor = replace(archive.compactor(), make_plans=plan_cleaning)
        compactor.run(job(max_level=9), Selection())
        assert archive.segments() == names[1:]


def test_readers_that_are_behind_find_every_missing_offset_explained() -> None:
    archive = ten_days()
    behind = 15
    collected(archive)
    [first, *_] = steps(archive.segments(), behind)
    assert first == Gap(OffsetRange(15, 29))
    assert explained_until(archive.control.gap_ranges(SOURCE), behind) == 30
