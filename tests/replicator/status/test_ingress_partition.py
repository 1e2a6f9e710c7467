"""The state of one partition, from its archive and its target: what is a problem."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.messages.delivery_checkpoint import Checkpoint
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
