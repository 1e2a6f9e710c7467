"""The notes of what a restore passed over behind the last record that it delivered: no run of records carries them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from formats.messages.delivery_checkpoint import Checkpoint
from infra.contracts.producer import TargetRun
from replicator.restore.progress import RestorePositions, RestoringPartition


def note_runs(
    partitions: Iterable[RestoringPartition], positions: RestorePositions, at: datetime
) -> Sequence[TargetRun]:
    """Runs without records that write these notes; the positions stay. Of partitions that are done only: another one
    passes the gaps again."""
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
