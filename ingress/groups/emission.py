"""Which records of MirrorMaker 2's topics are due: checkpoints of groups, and offset syncs of partitions. Pure.

A checkpoint is written when a group has moved at the source, or its translation has advanced here. A group that went
back at the source is written, too; a translation alone never goes back: that would be news of the map, and not of the
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from formats.messages.mirrormaker import MirrorCheckpoint, OffsetSync
from ingress.groups.positions import GroupPosition

CheckpointId = tuple[str, str, int]  # group, remote topic, partition


def checkpoint_id(one: MirrorCheckpoint) -> CheckpointId:
    return one.group, one.topic, one.partition


def due_checkpoints(
    positions: Iterable[GroupPosition],
    written: Mapping[CheckpointId, MirrorCheckpoint],
    *,
    is_newest: Callable[[], bool] = lambda: True,
) -> Iterator[MirrorCheckpoint]:
    """`written`: the newest of each that is in the topic. `is_newest`: False of positions by an older snapshot than
    there is, whose lower offsets are no resets; asked when there is one."""
    for position in positions:
        if position.downstream is None:
            continue
        checkpoint = MirrorCheckpoint(
            group=position.group,
            topic=position.target.topic,
            partition=position.target.partition,
            upstream_offset=position.upstream,
            downstream_offset=position.downstream,
            metadata=position.metadata,
        )
        before = written.get(checkpoint_id(checkpoint))
        if before is None or _is_news(before, checkpoint, is_newest=is_newest):
            yield checkpoint


def _is_news(before: MirrorCheckpoint, now: MirrorCheckpoint, *, is_newest: Callable[[], bool]) -> bool:
    if now.upstream_offset < before.upstream_offset:
        return is_newest()
    return now.downstream_offset >= before.downstream_offset and now != before


def due_offset_syncs(ends: Iterable[OffsetSync], written: Mapping[tuple[str, int], OffsetSync]) -> Iterator[OffsetSync]:
    """`ends`: of each partition of the source, the last record that is here. `written`: the newest in the topic."""
    for sync in ends:
        before = written.get((sync.topic, sync.partition))
        if before is None or before.downstream_offset < sync.downstream_offset:
            yield sync
