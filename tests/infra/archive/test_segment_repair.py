"""A damaged or missing segment is taken from a proven copy; anything else changes nothing, and a kill loses nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from formats.control.claim import TopicClaim
from formats.control.gap import RETENTION, RecordedGap
from formats.control.keys import is_of_one_bucket
from formats.control.quarantine import Quarantined
from formats.errors import CorruptSegment, ForeignSegment, SegmentNotFound, SegmentsDiffer
from formats.footer import SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, format_key
from infra.archive.archive import Archive
from infra.archive.segment_repair import RepairAction, RepairReport, SegmentCopy, SegmentRepair, SegmentState
from infra.archive.segments import SegmentStore
from infra.runtime.crash_points import BEFORE, Step
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.fakes.archive import archive_of
from tests.formats.sample_records import ORIGIN, SOURCE, Row, batch_of, sample_rows, segment
from tests.ingress.catalog.test_killed_applier import dies_at

PREFIX = "data"
WANTED = segment(10, 19)
ROWS = sample_rows(10, first_offset=10)
KEY = format_key(PREFIX, WANTED)
NOW = datetime(2026, 11, 25, tzinfo=UTC)


def encoded(name: Segment, rows: Sequence[Row], origin: SegmentOrigin = ORIGIN) -> bytes:
    sink = io.BytesIO()
    writer = ParquetFormat().create(sink)
    writer.write([batch_of(list(rows))])
    writer.close(name, origin)
    return sink.getvalue()


SOUND = encoded(WANTED, ROWS)
OTHER_ROWS = [{**row, "value": b"other"} for row in ROWS]


def body_damaged(data: bytes) -> bytes:
    """The records cannot be read, the footer can."""
    return data[:20] + bytes(255 - byte for byte in data[20:40]) + data[40:]


@dataclass
class World:
    objects: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    there: MemoryObjectStore = field(default_factory=MemoryObjectStore)

    @property
    def archive(self) -> Archive:
        return archive_of(SegmentStore(self.objects, PREFIX), ParquetFormat())

    def repair(self, *, dry_run: bool = False) -> RepairReport:
        other = archive_of(SegmentStore(self.there, "elsewhere"), ParquetFormat())
        copy = SegmentCopy(other, "s3://other/elsewhere")
        return SegmentRepair(archive=self.archive).repair(WANTED, copy, dry_run=dry_run)

    def copy(self, data: bytes) -> None:
        self.there.replace(format_key("elsewhere", WANTED), data)

    def put(self, name: Segment, data: bytes) -> None:
        self.objects.replace(format_key(PREFIX, name), data)

    def quarantine(self) -> None:
        info = self.archive.segments.stat(WANTED)
        assert info is not None
        found = Quarantined(stored_at=info.modified_at, reason="row group 0", found_at=NOW)
        self.archive.control.quarantine.record(WANTED, found)

    def content(self) -> dict[str, bytes]:
        return {info.key: self.objects.open(info.key).read() for info in self.objects.list("")}


@pytest.fixture
def world() -> World:
    made = World()
    made.put(segment(0, 9), encoded(segment(0, 9), sample_rows(10)))
    made.copy(SOUND)
    return made


DAMAGES = {
    "cut": SOUND[: len(SOUND) // 2],
    "body": body_damaged(SOUND),
    "empty": b"",
    "of another range": encoded(segment(20, 29), sample_rows(10, first_offset=20)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_segment_is_set_aside_and_replaced(world: World, damage: bytes) -> None:
    world.put(WANTED, damage)
    world.quarantine()
    before = world.content()
    shown = world.repair(dry_run=True)
    assert (shown.state, shown.action) == (SegmentState.DAMAGED, RepairAction.WOULD_REPAIR)
    assert world.content() == before
    report = world.repair()
    assert (report.state, report.action, report.records) == (SegmentState.DAMAGED, RepairAction.REPAIRED, 10)
    after = world.content()
    assert after[KEY] == SOUND
    assert after[report.set_aside] == damage
    assert is_of_one_bucket(report.set_aside.removeprefix(f"{PREFIX}/"))
    assert world.archive.control.quarantine.all(SOURCE.region) == {}
    assert world.repair().action is RepairAction.NOTHING
    assert world.content() == after


def test_a_missing_segment_is_put(world: World) -> None:
    assert world.repair(dry_run=True).action is RepairAction.WOULD_REPAIR
    assert KEY not in world.content()
    assert world.repair().state is SegmentState.MISSING
    assert world.content()[KEY] == SOUND


def test_from_a_file(world: World, tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_bytes(SOUND)
    SegmentRepair(archive=world.archive).repair(WANTED, SegmentCopy(file, str(file)))
    assert world.content()[KEY] == SOUND
    world.objects.delete_many([KEY])
    with pytest.raises(SegmentNotFound, match="absent"):
        SegmentRepair(archive=world.archive).repair(WANTED, SegmentCopy(tmp_path / "absent", "absent"))


def test_a_sound_segment_is_never_replaced(world: World) -> None:
    ours = encoded(WANTED, OTHER_ROWS)
    world.put(WANTED, ours)
    assert world.repair().action is RepairAction.NOTHING
    world.quarantine()  # by a proof that decoding does not repeat
    with pytest.raises(SegmentsDiffer, match="find out which one is right"):
        world.repair()
    assert world.content()[KEY] == ours
    world.copy(encoded(WANTED, OTHER_ROWS, replace(ORIGIN, writer="another")))
    assert world.repair().action is RepairAction.QUARANTINE_ENDED
    assert world.content()[KEY] == ours
    assert world.archive.control.quarantine.of(WANTED) is None


def claimed(world: World) -> None:
    claim = TopicClaim(topic_id="another", cluster_id="c", number=0, claimed_at=NOW)
    world.archive.control.claims.record(SOURCE.region, SOURCE.path, claim)


def footer_of_others(world: World) -> None:
    world.put(WANTED, body_damaged(encoded(WANTED, OTHER_ROWS)))


def overlapped(world: World) -> None:
    larger = segment(0, 19, level=1)
    world.put(larger, encoded(larger, [*sample_rows(10), *OTHER_ROWS]))
    world.put(WANTED, b"damaged")


def copied(data: bytes) -> Callable[[World], None]:
    return lambda world: world.copy(data)


REFUSED: dict[str, tuple[Callable[[World], None], type[Exception], str]] = {
    "cut copy": (copied(DAMAGES["cut"]), CorruptSegment, "s3://other"),
    "copy with a damaged body": (copied(DAMAGES["body"]), CorruptSegment, "s3://other"),
    "copy of another range": (copied(DAMAGES["of another range"]), CorruptSegment, "s3://other"),
    "copy of another topic, by the claim": (claimed, ForeignSegment, "the claim of eu-1/orders"),
    "copy of another topic, by a neighbour": (
        copied(encoded(WANTED, ROWS, replace(ORIGIN, topic_id="other"))),
        ForeignSegment,
        "stored eu-1/orders/3/0/0",
    ),
    "another digest than the damaged footer's": (footer_of_others, SegmentsDiffer, "the footer here says"),
    "another record in a larger segment": (overlapped, SegmentsDiffer, "offset 10"),
    "no copy": (lambda world: world.there.delete_many([format_key("elsewhere", WANTED)]), SegmentNotFound, "s3://"),
}


@pytest.mark.parametrize(("plant", "error", "text"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("dry_run", [False, True], ids=["", "dry"])
def test_what_is_not_proven_changes_nothing(
    world: World, plant: Callable[[World], None], error: type[Exception], text: str, *, dry_run: bool
) -> None:
    plant(world)
    before = world.content()
    with pytest.raises(error, match=text):
        world.repair(dry_run=dry_run)
    assert world.content() == before


def test_an_interrupted_repair_goes_on_beside_a_gap_inside_the_segment(world: World) -> None:
    """As an operator accepted one: the other offsets of the segment are in nothing else."""
    world.copy(SOUND)
    world.put(WANTED, body_damaged(SOUND))
    world.quarantine()
    gap = OffsetRange(WANTED.offsets.end - 1, WANTED.offsets.end)
    world.archive.control.gaps.record(
        RecordedGap(source=SOURCE, offsets=gap, reason="fork", low=0, high=30, recorded_at=NOW, is_accepted=True)
    )
    with dies_at(2 * STEPS.index(Step.PUT_SEGMENT)):
        world.repair()
    assert world.archive.segments.stat(WANTED) is None
    assert (world.repair().state, world.repair().state) == (SegmentState.MISSING, SegmentState.SOUND)


def test_what_others_hold_and_what_was_removed_is_not_missing(world: World) -> None:
    larger = segment(0, 29, level=1)
    world.put(larger, encoded(larger, sample_rows(30)))
    assert world.repair().state is SegmentState.COVERED
    world.objects.delete_many([format_key(PREFIX, larger)])
    gap = RecordedGap(source=SOURCE, offsets=WANTED.offsets, reason=RETENTION, low=0, high=20, recorded_at=NOW)
    world.archive.control.gaps.record(gap)
    assert world.repair().state is SegmentState.GAP
    assert KEY not in world.content()


STEPS = (Step.SET_ASIDE, Step.REMOVE_DAMAGED, Step.PUT_SEGMENT, Step.END_QUARANTINE)


@pytest.mark.parametrize("number", range(2 * len(STEPS)))
def test_killed_at_each_step_the_next_one_ends_it(world: World, number: int) -> None:
    damage = DAMAGES["cut"]
    world.put(WANTED, damage)
    world.quarantine()
    with dies_at(number) as deaths:
        world.repair()
    assert len(deaths) == 1
    left = world.content()
    kept = [data for key, data in left.items() if "/set-aside/" in key]
    # the damaged bytes are never lost, and a sound object is never removed
    assert left.get(KEY, SOUND) in (damage, SOUND)
    assert left.get(KEY) == damage or kept == [damage]
    world.repair()
    after = world.content()
    assert after[KEY] == SOUND
    assert [data for key, data in after.items() if "/set-aside/" in key] == [damage]
    assert world.archive.control.quarantine.of(WANTED) is None


def test_its_steps_and_their_order(world: World) -> None:
    from infra.runtime import crash_points  # noqa: PLC0415

    seen: list[Step] = []
    world.put(WANTED, DAMAGES["cut"])
    world.quarantine()
    crash_points.observe(lambda step, when: seen.append(step) if when == BEFORE else None)
    try:
        world.repair()
    finally:
        crash_points.observe(None)
    assert tuple(seen) == STEPS
