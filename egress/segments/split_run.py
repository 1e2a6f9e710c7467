"""Splits a run of records."""

from __future__ import annotations

from formats.records.statistics import first_offset, last_offset
from infra.contracts.consumer import Run


def split(run: Run, room: int) -> tuple[Run, Run | None]:
    """The first `room` records, and the rest if there is one. The size is divided in proportion to the counts."""
    if run.count <= room:
        return run, None
    head_batch, rest_batch = run.batch.slice(0, room), run.batch.slice(room)
    head_bytes = run.size_bytes * room // run.count
    head = Run(
        run.partition,
        head_batch,
        run.first_offset,
        last_offset(head_batch),
        room,
        head_bytes,
        run.last_leader_epoch,
    )
    rest = Run(
        run.partition,
        rest_batch,
        first_offset(rest_batch),
        run.last_offset,
        run.count - room,
        run.size_bytes - head_bytes,
        run.last_leader_epoch,
    )
    return head, rest
