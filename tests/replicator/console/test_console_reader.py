from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RecordedGap
from formats.control.quarantine import Quarantined
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Parked
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.job_heartbeats import Heartbeat, HeartbeatStore
from infra.archive.proofs import Proof, ProofStore
from infra.contracts.cluster import TopicPartition
from replicator.console.history import LagHistory, key_of
from replicator.console.markup import content
from replicator.console.reader import MOST_REASONS, SAMPLES, add_sample
from replicator.console.rows import drill_history
from replicator.console.settled import settled_offsets
from replicator.console.state import Condition, ConsoleState, FlowKind
from replicator.console.topic_pages import overview
from replicator.console.topic_views import overview_view
from replicator.drill import Drilled, append
from tests.replicator.console.console_world import HERE, THERE, ConsoleWorld, claim_of

MINE = SourcePartition(HERE, "mine", 0)


def read(world: ConsoleWorld, before: ConsoleState | None = None) -> ConsoleState:
    reader = world.reader()
    return reader.refresh(before or reader.first())


def test_both_flows() -> None:
    world = ConsoleWorld()
    world.archived("mine", partitions=2, stored=90, end=100)
    world.delivered("theirs", stored=90, at=60)
    proof = Proof(at=world.clock.at, next_offset=90, is_whole=True)
    ProofStore(world.objects, "data", HERE).record({MINE: proof}, world.clock.at)
    state = read(world)
    assert state.egress.value is not None
    assert state.ingress.value is not None
    egress = [
        (str(row.source), row.position, row.archive_end, row.source_end, row.lag) for row in state.egress.value.rows
    ]
    assert egress == [(f"{HERE}/mine/{n}", 90, 90, 100, 10) for n in range(2)]
    assert [row.proof is not None for row in state.egress.value.rows] == [True, False]
    (row,) = state.ingress.value.rows
    assert (str(row.source), row.destination, row.position, row.lag) == (f"{THERE}/theirs/0", f"{THERE}.theirs", 60, 30)
    assert (row.stored_bytes, row.condition) == (4, Condition.RUNNING)
    assert (state.egress.value.members, state.egress.value.group_id) == (1, "replicator.egress")
    assert state.refreshed_at == world.clock.at


def test_a_lag_that_is_not_known_is_not_0() -> None:
    """All that is stored is delivered, and no watermarks of the source have arrived."""
    world = ConsoleWorld()
    world.delivered("theirs", stored=90, at=90)
    world.delivered("more", stored=90, at=60)
    state = read(world)
    assert {row.source.topic: row.lag for row in state.rows} == {"theirs": None, "more": 30}
    page = overview(state, LagHistory(), world.clock.at)
    [card] = [one for one in page["flows"] if one["flow"] == "ingress"]
    assert (card["lag"], card["lag_known"], card["lag_unknown"]) == (30, 1, 1)
    assert "at least 30" in content(overview_view(page)[1])
    world.publish_watermarks("theirs", high=90, position=90, region=THERE)
    assert {row.source.topic: row.lag for row in read(world).rows}["theirs"] == 0


def test_conditions_of_delivered_partitions() -> None:
    world = ConsoleWorld()
    world.delivered("theirs", stored=90, at=60)
    key = CheckpointKey(SourcePartition(THERE, "theirs", 0), f"{THERE}.theirs")
    other = CheckpointKey(SourcePartition(THERE, "theirs", 0), "elsewhere")
    world.target.parked[key] = Parked(60, "too large", world.clock.at)
    world.target.checkpoints[other] = Checkpoint(5, "id-elsewhere", world.clock.at)
    state = read(world)
    found = {row.destination: (row.condition, row.note) for row in state.rows}
    assert found == {
        f"{THERE}.theirs": (Condition.PROBLEM, ""),
        "elsewhere": (Condition.OVER, "the configuration does not deliver it any more"),
    }
    assert [problem for row in state.rows for problem in row.problems if "too large" in problem]


def test_a_topic_of_which_nothing_has_arrived_has_a_row() -> None:
    world = ConsoleWorld()
    world.delivered("theirs", stored=90, at=60)
    world.publish_watermarks("late", high=70, position=0, region=THERE)
    rows = {row.destination: row for row in read(world).rows}
    late = rows[f"{THERE}.late"]
    assert (late.position, late.source_end, late.lag, late.condition) == (None, 70, 70, Condition.WAITING)
    assert (late.note, late.problems) == ("nothing of it has arrived", ())
    world.clock.at += timedelta(hours=1)
    late = {row.destination: row for row in read(world).rows}[f"{THERE}.late"]
    assert (late.condition, len(late.problems)) == (Condition.PROBLEM, 1)


def test_what_the_file_does_not_have_is_not_read() -> None:
    world = ConsoleWorld()
    state = world.reader().first()
    assert (state.drills.is_configured, state.egress.is_configured) == (False, True)
    assert read(world).drills == state.drills


def test_a_broker_that_is_away_leaves_what_was_read_with_the_reason() -> None:
    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    before = read(world)
    world.admin.away = True
    world.clock.at += timedelta(minutes=5)
    state = read(world, before)
    assert state.egress.value == before.egress.value
    assert state.egress.read_at == before.egress.read_at
    assert (state.egress.error != "", state.egress.failed_at) == (True, world.clock.at)
    assert state.compaction.error == ""  # which is in the bucket
    world.admin.away = False
    assert read(world, state).egress.error == ""


def test_a_bucket_that_is_away_leaves_what_was_read_with_the_reason() -> None:
    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    before = read(world)
    world.objects.away.add("list")
    state = read(world, before)
    assert [part.error != "" for part in (state.egress, state.ingress, state.groups, state.compaction)] == [True] * 4
    assert state.rows == before.rows


@pytest.mark.parametrize("error", [ValueError("of a key"), TypeError("of a time")])
def test_no_error_ends_the_console(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end again at each start."""

    def failing(_: object) -> NoReturn:
        raise error

    monkeypatch.setattr("replicator.console.reader.egress_sources", failing)
    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    state = read(world)
    assert (state.egress.error, state.compaction.error) == (str(error), "")


@pytest.mark.parametrize("error", [ValueError("of a key"), TypeError("of a time")])
def test_no_error_ends_the_listing_of_segments(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr("replicator.console.reader.read_map", failing)
    found = ConsoleWorld().reader().segment_map((HERE, "mine", 0), {})
    assert (found.incarnations, found.error) == ((), str(error))


def test_no_error_of_earlier_lags_ends_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> NoReturn:
        raise ValueError("of a key")

    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    rows = read(world).rows
    monkeypatch.setattr("replicator.console.reader.stored_watermarks", failing)
    assert world.reader().earlier_lags(rows) == []


def test_the_lag_is_not_known_while_a_flow_cannot_be_read() -> None:
    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    history, before = LagHistory(), read(world)
    add_sample(history, before, world.clock.at)
    world.admin.away = True
    world.clock.at += timedelta(minutes=1)
    add_sample(history, read(world, before), world.clock.at)
    assert [lag for _, lag in history.read([key_of(before.rows[0])])] == [10, None]


def test_nothing_is_a_sample_before_anything_was_read() -> None:
    world, history = ConsoleWorld(), LagHistory()
    world.admin.away = True
    add_sample(history, read(world), world.clock.at)
    assert history.read([]) == []


def test_compaction() -> None:
    world = ConsoleWorld()
    heartbeats = HeartbeatStore(world.objects, "data", HERE)
    heartbeats.beat(Heartbeat(owner="elsewhere/1/x", jobs=("nightly",), until=world.clock.at + timedelta(minutes=2)))
    found = read(world).compaction.value
    assert found is not None
    assert [(job.name, job.next_at is not None) for job in found.jobs] == [("nightly", True)]


def test_lags_before_the_start_come_from_stored_watermarks() -> None:
    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    for high, position in ((50, 10), (60, 60), (90, 70)):
        world.publish_watermarks("mine", high=high, position=position)
    rows = read(world).rows
    found = world.reader().earlier_lags(rows)
    assert [list(lags.values()) for _, lags in found] == [[40], [0], [20]]
    assert [at for at, _ in found] == [world.clock.at - timedelta(minutes=n) for n in (2, 1, 0)]
    assert [row.flow for row in rows] == [FlowKind.EGRESS]
    world.objects.away.add("open")
    assert world.reader().earlier_lags(rows) == []


def test_requests_for_earlier_lags_are_bounded() -> None:
    world = ConsoleWorld()
    world.archived("mine", stored=90, end=100)
    for n in range(300):
        world.publish_watermarks("mine", high=n + 1, position=n)
    rows = read(world).rows
    world.objects.calls.clear()
    found = world.reader().earlier_lags(rows)
    assert SAMPLES <= len(found) <= 2 * SAMPLES
    assert world.objects.calls["open"] == len(found)
    assert world.objects.calls["list"] <= 2 * SAMPLES + 20


def test_segments_of_every_incarnation() -> None:
    world = ConsoleWorld()
    later = SourcePartition(HERE, "mine", 0, "later")
    for path, number in (("mine", 0), ("mine@later", 1)):
        world.control.claims.record(HERE, path, claim_of(f"id-{number}", number, world.clock.at))
    world.put(MINE, 0, 9, level=1)
    world.put(MINE, 0, 4)
    world.put(MINE, 20, 29)
    world.put(SourcePartition(HERE, "mine", 1), 0, 99)  # another partition
    world.put(later, 0, 9)
    world.control.begins.record(MINE, ArchiveBegin(offset=0, reason="earliest", recorded_at=world.clock.at))
    lost = RecordedGap(
        source=MINE, offsets=OffsetRange(10, 14), reason="<b>", low=0, high=30, recorded_at=world.clock.at
    )
    world.control.gaps.record(lost)
    damaged = Segment(MINE, 0, OffsetRange(20, 29))
    world.control.quarantine.record(
        damaged, Quarantined(stored_at=world.clock.at, reason="digest", found_at=world.clock.at)
    )
    first, second = world.reader().segment_map((HERE, "mine", 0), {}).incarnations
    assert [(level.level, level.segments) for level in first.levels] == [(1, 1), (0, 2)]
    assert [(hole.offsets, hole.kind, hole.reason) for hole in first.holes] == [
        (OffsetRange(10, 14), "loss", "<b>"),
        (OffsetRange(15, 19), "unrecorded", "in no segment, and no gap is recorded"),
    ]
    assert dict(first.damaged) == {str(damaged): "digest"}
    assert first.begin is not None
    assert (second.path, second.incarnation_id, second.start, second.next_offset) == ("mine@later", "later", 0, 10)
    assert second.damaged == {}


def test_segments_beyond_the_position_may_be_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsoleWorld()
    world.put(MINE, 0, 9)
    world.put(MINE, 20, 29)
    (found,) = world.reader().segment_map((HERE, "mine", 0), {"": 10}).incarnations
    assert (found.holes, found.is_cut) == ((), False)
    (found,) = world.reader().segment_map((HERE, "mine", 0), {"": 30}).incarnations
    assert [hole.offsets for hole in found.holes] == [OffsetRange(10, 19)]
    world.put(MINE, 0, 29, level=1)
    monkeypatch.setattr("replicator.console.reader.MOST_SEGMENTS", 2)
    (found,) = world.reader().segment_map((HERE, "mine", 0), {"": 30}).incarnations
    assert (found.holes, found.is_cut) == ((), True)


def test_up_to_where_nothing_is_on_its_way() -> None:
    """As `status`: without a commit, segments may be on their way anywhere while a process works."""
    world = ConsoleWorld()
    world.archived("mine", partitions=2, stored=90, end=100)
    world.delivered("theirs", stored=90, at=60)
    del world.groups.offsets["replicator.egress"][TopicPartition("mine", 1)]
    state = read(world)
    assert settled_offsets(state, (HERE, "mine", 0)) == {"": 90}
    assert settled_offsets(state, (HERE, "mine", 1)) == {"": 0}
    assert settled_offsets(state, (THERE, "theirs", 0)) == {"": 60}
    world.groups.members["replicator.egress"] = 0
    assert settled_offsets(read(world), (HERE, "mine", 1)) == {}


def test_reasons_of_many_gaps_are_not_read() -> None:
    world = ConsoleWorld()
    for n in range(MOST_REASONS + 1):
        offsets = OffsetRange(n * 10, n * 10 + 1)
        gap = RecordedGap(source=MINE, offsets=offsets, reason="x", low=0, high=9, recorded_at=world.clock.at)
        world.control.gaps.record(gap)
    (found,) = world.reader().segment_map((HERE, "mine", 0), {}).incarnations
    assert {hole.kind for hole in found.holes if hole.offsets.start % 10 == 0} == {"recorded"}
    assert world.objects.calls["open"] <= 1  # where the archive begins


def test_segments_that_cannot_be_listed() -> None:
    world = ConsoleWorld()
    world.objects.away.add("list")
    found = world.reader().segment_map((HERE, "mine", 0), {})
    assert (found.incarnations, "planned" in found.error) == ((), True)


def test_drills_as_the_command_writes_them(tmp_path: Path) -> None:
    world, file = ConsoleWorld(), tmp_path / "drills.jsonl"
    for days, differences in ((2, []), (1, ["eu/mine/0: missing [1,2]"])):
        drilled = Drilled(
            region=HERE,
            at=world.clock.at - timedelta(days=days),
            partitions=2,
            records=100,
            size_bytes=4000,
            restore_seconds=1.25,
            verify_seconds=0.5,
            behind_seconds=None,
            behind_unknown="not asked",
            bad=len(differences),
            differences=differences,
        )
        append(file, drilled)
    reader = world.reader(file)
    found = reader.refresh(reader.first()).drills.value
    assert found is not None
    assert [(one.is_good, one.restore_seconds, one.behind_seconds) for one in found.drills] == [
        (False, 1.25, None),
        (True, 1.25, None),
    ]
    assert found.drills[0].differences == ("eu/mine/0: missing [1,2]",)
    file.unlink()
    assert "drills.jsonl" in reader.refresh(reader.first()).drills.error


def test_lines_of_drills_that_cannot_be_read_are_counted() -> None:
    line = json.dumps({"at": "2026-01-01T00:00:00+00:00"})
    assert drill_history(f"{line}\nnot json\n\n[]\n", 10).unreadable == 3
    assert drill_history("", 10).drills == ()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e300"])
def test_a_drill_without_a_duration_is_unreadable_and_no_page_of_errors(value: str) -> None:
    line = (
        f'{{"at": "2026-01-01T00:00:00+00:00", "region": "us", "good": true, "partitions": 1, "records": 1, '
        f'"restore_seconds": 1.0, "verify_seconds": 1.0, "behind_seconds": {value}, "differences": []}}'
    )
    found = drill_history(line, 10)
    assert (found.drills, found.unreadable) == ((), 1)
