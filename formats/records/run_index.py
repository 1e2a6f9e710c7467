"""Many lookups in the same runs, by bisection: the columns of `OffsetRuns` as arrays, and what is derived from them.

    source      100  105   95       a run that goes back behind others was delivered again
    count         3    2    4
    ─────────────────────────────
    reach       103  107  107       after the highest offset up to here: ascends, so a run is found by bisection
    lowest       95   95   95       lowest offset of this run and all later ones

40 bytes for each run, which takes longer to compute than one lookup in the columns themselves. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import add

import pyarrow as pa

from formats.records.offset_runs import OffsetRuns


@dataclass(frozen=True, slots=True)
class IndexedRecord:
    """A record of some runs: the number of its run, and its offsets."""

    run: int
    source: int
    target: int


class RunIndex:
    """Of runs that do not change."""

    def __init__(self, runs: OffsetRuns) -> None:
        self._source, self._target, count = (_values(one) for one in (runs.source, runs.target, runs.count))
        self._ends = _offsets(map(add, self._source, count))
        self._reach = _offsets(accumulate(self._ends, max))
        self._lowest = _offsets(accumulate(reversed(self._source), min))
        self._lowest.reverse()

    def first_reaching(self, source: int) -> IndexedRecord | None:
        """The first record, in the order of the target, whose source offset is `source` or higher; None when there is
        none."""
        run = bisect_right(self._reach, source)
        if run == len(self._reach):
            return None
        skipped = max(source - self._source[run], 0)
        return IndexedRecord(run, self._source[run] + skipped, self._target[run] + skipped)

    def lowest_from(self, record: IndexedRecord) -> int:
        """Lowest source offset of this record and of all after it at the target."""
        later = record.run + 1
        return min(record.source, self._lowest[later]) if later < len(self._lowest) else record.source

    def end_before(self, run: int) -> int | None:
        """Source offset after the last record of the run before this one; None for the first run."""
        return self._ends[run - 1] if run else None


def _values(column: pa.Int64Array) -> array[int]:
    return _offsets(column.to_pylist())


def _offsets(values: Iterable[int]) -> array[int]:
    return array("q", values)
