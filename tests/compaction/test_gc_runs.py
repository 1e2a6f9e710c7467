"""A run of gc over an archive: what is removed, in which order, and when nothing is."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from compaction.gc import GcReport
from compaction.planner import plan_cleaning
from compaction.replicas import GONE, ReplicaCheck
from compaction.run import JobSelection
from formats.control.archive_begin import ArchiveBegin
from formats.control.fork import LogFork
from formats.control.gap import RETENTION, RecordedGap
from formats.control.keys import gap_key, lease_prefix, quarantine_key
from formats.control.quarantine import Quarantined
from formats.coverage import Gap, explained_until, joined, steps
from formats.errors import StoreUnavailable
from formats.gap_acceptance import losses
from formats.segment import OffsetRange, Segment, SourcePartition, format_key, region_prefix
from infra.archive.lease import NAME
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectInfo, UploadInfo
from infra.runtime.crash_points import AFTER, BEFORE, Step, observe
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import RetentionRule
from tests.compaction.archive import PREFIX, T0, Archive, covered, job, ranges, retention
from tests.formats.sample_records import SOURCE, sample_rows, segment

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


class _Slow:
    """An object store in which something happens while the next listing is under way."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.meanwhile: Callable[[], None] = lambda: None

    def list(self, *args: Any, **options: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return self.inner.list(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def collected(archive: Archive, settings: Any = WEEK, copies: ReplicaCheck | None = None, **run: Any) -> GcReport:
    return archive.collector(settings, copies).run(archive.lease(), **run)


def test_begins_and_forks_are_kept() -> None:
    archive = ten_days()
    begin = ArchiveBegin(offset=0, reason="start policy", recorded_at=T0)
    fork = LogFork(source=SOURCE, next_offset=30, leader_epoch=1, end_offset=25, found_at=T0, evidence="x")
    archive.control.begins.record(SOURCE, begin)
    archive.control.forks.record(fork)
    collected(archive)
    assert archive.segments() == KEPT
    assert (archive.control.begins.of(SOURCE), archive.control.forks.of(SOURCE)) == (begin, [fork])


def test_expired_segments_are_recorded_and_then_deleted() -> None:
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
    [gap] = archive.control.gaps.of(SOURCE)
    assert (gap.offsets, gap.reason, gap.low, gap.high, gap.is_loss) == (OffsetRange(0, 29), RETENTION, 0, 100, False)
    assert [one for one in did if one[0] is not Step.TAKE_LEASE] == [
        (Step.RECORD_GAP, BEFORE, 10),
        (Step.RECORD_GAP, AFTER, 10),
        (Step.EXPIRE_SEGMENTS, BEFORE, 10),
        (Step.EXPIRE_SEGMENTS, AFTER, 7),
    ]


def test_a_second_run_removes_nothing_and_the_next_day_continues() -> None:
    archive = ten_days()
    collected(archive)
    again = collected(archive)
    assert (again.plans, again.removed, again.refused) == ([], [], {})
    archive.time += DAY
    collected(archive)
    assert archive.segments() == KEPT[1:]
    assert archive.control.gaps.ranges(SOURCE) == ranges((0, 39))


def test_a_growing_range_is_one_record_and_always_explained() -> None:
    archive = Archive()
    steps_seen: set[Step] = set()

    def explained(step: Step, when: str) -> None:
        steps_seen.add(step)
        recorded = archive.control.gaps.ranges(SOURCE)
        missing = set(range(100)) - covered(archive.segments())
        assert all(explained_until(recorded, offset) > offset for offset in missing), (step, when)

    ten_days(archive)
    try:
        observe(explained)
        for day in range(1, 7):
            collected(archive)
            [gap] = archive.control.gaps.of(SOURCE)
            assert (gap.offsets.start, gap.offsets.next_offset) == (0, archive.segments()[0].offsets.start)
            assert (gap.reason, gap.low, gap.high) == (RETENTION, 0, 100)
            assert gap.offsets.next_offset == 20 + 10 * day
            archive.time += DAY
    finally:
        observe(None)
    assert {Step.RECORD_GAP, Step.REMOVE_GAPS, Step.EXPIRE_SEGMENTS} <= steps_seen


def test_records_of_earlier_runs_become_one_and_those_of_other_reasons_stay() -> None:
    """A loss that retention did not cause is reported for ever; so are gaps that an operator accepted."""
    archive = filled(*KEPT)
    retained = RecordedGap(source=SOURCE, offsets=OffsetRange(0, 9), reason=RETENTION, low=0, high=9, recorded_at=T0)
    lost = replace(retained, offsets=OffsetRange(10, 14), reason="the topic begins at 15", low=15)
    accepted = replace(retained, offsets=OffsetRange(15, 19), is_accepted=True)
    adjoining = [replace(retained, offsets=one) for one in ranges((20, 24), (25, 27), (26, 29))]
    for gap in (retained, lost, accepted, *adjoining):
        archive.control.gaps.record(gap)
    archive.time = T0 + 7.5 * DAY
    assert [plan.segments for plan in collected(archive).removed] == [KEPT[:1]]
    gaps = archive.control.gaps.of(SOURCE)
    assert [gap.offsets for gap in gaps] == ranges((0, 9), (10, 14), (15, 19), (20, 39))
    assert gaps[:3] == [retained, lost, accepted]
    assert (gaps[3].reason, gaps[3].low, gaps[3].high) == (RETENTION, 0, 100)


@pytest.mark.parametrize("daily", [False, True], ids=["with others", "alone"])
def test_a_loss_that_was_archived_later_is_none_once_retention_removes_it(daily: bool) -> None:
    """`status`, `gaps` and the RPO of a drill counted it as lost at the source again."""
    archive = filled(*(segment(10 * n, 10 * n + 9) for n in range(8 if daily else 10)))
    filled_later, lost = (
        RecordedGap(source=SOURCE, offsets=one, reason="late", low=20, high=30, recorded_at=T0)
        for one in ranges((10, 19), (200, 209))
    )
    for gap in (filled_later, lost):
        archive.control.gaps.record(gap)
    for _ in range(3 if daily else 1):
        collected(archive)
        stored = joined(one.offsets for one in archive.segments())
        assert losses(archive.control.gaps.of(SOURCE), (), stored) == [lost.offsets]
        archive.time += DAY
    assert archive.segments()[0] == segment(30, 39)
    assert explained_until(archive.control.gaps.ranges(SOURCE), 0) == 30
    removed = [gap.offsets for gap in archive.control.gaps.of(SOURCE) if gap.reason == RETENTION]
    assert removed == ranges((0, 29)), "one record of all that was removed"


def test_an_unreadable_gap_record_is_left_unchanged() -> None:
    archive = filled(*KEPT)
    archive.memory.put_new(gap_key(PREFIX, SOURCE, OffsetRange(0, 29)), io.BytesIO(b"{}"), 2)
    archive.time = T0 + 7.5 * DAY
    collected(archive)
    assert archive.control.gaps.ranges(SOURCE) == ranges((0, 29), (30, 39))


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", [Step.RECORD_GAP, Step.REMOVE_GAPS, Step.EXPIRE_SEGMENTS])
def test_a_run_that_dies_is_finished_by_the_next(step: Step, when: str) -> None:
    archive = ten_days()
    collected(archive)
    archive.time += DAY
    occurrences = {Step.RECORD_GAP: 2}  # of the second run: the new range, then the joined one

    class Died(BaseException):
        pass

    def die(at: Step, moment: str) -> None:
        if (at, moment) == (step, when):
            occurrences[step] = occurrences.get(step, 1) - 1
            if occurrences[step] == 0:
                raise Died

    observe(die)
    try:
        with pytest.raises(Died):
            collected(archive)
    finally:
        observe(None)
    archive.time += timedelta(minutes=6)  # the dead one's lease
    collected(archive)
    assert archive.segments() == KEPT[1:]
    assert archive.control.gaps.ranges(SOURCE) == ranges((0, 39))


def test_a_dry_run_changes_nothing() -> None:
    archive = ten_days()
    report = archive.collector(WEEK).run(None)
    assert [plan.segments for plan in report.plans] == [OLD]
    assert (report.removed, len(archive.segments()), archive.control.gaps.ranges(SOURCE)) == ([], 10, [])


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


def test_a_later_incarnation_of_the_topic_has_the_same_rule() -> None:
    later = replace(SOURCE, incarnation="abc")
    archive = filled(*(Segment(later, 0, OffsetRange(10 * n, 10 * n + 9)) for n in range(10)))
    [plan] = collected(archive, topics=["orders"]).removed
    assert (plan.source, len(plan.deletions)) == (later, 3)
    assert archive.control.gaps.ranges(later) == ranges((0, 29))


def test_only_the_topics_asked_for() -> None:
    archive = ten_days()
    report = collected(archive, topics=["another"])
    assert (report.segments, report.plans, len(archive.segments())) == (0, [], 10)


class TestRefused:
    """Nothing is removed while anything is uncertain."""

    def refused(self, archive: Archive, settings: Any = WEEK, **run: Any) -> str:
        report = collected(archive, settings, **run)
        assert report.removed == []
        assert len(archive.segments()) == 10
        assert archive.control.gaps.ranges(SOURCE) == []
        [why] = report.refused.values()
        return why

    def test_too_much_of_one_incarnation_however_much_an_earlier_one_has(self) -> None:
        archive = ten_days()
        earlier = Segment(replace(SOURCE, incarnation="earlier"), 0, OffsetRange(0, 0))
        archive.memory.put_new(format_key(PREFIX, earlier), io.BytesIO(bytes(3 << 20)), 3 << 20)
        assert "--allow-large" in self.refused(archive, replace(WEEK, max_delete_percent=29))

    def test_too_much_at_once(self) -> None:
        archive = ten_days()
        careful = replace(WEEK, max_delete_percent=29)
        assert "--allow-large" in self.refused(archive, careful)
        assert [p.segments for p in collected(archive, careful, allow_large=True).removed] == [OLD]

    def test_too_much_of_one_topic_however_much_another_has(self) -> None:
        """90 % of a small topic is little of an archive that holds a large one."""
        archive = ten_days()
        large = Segment(replace(SOURCE, topic="another"), 0, OffsetRange(0, 0))
        archive.memory.put_new(format_key(PREFIX, large), io.BytesIO(bytes(3 << 20)), 3 << 20)
        careful = replace(WEEK, max_delete_percent=29)
        why = self.refused(archive, careful)
        assert "--allow-large" in why
        assert re.match(r"\d,\d{3} of its \d{1,2},\d{3} bytes would go", why), why

    def test_a_refused_topic_does_not_block_others(self) -> None:
        archive = ten_days()
        other = replace(SOURCE, topic="another")
        names = [Segment(other, 0, OffsetRange(10 * n, 10 * n + 9)) for n in range(10)]
        for n, name in enumerate(names):
            archive.time = T0 + n * DAY
            archive.write(name, ROWS[10 * n : 10 * n + 10])
        rules = {"orders": RetentionRule(max_age=2 * DAY), "another": RetentionRule(max_age=7 * DAY)}
        report = collected(archive, retention(rules))
        assert [plan.source for plan in report.removed] == [other]
        assert len(archive.segments()) == 10
        assert list(report.refused) == ["eu-1/orders"]

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
        found = Quarantined(stored_at=T0 + DAY, reason="damaged", found_at=T0 + DAY)
        archive.control.quarantine.record(OLD[1], found)
        assert "is quarantined" in self.refused(archive)

    def test_what_only_a_quarantined_segment_still_holds_is_a_gap(self) -> None:
        """It reaches beyond the cut, so it keeps nothing from expiring, and it cannot be read."""
        archive = ten_days()
        merged = segment(0, 59, 1)
        archive.memory.put_new(format_key(PREFIX, merged), io.BytesIO(b"damaged"), 7)
        now = archive.time
        archive.control.quarantine.record(merged, Quarantined(stored_at=now, reason="damaged", found_at=now))
        by_size = retention({"orders": RetentionRule(max_bytes=sum(len(archive.bytes_of(one)) for one in KEPT))})
        assert [plan.segments for plan in collected(archive, by_size, allow_large=True).removed] == [OLD]
        assert archive.control.gaps.ranges(SOURCE) == [OffsetRange(0, OLD[-1].offsets.end)]

    def test_an_object_that_was_replaced_is_not_quarantined_any_more(self) -> None:
        """As the message about it asks; in a copy of the bucket the record is of an object that never was there."""
        archive = ten_days()
        archive.control.quarantine.record(OLD[1], Quarantined(stored_at=T0 - DAY, reason="damaged", found_at=T0))
        report = archive.collector(WEEK).run(archive.lease())
        assert (report.refused, len(report.removed)) == ({}, 1)

    def test_a_listing_that_takes_long_is_no_wrong_clock(self) -> None:
        archive = ten_days(Archive(around=_Slow))
        assert isinstance(archive.objects, _Slow)
        lease = archive.lease()

        def six_minutes() -> None:
            archive.time += timedelta(minutes=6)
            archive.write(segment(100, 109), sample_rows(10, first_offset=100))

        archive.objects.meanwhile = six_minutes
        assert archive.collector(WEEK).run(lease).refused == {}

    def test_a_quarantine_that_cannot_be_decoded_keeps_its_segment_alone(self) -> None:
        archive = ten_days()
        key = quarantine_key(PREFIX, OLD[0])
        archive.memory.put_new(key, io.BytesIO(b"{"), 1)
        assert "is quarantined" in self.refused(archive)
        (found,) = archive.control.quarantine.all(SOURCE.region).values()
        assert found.reason.startswith(f"{key}: ")

    def test_the_newest_kept_segment_is_gone(self) -> None:
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

            def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Any:
                for n, item in enumerate(self.memory.list(prefix, start_after=start_after, limit=limit)):
                    if n == 8 and prefix == region_prefix(PREFIX, "eu-1"):
                        raise StoreUnavailable("the second page")
                    yield item

        archive = ten_days(Archive(around=Failing))
        with pytest.raises(StoreUnavailable):
            collected(archive)
        assert len(archive.segments()) == 10


def damaged(body: bytes) -> bytes:
    """The bytes with one bit in the middle flipped; the size stays."""
    at = len(body) // 2
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


DAMAGED, TRUNCATED, FOREIGN = damaged, lambda body: body[:-1], lambda body: bytes(len(body))


class Replicating:
    """A bucket whose replication is at different stages."""

    def __init__(self, store: SegmentStore, stages: dict[Segment, str]) -> None:
        self.store, self.stages = store, stages

    def stat(self, name: Segment) -> ObjectInfo | None:
        info = self.store.stat(name)
        return None if info is None else replace(info, replication=self.stages.get(name, "COMPLETED"))


def copy_of(archive: Archive, name: Segment, there: SegmentStore, change: Callable[[bytes], bytes] = bytes) -> None:
    """Put by anything that can put an object, with whatever it made of it."""
    body = change(archive.bytes_of(name))
    there.store(name, io.BytesIO(body), len(body))


class TestCopies:
    @pytest.mark.parametrize(("stage", "word"), [("PENDING", "not complete"), ("FAILED", "failed")])
    def test_an_unreplicated_segment_keeps_all_later_ones(self, stage: str, word: str) -> None:
        archive = ten_days()
        here: Any = Replicating(archive.store, {OLD[1]: stage})
        report = collected(archive, copies=ReplicaCheck(original=here))
        assert list(report.kept) == [OLD[1]]
        assert word in report.kept[OLD[1]]
        assert archive.segments() == [*OLD[1:], *KEPT]
        assert archive.control.gaps.ranges(SOURCE) == ranges((0, 9))

    def test_segments_that_sync_copies_need_their_copy(self) -> None:
        archive = ten_days()
        there = SegmentStore(MemoryObjectStore(), "")
        copy_of(archive, OLD[0], there)
        copies = ReplicaCheck(original=archive.store, copy=there)
        assert set(collected(archive, copies=copies).kept) == set(OLD[1:])
        assert archive.segments() == [*OLD[1:], *KEPT]
        not_synced = replace(copies, is_synced=lambda _: False)
        assert collected(archive, copies=not_synced).kept == {}
        assert archive.segments() == KEPT

    @pytest.mark.parametrize("damage", [DAMAGED, TRUNCATED, FOREIGN])
    def test_a_copy_that_is_another_object_is_named_and_keeps_the_good_one(
        self, damage: Callable[[bytes], bytes]
    ) -> None:
        archive = ten_days()
        there = SegmentStore(MemoryObjectStore(), "")
        for name in OLD:
            copy_of(archive, name, there, damage if name == OLD[1] else bytes)
        report = collected(archive, copies=ReplicaCheck(original=archive.store, copy=there))
        assert list(report.kept) == [OLD[1]]
        assert f"the copy of {OLD[1]} is another object" in report.kept[OLD[1]]
        assert archive.segments() == [*OLD[1:], *KEPT]

    def test_a_segment_removed_meanwhile_is_not_an_error(self) -> None:
        """A lifecycle rule of the bucket expires objects, too. The next listing decides, since a gateway may answer a
        404 that is none."""
        archive = ten_days()
        collector = archive.collector(WEEK)
        report = collector.run(None)
        archive.memory.delete_many([format_key(PREFIX, OLD[0])])
        assert list(collector.uncopied([OLD[0]])) == [GONE]
        collector._remove(report)
        assert (report.failed, report.refused, archive.segments()) == ({}, {}, KEPT)


def upload(name: str, age: timedelta) -> UploadInfo:
    return UploadInfo(key=name, upload_id=name, initiated_at=T0 + 9 * DAY - age)


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

    def test_a_failed_listing_of_uploads_keeps_no_segment(self) -> None:
        archive = ten_days()

        def refuse(_: str) -> Sequence[UploadInfo]:
            raise StoreUnavailable("allow s3:ListBucketMultipartUploads")

        archive.uploads.list = refuse  # type: ignore[method-assign,assignment]
        report = collected(archive)
        assert "allow" in report.failed["uploads"]
        assert archive.segments() == KEPT

    def test_a_foreign_key_is_reported_and_stays(self) -> None:
        archive = ten_days()
        archive.memory.put_new("data/eu-1/orders/3/notes.txt", io.BytesIO(b"x"), 1)
        [malformed] = collected(archive).malformed
        assert "notes.txt" in malformed
        assert archive.memory.stat("data/eu-1/orders/3/notes.txt")

    def test_segments_covered_by_a_larger_one_are_removed_without_a_merge(self) -> None:
        names = [segment(0, 9), segment(0, 19), segment(20, 29), segment(30, 39)]
        archive = filled(*names)
        compactor = replace(archive.compactor(), make_plans=plan_cleaning)
        compactor.run(job(max_level=9), JobSelection())
        assert archive.segments() == names[1:]


def test_slow_readers_find_every_missing_offset_explained() -> None:
    archive = ten_days()
    behind = 15
    collected(archive)
    [first, *_] = steps(archive.segments(), behind)
    assert first == Gap(OffsetRange(15, 29))
    assert explained_until(archive.control.gaps.ranges(SOURCE), behind) == 30
