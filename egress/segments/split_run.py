"""Cutting a run of records."""

from __future__ import annotations

from infra.contracts.consumer import Run


def split(run: Run, room: int) -> tuple[Run, Run | None]:
    """The first `room` records, and the others if there are any. Sizes are shared out by count."""
    if run.count <= room:
        return run, None
    offsets = run.batch.column(0)
    head_bytes = run.size_bytes * room // run.count
    head = Run(
        run.partition,
        run.batch.slice(0, room),
        run.first_offset,
        offsets[room - 1].as_py(),
        room,
        head_bytes,
        run.last_leader_epoch,
    )
    rest = Run(
        run.partition,
        run.batch.slice(room),
        offsets[room].as_py(),
        run.last_offset,
        run.count - room,
        run.size_bytes - head_bytes,
        run.last_leader_epoch,
    )
    return head, rest
