"""Which records of MirrorMaker 2's topics are due."""

from __future__ import annotations

from formats.messages.mirrormaker import MirrorCheckpoint, OffsetSync
from infra.contracts.cluster import TopicPartition
from ingress.groups.emission import checkpoint_id, due_checkpoints, due_offset_syncs
from ingress.groups.positions import GroupPosition
from ingress.groups.translation import Exactness


def position(upstream: int, downstream: int | None, *, metadata: str = "") -> GroupPosition:
    return GroupPosition(
        group="billing",
        source="us/orders/3",
        target=TopicPartition("us.orders", 3),
        upstream=upstream,
        downstream=downstream,
        exactness=Exactness.EXACT,
        metadata=metadata,
    )


def checkpoint(upstream: int, downstream: int, *, metadata: str = "") -> MirrorCheckpoint:
    return MirrorCheckpoint(
        group="billing",
        topic="us.orders",
        partition=3,
        upstream_offset=upstream,
        downstream_offset=downstream,
        metadata=metadata,
    )


def due(found: GroupPosition, before: MirrorCheckpoint | None = None) -> list[MirrorCheckpoint]:
    return list(due_checkpoints([found], {} if before is None else {checkpoint_id(before): before}))


def test_the_first_of_a_partition() -> None:
    assert due(position(10, 7, metadata="m")) == [checkpoint(10, 7, metadata="m")]


def test_nothing_without_a_translation() -> None:
    assert due(position(10, None)) == []


def test_a_group_that_moved_and_one_that_did_not() -> None:
    assert due(position(11, 8), checkpoint(10, 7)) == [checkpoint(11, 8)]
    assert due(position(10, 7), checkpoint(10, 7)) == []
    assert due(position(10, 7, metadata="new"), checkpoint(10, 7)) == [checkpoint(10, 7, metadata="new")]


def test_a_clamped_translation_advances_later() -> None:
    assert due(position(10, 8), checkpoint(10, 7)) == [checkpoint(10, 8)]


def test_a_group_that_was_reset_goes_back_and_a_translation_alone_does_not() -> None:
    assert due(position(4, 2), checkpoint(10, 7)) == [checkpoint(4, 2)]
    assert due(position(10, 6), checkpoint(10, 7)) == []
    assert due(position(11, 6), checkpoint(10, 7)) == []


def test_m15_an_offset_sync_for_each_partition_that_has_a_later_record() -> None:
    def sync(topic: str, upstream: int, downstream: int) -> OffsetSync:
        return OffsetSync(topic=topic, partition=0, upstream_offset=upstream, downstream_offset=downstream)

    written = {("a", 0): sync("a", 5, 5), ("b", 0): sync("b", 5, 5)}
    ends = [sync("a", 5, 5), sync("b", 9, 8), sync("c", 0, 0)]
    assert list(due_offset_syncs(ends, written)) == ends[1:]
