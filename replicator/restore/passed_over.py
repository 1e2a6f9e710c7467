"""The notes that a restore leaves in its checkpoint topic for its next run, or the next attempt of a Spark task, which
begins behind them: what it passed over, and which corrupt segments it replaced by others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Skipped
from formats.segment import OffsetRange, Segment, SegmentInfo
from infra.contracts.producer import TargetRun
from replicator.restore.partition_plan import EXPIRED
from replicator.restore.progress import RestorePositions, RestoringPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """The notes of one partition."""

    given_up: Sequence[OffsetRange]
    expired: Sequence[OffsetRange]
    corrupt: Sequence[Skipped]

    @classmethod
    def of(cls, key: CheckpointKey, notes: Iterable[Skipped]) -> PassedOver:
        """`notes`: of any partition."""
        mine = [one for one in notes if one.key == key]
        gaps = [one for one in mine if one.level is None]
        return cls(
            given_up=[one.offsets for one in gaps if one.reason != EXPIRED],
            expired=[one.offsets for one in gaps if one.reason == EXPIRED],
            corrupt=[one for one in mine if one.level is not None],
        )

    def still_corrupt(self, infos: Iterable[SegmentInfo]) -> Mapping[Segment, str]:
        """What was found in those of `infos` that are the same objects as then: a good copy may have been put there."""
        found = {(one.level, one.offsets, one.stored_at): one.reason for one in self.corrupt}
        keys = {info.segment: (info.segment.level, info.segment.offsets, info.stored_at) for info in infos}
        return {segment: found[key] for segment, key in keys.items() if key in found}


def note_runs(
    partitions: Iterable[RestoringPartition], positions: RestorePositions, at: datetime
) -> Sequence[TargetRun]:
    """Runs without records that write the notes of what lies behind the last record that was delivered: no run of
    records carries them. The positions stay. Of partitions that are done only: another one passes the gaps again."""
    runs = []
    for partition in partitions:
        plan, checkpoint = partition.plan, positions.get(partition.plan.key)
        if partition.is_void or not (partition.is_done and partition.unwritten and isinstance(checkpoint, Checkpoint)):
            continue
        run = TargetRun(
            plan.target,
            (),
            0,
            0,
            plan.key,
            replace(checkpoint, at=at),
            position=checkpoint.next_offset,
            epoch=0,
            skipped=tuple(partition.unwritten),
        )
        runs.append(run)
    return runs
