"""Runs of records whose offsets are consecutive at the source and at the target alike.

    source    100 101 102  -  -  105 106         source  target  count
    target      7   8   9         10  11    ───>    100       7      3
                                                    105      10      2

Offsets in between are holes: at the source, transaction markers and records that compaction or a transform removed; at
the target, transaction markers. Columns, never one object for each run: a source with one record in each transaction
has as many runs as records. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True, eq=False)
class OffsetRuns:
    """Three columns of int64 without nulls, of the same length, in the order of the target: its runs do not overlap
    there. At the source, a later run may repeat offsets of an earlier one: those were delivered twice."""

    source: pa.Int64Array  # first offset of each run
    target: pa.Int64Array
    count: pa.Int64Array  # records, at least 1

    def __len__(self) -> int:
        return len(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRuns) and self.rows() == other.rows()

    __hash__ = None  # type: ignore[assignment]

    @property
    def records(self) -> int:
        return pc.sum(self.count).as_py() or 0

    @property
    def target_start(self) -> int:
        """First offset at the target. Raises IndexError without a run, as the next one does."""
        return int(self.target[0].as_py())

    @property
    def target_end(self) -> int:
        """After the last offset at the target."""
        return int(self.target[-1].as_py() + self.count[-1].as_py())

    @property
    def source_end(self) -> int:
        """After the highest offset at the source; 0 without a run."""
        return int(pc.max(pc.add(self.source, self.count)).as_py() or 0)

    @property
    def lowest_source(self) -> int:
        """Lowest offset at the source; 0 without a run."""
        return int(pc.min(self.source).as_py() or 0)

    def rows(self) -> list[tuple[int, int, int]]:
        """For tests and people: one tuple a run."""
        return list(zip(self.source.to_pylist(), self.target.to_pylist(), self.count.to_pylist(), strict=True))

    def slice(self, first: int, length: int | None = None) -> OffsetRuns:
        """Some of the runs, without a copy."""
        return OffsetRuns(
            self.source.slice(first, length), self.target.slice(first, length), self.count.slice(first, length)
        )

    def within(self, start: int, end: int) -> OffsetRuns:
        """The records with target offsets from `start` to before `end`; runs that go beyond either are cut."""
        if len(self) and start <= self.target_start and self.target_end <= end:
            return self
        first = pc.index(pc.greater(pc.add(self.target, self.count), start), value=True).as_py()
        last = pc.index(pc.greater_equal(self.target, end), value=True).as_py()
        runs = NO_RUNS if first < 0 else self.slice(first, max((last if last >= 0 else len(self)) - first, 0))
        if not len(runs) or (runs.target_start >= start and runs.target_end <= end):
            return runs
        skipped = pc.max_element_wise(pc.subtract(start, runs.target), 0)  # of the first run, else 0
        target = pc.add(runs.target, skipped)
        kept = pc.min_element_wise(pc.subtract(runs.count, skipped), pc.subtract(end, target))
        return OffsetRuns(pc.add(runs.source, skipped), target, kept)

    def overlaps(self, other: OffsetRuns) -> bool:
        """Whether both have a record at one offset of the target: they cannot both be true of one log."""
        starts = pa.concat_arrays([self.target, other.target])
        ends = pc.add(starts, pa.concat_arrays([self.count, other.count]))
        order = pc.sort_indices(starts)
        return bool(
            pc.any(pc.less(starts.take(order.slice(1)), ends.take(order.slice(0, max(len(order) - 1, 0))))).as_py()
        )

    def moved(self, by: int) -> OffsetRuns:
        """The same runs, so much further at the target."""
        return OffsetRuns(self.source, pc.add(self.target, by), self.count)

    def extended(self, later: OffsetRuns) -> OffsetRuns:
        """These runs, then `later` ones; the last and the first become one where they touch at both ends. Raises
        ValueError when the later ones do not lie after these at the target."""
        if not len(self) or not len(later):
            return later if not len(self) else self
        if later.target_start < self.target_end:
            raise ValueError(f"runs from {later.target_start} do not follow runs up to {self.target_end}")
        last_end = self.source[-1].as_py() + self.count[-1].as_py()
        if later.source[0].as_py() != last_end or later.target_start != self.target_end:
            return _concatenated((self, later))
        joined = OffsetRuns(
            self.source.slice(len(self) - 1),
            self.target.slice(len(self) - 1),
            pc.add(self.count.slice(len(self) - 1), later.count.slice(0, 1)),
        )
        return _concatenated((self.slice(0, len(self) - 1), joined, later.slice(1)))

    def source_end_before(self, target: int) -> int | None:
        """Offset at the source after the last record here whose target offset is lower; None when there is none."""
        runs = self.within(0, target)
        return int(runs.source[-1].as_py() + runs.count[-1].as_py()) if len(runs) else None


NO_RUNS = OffsetRuns(*(pa.nulls(0, pa.int64()) for _ in range(3)))  # `pa.array` would load pandas


def offset_runs(rows: Iterable[tuple[int, int, int]]) -> OffsetRuns:
    """From one (source, target, count) a run, for few runs."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return OffsetRuns(*(pa.array(column, pa.int64()) for column in columns))


def contiguous(offsets: Iterable[pa.Int64Array], first_target: int) -> OffsetRuns:
    """Runs of records that got consecutive offsets at the target, from `first_target` on. `offsets`: at the source,
    each above the one before; not all of them empty."""
    columns = [column for column in offsets if len(column)]
    first, records = columns[0][0].as_py(), sum(map(len, columns))
    if columns[-1][-1].as_py() - first == records - 1:  # no hole, as in most runs: without a pass over the columns
        return offset_runs([(first, first_target, records)])
    source = pa.concat_arrays(columns)
    starts, count = _between(_gaps(source))
    return OffsetRuns(source.take(starts), pc.add(starts, first_target), count)


def scattered(offsets: Iterable[pa.Int64Array], targets: pa.Int64Array) -> OffsetRuns:
    """The same of records between which others have written: each has its own offset of `targets`, ascending."""
    source = pa.concat_arrays(list(offsets))
    starts, count = _between(pc.or_(_gaps(source), _gaps(targets)))
    return OffsetRuns(source.take(starts), targets.take(starts), count)


def _gaps(offsets: pa.Int64Array) -> pa.BooleanArray:
    """Whether an offset does not follow the one before it; null for the first."""
    return pc.not_equal(pc.pairwise_diff(offsets), 1)


def _between(gaps: pa.BooleanArray) -> tuple[pa.Int64Array, pa.Int64Array]:
    """First row and count of each stretch of rows without a gap."""
    starts = pc.indices_nonzero(pc.fill_null(gaps, fill_value=True)).cast(pa.int64())
    ends = pa.concat_arrays([starts.slice(1), pa.array([len(gaps)], pa.int64())])
    return starts, pc.subtract(ends, starts)


def _concatenated(parts: Iterable[OffsetRuns]) -> OffsetRuns:
    sources, targets, counts = zip(*((part.source, part.target, part.count) for part in parts), strict=True)
    return OffsetRuns(pa.concat_arrays(sources), pa.concat_arrays(targets), pa.concat_arrays(counts))
