"""Delivery with a lineage header: of what a transform left, and of each segment's own cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.ingress.delivery.hand import C
from tests.ingress.process import Process, joined
from tests.ingress.world import World, source_settings

USER = "tests.formats.records.user_transforms"
AT_ONCE = source_settings(first_segment_delay=timedelta())
WITH = replace(AT_ONCE, lineage_header="from")


def delivered(world: World) -> list[tuple[tuple[str, bytes | None], ...]]:
    return [record.headers for record in world.target.records(C)]


def reload(process: Process, header: str) -> None:
    process.current.replace(replace(process.current.value, sources=(replace(AT_ONCE, lineage_header=header),)))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_what_the_transform_leaves_says_which_record_it_is(exactly_once: bool) -> None:
    world = World(replace(WITH, transform=f"{USER}:masked_even"))
    world.target.exactly_once = exactly_once
    world.record_begin(0)
    world.put(0, 5)
    world.put(6, 9, topic_id="id")
    joined(world, run_records=4).turn(6)
    assert delivered(world) == [
        *((("from", f"/t/0/{offset}".encode()),) for offset in (0, 2, 4)),
        *((("from", f"cluster-of-it/t/0/{offset}".encode()),) for offset in (6, 8)),
    ]
    assert {record.value for record in world.target.records(C)} == {b"***"}


def test_without_it_records_are_as_they_were() -> None:
    world = World(AT_ONCE)
    world.record_begin(0)
    world.put(0, 3)
    joined(world)
    assert delivered(world) == [()] * 4


def test_it_is_taken_over_and_ended_while_it_runs() -> None:
    world = World(AT_ONCE)
    world.record_begin(0)
    world.put(0, 0)
    process = joined(world)
    for header, offset in (("from", 1), ("", 2)):
        reload(process, header)
        process.turn(8)
        world.put(offset, offset)
        process.turn(8)
    assert delivered(world) == [(), (("from", b"/t/0/1"),), ()]
