"""Lag over time, in bounded memory. Pure.

    now        one sample at each refresh
    MOST       samples at most: then every second one of the older half is left out

so that the newest half has every refresh, and the time that is covered doubles with each halving of what is older.
Partitions share the times: a column of numbers for each, of eight bytes a sample.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from formats.segment import SourcePartition
from replicator.console.state import FlowKind, PartitionRow

MOST = 120
UNKNOWN = -1

LagKey = tuple[FlowKind, SourcePartition | None, str]
"""A partition of a flow, and its destination; without a partition: the whole flow."""


@dataclass(slots=True)
class LagHistory:
    """Use from one thread; `read` may be called from any."""

    most: int = MOST
    _times: array[int] = field(default_factory=lambda: array("q"))  # milliseconds since the epoch
    _lags: dict[LagKey, array[int]] = field(default_factory=dict)

    def add(self, now: datetime, lags: Mapping[LagKey, int | None]) -> None:
        """A partition that is not in `lags` any more is forgotten. A time that is not later than the last is not added.
        The sum of each flow is added here."""
        at = round(now.timestamp() * 1000)
        lags = {**lags, **sums(lags)}
        times, columns = self._times, self._lags
        if times and at <= times[-1]:
            return
        if len(times) >= self.most:
            older = len(times) // 2
            kept = [n for n in range(len(times)) if n >= older or n % 2 == 0]
            times = array("q", (times[n] for n in kept))
            columns = {key: array("q", (column[n] for n in kept)) for key, column in columns.items() if key in lags}
        unknown = array("q", [UNKNOWN]) * len(times)
        # new objects in place of the old ones: a reader has either all of the sample or nothing of it
        self._times, self._lags = (
            times + array("q", [at]),
            {
                key: columns.get(key, unknown) + array("q", [UNKNOWN if lag is None else lag])
                for key, lag in lags.items()
            },
        )

    def read(self, keys: Sequence[LagKey]) -> Sequence[tuple[datetime, int | None]]:
        """Time and sum of lags of `keys`; None where the lag of none of them is known."""
        times, lags = self._times, self._lags
        columns = [column for key in keys if (column := lags.get(key)) is not None and len(column) == len(times)]
        found: list[tuple[datetime, int | None]] = []
        for n, at in enumerate(times):
            known = [column[n] for column in columns if column[n] != UNKNOWN]
            found.append((datetime.fromtimestamp(at / 1000, UTC), sum(known) if known else None))
        return found


def key_of(row: PartitionRow) -> LagKey:
    return row.flow, row.source, row.destination


def whole(flow: FlowKind) -> LagKey:
    return flow, None, ""


def sums(lags: Mapping[LagKey, int | None]) -> Mapping[LagKey, int | None]:
    """Of each flow; None where the lag of none of its partitions is known."""
    found: dict[LagKey, int | None] = {}
    for (flow, source, _), lag in lags.items():
        if source is not None:
            before = found.setdefault(whole(flow), None)
            if lag is not None:
                found[whole(flow)] = (before or 0) + lag
    return found
