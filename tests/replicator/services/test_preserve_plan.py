"""What `plan` says of sources whose offsets are kept: how long it takes, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.archive_begin import ArchiveBegin
from formats.footer import SegmentOrigin
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.archive import Archive
from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from ingress.settings import IngressSettings
from replicator.services.preserve_plan import PreservePlan, SourceHoles, preserve_plan
from tests.contracts.target import STAMP, row
from tests.fakes.archive import archive_of
from tests.formats.sample_records import batch_of
from tests.ingress.world import source_settings

FORMAT = ParquetFormat()
AT = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = IngressSettings(sources=(source_settings(offsets="preserve"),))
REGION = SETTINGS.sources[0].region
SOURCE = SourcePartition(REGION, "t", 0)
PRESERVED, MAPPED = (
    ArchivedTopic(
        region=REGION,
        incarnations=[ArchivedIncarnation(incarnation=Incarnation("t", ""))],
        settings=source_settings(offsets=offsets),
    )
    for offsets in ("preserve", "map")
)


def archive_with(*segments: Iterable[int], begin: int | None = None) -> Archive:
    """`segments`: the offsets of each; ten in a second."""
    archive = archive_of(SegmentStore(MemoryObjectStore(), "data"), FORMAT)
    for offsets in segments:
        rows = [row(offset, stamp=STAMP + 100 * n) for n, offset in enumerate(offsets)]
        segment, body = Segment(SOURCE, 0, OffsetRange(rows[0]["offset"], rows[-1]["offset"])), io.BytesIO()
        writer = FORMAT.create(body)
        writer.write([batch_of(rows)])
        writer.close(segment, SegmentOrigin(created_at=AT, writer="test"))
        archive.segments.store(segment, body, len(body.getvalue()))
    if begin is not None:
        archive.control.begins.record(SOURCE, ArchiveBegin(offset=begin, reason="test", recorded_at=AT))
    return archive


def plan(
    archive: Archive,
    *,
    route: ArchivedTopic = PRESERVED,
    position: int | None = None,
    limit: int = 1_000,
    most: int = 40,
) -> PreservePlan:
    """`position`: of its checkpoint, if it has one."""
    checkpoints = {} if position is None else {CheckpointKey(SOURCE, "copy"): Checkpoint(position, "id", AT)}
    settings = replace(SETTINGS, preserve_hole_limit=limit, preserve_holes_per_second=most)
    return preserve_plan(archive, {"copy": [route]}, checkpoints, settings)


@pytest.mark.parametrize("begin", [None, 0])
def test_nothing_is_planned_for_a_source_that_is_whole(begin: int | None) -> None:
    assert plan(archive_with(range(100), begin=begin)) == PreservePlan()


def test_a_prefix_is_announced_with_its_time_until_delivery_has_begun() -> None:
    archive = archive_with(range(1_000, 1_100), begin=1_000)
    found = plan(archive)
    assert found.notes == (f"fill {SOURCE} up to offset 1000, where its archive begins: about 0 s",)
    assert found.problems == {}
    assert plan(archive, position=1_000) == PreservePlan()


def test_a_long_prefix_is_refused_until_the_limit_is_raised() -> None:
    archive = archive_with(range(3_000_000, 3_000_010), begin=3_000_000)
    found = plan(archive)
    assert found.notes == ()
    assert "takes about 20 s, and ingress.preserve_hole_limit is 1000: raise it" in found.problems[str(SOURCE)]
    assert len(plan(archive, limit=3_000_000).notes) == 1


def test_the_newest_segment_shows_how_many_holes_there_are() -> None:
    """Ten in a second there, and none in the one before."""
    archive = archive_with(range(100), range(100, 300, 2))
    assert plan(archive) == PreservePlan()
    found = plan(archive, most=9)
    assert found.problems[str(SOURCE)].startswith("its newest segment has 10 holes a second")
    assert plan(archive_with(range(0, 200, 2), range(200, 300)), most=9) == PreservePlan()


def test_sources_with_a_map_do_not_matter() -> None:
    archive = archive_with(range(3_000_000, 3_000_200, 2), begin=3_000_000)
    assert plan(archive, route=MAPPED, most=1) == PreservePlan()


@given(st.integers(0, 10**10), st.floats(0, 10**4), st.integers(1, 10**10), st.integers(1, 10**4))
def test_a_source_is_refused_above_either_limit_and_only_then(
    prefix: int, per_second: float, limit: int, most: int
) -> None:
    settings = replace(SETTINGS, preserve_hole_limit=limit, preserve_holes_per_second=most)
    problem = SourceHoles(prefix=prefix, per_second=per_second).problem(settings)
    assert bool(problem) == (prefix > limit or per_second > most)
    assert ("offsets = 'map'" in problem) == bool(problem), "a remedy"
