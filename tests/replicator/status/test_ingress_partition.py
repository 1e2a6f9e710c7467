"""The state of one partition, from its archive and its target: what is a problem."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.messages.delivery_checkpoint import Checkpoint, Skipped
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicFacts
from replicator.status.archive import ArchivedPartition
from replicator.status.ingress_partition import IngressPartition, partition_status
from tests.ingress.world import World, key


@pytest.mark.parametrize(
    ("checkpoint_id", "partitions", "partition", "wanted"),
    [
        ("id-copy", 2, 0, ""),
        ("", 2, 0, ""),
        ("earlier", 2, 0, "created again"),
        ("id-copy", 2, 2, "at least 3"),
    ],
)
def test_problems_of_the_destination_are_found(
    checkpoint_id: str, partitions: int, partition: int, wanted: str
) -> None:
    world = World()
    found: IngressPartition = partition_status(
        key(partition),
        configured=True,
        checkpoint=Checkpoint(3, checkpoint_id, world.clock.at - timedelta(hours=1)),
        archived=ArchivedPartition([OffsetRange(0, 9)]),
        gaps=(),
        parked=None,
        skipped=(),
        target=TopicFacts("copy", "id-copy", partitions),
        now=world.clock.at,
    )
    assert [wanted in p for p in found.problems] == ([True] if wanted else [])


@pytest.mark.parametrize(
    ("position", "gaps", "skipped", "absent"),
    [
        (None, (), (), [(10, 19), (30, 39)]),
        (0, (), (), [(10, 19), (30, 39)]),
        (15, (), (), [(15, 19), (30, 39)]),
        (0, ((10, 19),), (), [(30, 39)]),
        (0, ((10, 14),), ((15, 34),), [(35, 39)]),
        (45, (), (), []),
        (60, (), (), []),
    ],
)
def test_offsets_that_are_to_be_delivered_and_in_no_segment_are_absent(
    position: int | None, gaps: tuple[tuple[int, int], ...], skipped: tuple[tuple[int, int], ...], absent: list[object]
) -> None:
    world = World()
    found = partition_status(
        key(0),
        configured=True,
        checkpoint=None if position is None else Checkpoint(position, "id-copy", world.clock.at),
        archived=ArchivedPartition([OffsetRange(0, 9), OffsetRange(20, 29), OffsetRange(40, 49)]),
        gaps=[OffsetRange(*one) for one in gaps],
        parked=None,
        skipped=[Skipped(key=key(0), offsets=OffsetRange(*one), reason="r", at=world.clock.at) for one in skipped],
        target=TopicFacts("copy", "id-copy", 1),
        now=world.clock.at,
    )
    assert [(one.start, one.end) for one in found.absent] == absent
