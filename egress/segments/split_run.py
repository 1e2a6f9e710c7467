"""Splits a run of records."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow.compute as pc

from formats.records.statistics import first_offset, last_offset, record_bytes
from infra.contracts.consumer import Run


def split(run: Run, room: int) -> tuple[Run, Run | None]:
    """The first `room` records, and the rest if there is one. The size is divided in proportion to the counts."""
    if run.count <= room:
        return run, None
    head_bytes = run.size_bytes * room // run.count
    return _part(run, 0, room, head_bytes), _part(run, room, run.count, run.size_bytes - head_bytes)


def cut(run: Run, room: int, room_bytes: int) -> tuple[Run, Run | None]:
    """As `split`, and not behind the record with which the run reaches `room_bytes`. Sizes are exact, so that the same
    records are always cut at the same ones, however they were fetched."""
    if run.count <= room and run.size_bytes <= room_bytes:
        return run, None
    totals = memoryview(pc.cumulative_sum(record_bytes(run.batch)).buffers()[1]).cast("q")[: run.count]
    count = min(room, bisect_left(totals, room_bytes) + 1, run.count)
    if count == run.count:
        return run, None
    return _part(run, 0, count, totals[count - 1]), _part(run, count, run.count, totals[-1] - totals[count - 1])


def _part(run: Run, begin: int, end: int, size_bytes: int) -> Run:
    batch = run.batch.slice(begin, end - begin)
    return Run(
        run.partition,
        batch,
        first_offset(batch),
        last_offset(batch),
        end - begin,
        size_bytes,
        run.last_leader_epoch,
    )
